"""One lane of a race of servers: a thread with its own event loop, a warm connection, a question."""

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from threading import Event as Flag
from threading import Thread

import httpx

from ..core.errors import RaceError
from ..core.events import Event, Failed, Finished, LaneEvent, Started, Step
from ..core.spec import SamplingParams
from .client import Patience, RemoteError, ask, new_client
from .endpoint import Endpoint, hide
from .reply import Chunk, Reply
from .request import Question
from .steps import Written

WARM_UP = Question("1 2 3")
WARM_UP_CHAT = Question(messages=(("user", "Say yes."),))
# How often a waiting lane repeats its warm-up question: servers close a connection that is silent for 5 s.
KEEP_WARM_S = 2.0
FEW = 16  # the fewest tokens that OpenAI's Responses API writes, also behind a gateway


class RemoteLane:
    """A lane on a server. `start` warms it up and sets `ready`; it races when `go` is set, and passes events to `say`,
    with `None` at the end. Errors become Failed, without secrets.

    secrets: of all servers of the race; none appears in the lane's text."""

    def __init__(
        self,
        endpoint: Endpoint,
        question: Question,
        params: SamplingParams,
        patience: Patience,
        secrets: Collection[str],
        say: Callable[[LaneEvent | None], None],
    ) -> None:
        self.endpoint, self.question, self.params, self.patience = endpoint, question, params, patience
        self.written, self.reply, self.failed = Written(params.max_new_tokens, secrets), Reply(), ""
        self.error: RaceError | None = None
        self.ready, self.go, self.began = Flag(), Flag(), 0.0
        self.sent_s = self.ended_s = 0.0
        self._secrets, self._say, self._stopped = secrets, say, False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = Thread(target=self._run, name=f"lane {endpoint.lane}", daemon=True)
        self._num_said, self._num_warm, self._clock_s = 0, 1, 0.0

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """End the lane, and wait at most that long for its thread."""
        self._stopped = True
        self.go.set()
        if self._thread.ident is None:
            return
        with suppress(RuntimeError):  # the loop may have ended meanwhile
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            asyncio.run(self._decode())
        except asyncio.CancelledError:
            pass
        except Exception as error:
            unnamed = RaceError(f"the client of lane {self.endpoint.lane} failed: {type(error).__name__}")
            self._fail(error if isinstance(error, RaceError) else unnamed)
        finally:
            self.ready.set()
            self._say(None)

    async def _decode(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._stopped:
            return
        async with new_client() as client:
            await self._warm_up(client)
            self.ready.set()
            while not await asyncio.to_thread(self.go.wait, KEEP_WARM_S):
                await self._warm_up(client)
            if not self._stopped:
                await self._race(client)

    async def _warm_up(self, client: httpx.AsyncClient) -> None:
        params = replace(self.params, max_new_tokens=self._num_warm, stop=())
        question = WARM_UP_CHAT if self.question.messages else WARM_UP
        try:
            await ask(client, self.endpoint, question, params, self.patience)
        except RemoteError as error:
            if error.status != 400 or self._num_warm == FEW:
                raise
            self._num_warm = FEW
            await self._warm_up(client)

    async def _race(self, client: httpx.AsyncClient) -> None:
        self.sent_s = time.perf_counter() - self.began
        self.reply = reply = await ask(client, self.endpoint, self.question, self.params, self.patience, self._take)
        try:
            if not reply.chunks and reply.textless:
                raise RaceError(f"the server's answer cannot be read: {reply.textless}")
            self.written.end(reply)
        except RaceError as error:
            raise RaceError(f"lane {self.endpoint.lane}: {error}") from error
        self.ended_s = reply.ended_s or 0.0
        self._tell(Finished(self.reason, reply.num_tokens or 0, self._clock_s), self.ended_s)

    @property
    def reason(self) -> str:
        """Why the answer ended; servers do not report whether a stop string did it."""
        full = self.reply.finish_reason is None and self.reply.num_tokens == self.params.max_new_tokens
        return "length" if full else self.reply.finish_reason or "stop"

    def _take(self, chunk: Chunk) -> None:
        self.written.take(chunk)
        if not self._num_said and len(self.written.ends) > 1:
            self._tell(Started(0, chunk.at_s), chunk.at_s)
        if self._num_said < len(self.written.ends) - 1:
            step = self.written.last_chunk()
            self._num_said += 1
            self._clock_s += step.seconds
            self._tell(step, chunk.at_s)

    def _tell(self, event: Event, at_s: float) -> None:
        self._say(LaneEvent(self.endpoint.lane, self._clock_s, event, self.sent_s + at_s))

    def _fail(self, error: RaceError) -> None:
        self.error, self.failed = error, hide(str(error), self._secrets)
        self.written.flush()
        self.ended_s = max(0.0, time.perf_counter() - self.began - self.sent_s) if self.began else 0.0
        self._tell(Failed(self.failed), self.ended_s)

    def events(self, done: list[Step]) -> list[LaneEvent]:
        """The lane's events, with these steps instead of those reported while it ran."""
        name, written, clock_s = self.endpoint.lane, self.written, 0.0
        events: list[LaneEvent] = []
        if done:
            first_s = written.at_s[0]
            started = Started(self.reply.num_prompt_tokens or 0, first_s)
            events.append(LaneEvent(name, 0.0, started, self.sent_s + first_s))
        for step in done:
            clock_s += step.seconds
            events.append(LaneEvent(name, clock_s, step, self.sent_s + written.at_s[step.position]))
        if self.failed:
            events.append(LaneEvent(name, clock_s, Failed(self.failed), self.sent_s + self.ended_s))
        elif self.ended_s:
            ended = Finished(self.reason, len(written.token_ids), clock_s)
            events.append(LaneEvent(name, clock_s, ended, self.sent_s + self.ended_s))
        return events
