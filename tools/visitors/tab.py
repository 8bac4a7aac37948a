"""A tab without a browser: what the page's own program sends, and what it reads."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import httpx

from tests.helpers.pageserver import text_of

ENDED = ("finished", "stopped", "failed")
PLACE = re.compile(r"(\d+) races? ahead of you")
TOO_OFTEN = (400, 429)  # statuses of a refusal by the limits


class Gone(Exception):
    """The page does not answer."""


class Refused(Exception):
    """What the page said instead."""


@dataclass
class Race:
    """A race as its visitor saw it, in seconds of time.time().

    asked, queued, begun, over: when it was asked for, first seen waiting, first seen with the device, and over.
    said: (when, place, seconds) of what was announced while it waited, about every second.
    outcome: finished, stopped, abandoned, refused or lost; `why` in words. left: when an abandoned one was left."""

    asked: float = field(default_factory=time.time)
    queued: float | None = None
    begun: float | None = None
    over: float | None = None
    left: float | None = None
    said: list[tuple[float, int, float | None]] = field(default_factory=list)
    outcome: str = ""
    why: str = ""
    id: str = ""
    state: str = ""

    @property
    def logged(self) -> str:
        """Its name in the log of the page."""
        return sha256(self.id.encode()).hexdigest()[:8]

    def see(self, frame: dict[str, Any]) -> None:
        """One more frame."""
        now, self.id, self.state = time.time(), frame["race"], frame["state"]
        self.queued = self.queued or now
        if self.state == "waiting":
            place = int(PLACE.match(frame["status"]["text"])[1])  # type: ignore[index]
            if not self.said or self.said[-1][1] != place or now - self.said[-1][0] >= 1:
                self.said.append((now, place, frame["status"]["left_s"]))
        elif self.state not in ENDED or frame["header"]:
            self.begun = self.begun or now
        if self.state in ENDED:
            self.over, self.outcome, self.why = now, self.state, frame["status"]["text"]
            if self.state == "failed":
                self.outcome = "lost"

    def end(self, outcome: str, why: str = "") -> None:
        """It ends without a frame that says so. A race that is over stays as it is."""
        if not self.outcome:
            self.outcome, self.why, self.over = outcome, why, time.time()


@dataclass
class Seen:
    """What all visitors have seen: races; turns: when prompts of studies had the device; problems: error pages, and
    refusals without a sentence; did: how often each habit was followed."""

    races: list[Race] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    studies: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)


class Tab:
    """A session of the page."""

    def __init__(self, client: httpx.AsyncClient, session: str, seen: Seen):
        self._client, self.session, self._seen = client, session, seen
        self.functions: dict[str, int] = {}
        self.pair = ""

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """A request and its answer, which is noted if it is an error page."""
        try:
            answer = await self._client.request(method, path, **more)
        except httpx.HTTPError as error:
            self._seen.problems.append(f"{method} {path}: {type(error).__name__}")
            raise Gone from error
        self._seen.statuses[answer.status_code] += 1
        if answer.status_code >= 500 or (answer.status_code >= 400 and answer.status_code not in TOO_OFTEN):
            self._seen.problems.append(f"{method} {path}: status {answer.status_code}: {answer.text[:200]}")
        return answer

    async def open(self) -> None:
        """Load the page and what it loads."""
        found = (await self.ask("GET", "/")).text
        for asset in ("theme.css", *re.findall(r'"\./(assets/[\w.-]+)"', found)[:4]):
            await self.ask("GET", f"/{asset}")
        config = (await self.ask("GET", "/config")).json()
        self.functions = {
            dependency["api_name"]: dependency["id"] for dependency in config["dependencies"] if dependency["api_name"]
        }
        shown = {component["props"].get("label"): component["props"].get("value") for component in config["components"]}
        self.pair = shown["Model"]

    async def join(self, name: str, *data: Any, event: Any = None) -> str:
        """Put a call into the page's queue; the id of its messages. Raises Refused."""
        body = {"data": data, "fn_index": self.functions[name], "session_hash": self.session, "trigger_id": None}
        if event is not None:
            body["event_data"] = event
        answer = await self.ask("POST", "/gradio_api/queue/join", json=body)
        if answer.status_code != 200:
            raise Refused(answer.json()["detail"])
        return str(answer.json()["event_id"])

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """What the page says to this tab, until it has said everything. Closing this generator is closing the tab."""
        query = {"session_hash": self.session}
        async with self._client.stream("GET", "/gradio_api/queue/data", params=query) as stream:
            self._seen.statuses[stream.status_code] += 1
            async for line in stream.aiter_lines():
                if line.startswith("data:"):
                    message = json.loads(line[5:])
                    if message["msg"] == "close_stream":
                        return
                    yield message

    async def values(self, name: str, *data: Any, event: Any = None) -> AsyncIterator[str]:
        """The values of a call through the queue, to its end. Raises Refused."""
        number = await self.join(name, *data, event=event)
        async with aclosing(self.messages()) as messages:
            async for message in messages:
                if message.get("event_id") == number:
                    for value in values_of(message):
                        yield value

    async def call(self, name: str, *data: Any, event: Any = None) -> None:
        """The same for whom the values are nothing."""
        async for _ in self.values(name, *data, event=event):
            pass

    async def follow(self, races: dict[str, Race]) -> AsyncIterator[Race]:
        """Read the frames of races, by the ids of their calls; yields the race after each. A race without an end is
        lost."""
        try:
            async with aclosing(self.messages()) as messages:
                async for message in messages:
                    race = races.get(message.get("event_id", ""))
                    if race is not None:
                        try:
                            for text in values_of(message):
                                race.see(json.loads(text))
                        except Refused as refused:
                            race.end("lost" if race.queued else "refused", str(refused))
                        yield race
        except httpx.HTTPError as error:
            self._seen.problems.append(f"stream: {type(error).__name__}")
        for race in races.values():
            race.end("lost", f"no end after {race.state}")


def values_of(message: dict[str, Any]) -> list[Any]:
    """The first value that a message brings, if any. Raises Refused."""
    output = message.get("output") or {}
    if message["msg"] == "process_completed" and not message["success"]:
        raise Refused(str(output.get("error")))
    if message["msg"] == "process_generating" and output.get("data") and output["data"][0] != []:
        return [text_of(output["data"][0])]
    return []
