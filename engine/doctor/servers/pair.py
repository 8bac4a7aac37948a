"""The servers of a check-up and the questions that its checks share: connections, and the answers at temperature 0."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar

import httpx

from ...core.spec import SamplingParams
from ...progress import Progress
from ...remote.client import Patience, ask
from ...remote.endpoint import Endpoint
from ...remote.look import CHAT, SAID, Seen
from ...remote.metrics import NOTHING, Counters, read_counters
from ...remote.reply import Reply
from ...remote.request import Question
from ...studies.prompts.rows import Row

T = TypeVar("T")
NUM_AT_ONCE = 32  # requests to a server at a time, where a check sends many
PATIENCE = Patience(40.0, 60.0)
UNSEEN = Seen(None, "")
MAX_PROMPTS, MAX_TOKENS = 4, 64  # limits of the answers at temperature 0


@dataclass
class Server:
    """One server. client: for NUM_AT_ONCE requests. seen: what `look` found. answers: at temperature 0, to
    `Pair.questions`, twice. before, after: its counters around the first of both rounds."""

    endpoint: Endpoint
    client: httpx.AsyncClient
    seen: Seen = UNSEEN
    answers: tuple[list[Reply], list[Reply]] = ((), ())  # type: ignore[assignment]
    before: Counters = NOTHING
    after: Counters = NOTHING

    @property
    def lane(self) -> str:
        """Its name in sentences."""
        return f"lane {self.endpoint.lane}"

    @property
    def model(self) -> str:
        """Its name, without secrets."""
        return self.endpoint.redact(self.endpoint.model)

    async def counters(self) -> Counters:
        return await read_counters(self.endpoint, self.seen.root)

    async def ask(self, question: Question, params: SamplingParams) -> Reply:
        """Raises RemoteError."""
        return await ask(self.client, self.endpoint, question, params, PATIENCE)


async def a_few_at_once(jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """The results of these jobs, of which NUM_AT_ONCE run at a time. Raises what they raise."""
    turn = asyncio.Semaphore(NUM_AT_ONCE)

    async def one(job: Callable[[], Awaitable[T]]) -> T:
        async with turn:
            return await job()

    return await asyncio.gather(*map(one, jobs))


@dataclass
class Pair:
    """servers: the plain one and the speculative one; one alone may be either.
    prompts, params, thorough: see `check_servers`.
    races: of a few prompts, once they were raced."""

    servers: Sequence[Server]
    prompts: Sequence[Question]
    params: SamplingParams
    progress: Progress
    thorough: bool = False
    races: list[Row] = field(default_factory=list)

    @property
    def questions(self) -> list[Question]:
        """The first prompts, and one whose text repeats itself."""
        return [*self.prompts[:MAX_PROMPTS], CHAT if self.chat else SAID]

    @property
    def chat(self) -> bool:
        """Whether the prompts are messages."""
        return bool(self.prompts[0].messages)

    @property
    def secrets(self) -> frozenset[str]:
        """What no finding may contain."""
        return frozenset[str]().union(*(server.endpoint.secrets for server in self.servers))

    @property
    def plain(self) -> Server:
        return self.servers[0]

    @property
    def drafting(self) -> Server:
        """The server that is meant to speculate."""
        return self.servers[-1]

    @property
    def is_alone(self) -> bool:
        return len(self.servers) == 1

    async def answer(self) -> None:
        """Ask every server all questions at temperature 0, twice, one at a time. Raises RemoteError."""
        params = replace(self.params, temperature=0.0, max_new_tokens=min(self.params.max_new_tokens, MAX_TOKENS))
        num_done = count(1)

        async def rounds(server: Server) -> None:
            answers: tuple[list[Reply], list[Reply]] = [], []
            server.before = await server.counters()
            for number, replies in enumerate(answers):
                for question in self.questions:
                    replies.append(await server.ask(question, params))
                    share = next(num_done) / (2 * len(self.servers) * len(self.questions))
                    self.progress("answering at temperature 0", share)
                if not number:
                    server.after = await server.counters()
            server.answers = answers

        await asyncio.gather(*map(rounds, self.servers))


def written(reply: Reply) -> tuple[int, ...] | str:
    """What an answer has that can be compared: its token ids or, if they are unknown, its text."""
    return reply.token_ids or reply.text


def symbols(replies: Sequence[Sequence[Reply]]) -> list[list[tuple[int | str, ...]]]:
    """Lists of answers as token ids, or as characters if any of them does not name its tokens."""
    ids = [[reply.token_ids for reply in answers] for answers in replies]
    if all(tokens is not None for answers in ids for tokens in answers):
        return ids  # type: ignore[return-value]
    return [[tuple(reply.text) for reply in answers] for answers in replies]
