"""The stream by which a tab gets what it runs. The route: what is refused, how a run ends, and that nothing goes on for
nobody. The page's program, without a browser: events out of pieces, and which race is on the screen."""

import json
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette

from app.jobs.logs import BUG
from app.jobs.races import GRACE_S
from app.page.stream import Asked, routes
from engine.core.errors import RaceError, UsageError
from tests.helpers.altered import JSON_VALUES as ODD
from tests.helpers.pageserver import LONG, ORDER
from tests.helpers.staged import in_loop

MODULES = ("base/events.js", "board/place.js")
TAB = "tab-0123456789"
stopped: list[str] = []


async def run(asked: Asked) -> Any:
    """A run whose order says how it goes: `frames`, then an error."""
    if asked.order.get("refused"):
        raise UsageError("not this one")
    return events(asked)


async def events(asked: Asked) -> AsyncIterator[tuple[str, str]]:
    for frame in asked.order.get("frames", ()):
        yield "", json.dumps(frame)
    if "error" in asked.order:
        raise RaceError("it broke") if asked.order["error"] == "own" else KeyError("a secret")
    yield "model", json.dumps(asked.settings)


async def post(path: str, body: Any) -> httpx.Response:
    app = Starlette(routes=routes({"race": run}, {"race": stopped.append}))
    transport = httpx.ASGITransport(app, client=("192.0.2.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
        return await client.post(path, content=json.dumps(body).encode())


FIELDS = {"tab": ODD | st.just(TAB), "run": ODD | st.just("race"), "settings": ODD, "order": ODD}


@given(st.fixed_dictionaries({}, optional=FIELDS) | ODD, st.sampled_from(["/stream", "/stop"]))
@in_loop
async def test_whatever_comes_is_answered(body, path) -> None:
    """A sentence for what is no request, a run for all others, and never an error of the server."""
    answer = await post(path, body)
    is_good = isinstance(body, dict) and body.get("tab") == TAB and body.get("run") == "race"
    assert answer.status_code == 200 if is_good else 400 if is_good is False else True
    if answer.status_code == 400:
        assert len(answer.json()["detail"].split()) > 3


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ({"frames": [{"a": "\n\n"}, {"b": 1}]}, 'data: {"a": "\\n\\n"}|data: {"b": 1}|event: model\ndata: {"k": 7}|'),
        ({"frames": [{"a": 1}], "error": "own"}, 'data: {"a": 1}|event: refused\ndata: "it broke"|'),
        ({"refused": True}, 'event: refused\ndata: "not this one"|'),
        ({"error": "fault"}, f'event: refused\ndata: "{BUG.format("this")}"|'),
    ],
)
@in_loop
async def test_how_a_run_is_written(order, text, caplog) -> None:
    """A frame cut in two, or a run that breaks off in silence; a fault whose words reach the visitor, or nobody."""
    answer = await post("/stream", {"tab": TAB, "run": "race", "settings": {"k": 7}, "order": order})
    assert answer.text.replace("\n\n", "|") == text and answer.headers["content-type"].startswith("text/event-stream")
    assert ("a secret" in caplog.text) == (order.get("error") == "fault")
    kept = answer.headers["x-accel-buffering"], answer.headers["cache-control"]
    assert kept == ("no", "no-cache, no-transform"), "behind a proxy that collects answers a race is one picture"


def test_a_tab_that_is_closed_ends_its_run(server) -> None:
    """Starlette leaves the generator to the garbage collector: a race, or a study, would go on for nobody."""
    for run, order in (("race", {}), ("study", {"name": "a", "text": "la\nfa", "limit": 2, "max_new_tokens": 900})):
        tab = server.visitor("leaves")
        frames = tab.frames(run, {**ORDER, **LONG}, **order)
        while next(frames)["state"] not in ("running", "racing"):
            pass
        frames.close()
        tab.client.close()
        left, other = time.monotonic(), server.visitor("next")
        assert other.race(max_new_tokens=8)[-1]["state"] == "finished"
        assert time.monotonic() - left < GRACE_S + 6, run


# ---- the page's program

READ = """(pieces) => { const heard = [], take = eventReader((...event) => heard.push(event));
    pieces.forEach(take); return heard; }"""


def test_events_come_whole_out_of_any_pieces(pure: Any) -> None:
    """A frame that is cut at a line's end, twice heard, or taken for what follows; a comment that ends the stream."""
    events = [
        ["", json.dumps({"text": "a: b\n\ndata: c"})],
        ["model", json.dumps("<p>é 🏁</p>")],
        ["", "1"],
        ["refused", '"x"'],
    ]
    written = ":\n\n".join(f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n" for name, data in events)
    rng = random.Random(5)
    for _ in range(200):
        cuts = sorted(rng.choices(range(len(written) + 1), k=rng.randrange(1, 40)))
        pieces = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True)]
        assert pure(READ, pieces) == events
    assert pure(READ, [*written]) == events
    assert pure(READ, [written[:-1]]) == events[:-1], "the last one was cut off"


SCREEN: dict[str, Any] = {"id": "a", "seq": 4, "waiting": None, "isFirst": False, "isLinked": False}
QUEUED = {"race": "q", "seq": 2}
RECORDED = {"race": "r", "seq": 0, "state": "finished", "ribbon": "RECORDED"}


@pytest.mark.parametrize(
    ("frame", "screen", "place"),
    [
        ({"race": "a", "seq": 5, "state": "running"}, {}, "on"),
        ({"race": "a", "seq": 4, "state": "running"}, {}, "none"),
        ({"race": "a", "seq": 3, "state": "finished"}, {}, "none"),
        ({"race": "a", "seq": 0, "state": "running"}, {}, "anew"),  # the connection broke, and all of it comes again
        ({"race": "a", "seq": 0, "state": "finished"}, {"seq": 0}, "none"),
        ({"race": "b", "seq": 0, "state": "preparing"}, {}, "anew"),
        ({"race": "b", "seq": 7, "state": "finished"}, {"id": "file:x", "seq": -1}, "anew"),
        ({"race": "q", "seq": 0, "state": "waiting"}, {}, "card"),
        ({"race": "q", "seq": 3, "state": "waiting"}, {"waiting": QUEUED}, "card"),
        ({"race": "q", "seq": 0, "state": "waiting"}, {"waiting": QUEUED}, "card"),
        ({"race": "q", "seq": 2, "state": "waiting"}, {"waiting": QUEUED}, "none"),
        # it never began: the race before stays
        ({"race": "q", "seq": 3, "state": "stopped"}, {"waiting": QUEUED}, "card"),
        *(({"race": "q", "seq": 3, "state": state}, {"waiting": QUEUED}, "anew") for state in ("preparing", "failed")),
        ({"race": "b", "seq": 3, "state": "stopped"}, {"waiting": QUEUED}, "anew"),
        (RECORDED, {"waiting": QUEUED}, "anew"),
        (RECORDED, {"isFirst": True, "isLinked": True}, "link"),
        (RECORDED, {"isFirst": True}, "anew"),
        (RECORDED, {"isLinked": True}, "anew"),
        ({"race": "none", "seq": 0, "state": "idle"}, {"id": None, "seq": -1, "isFirst": True}, "anew"),
    ],
)
def test_where_a_frame_belongs(pure: Any, frame, screen, place) -> None:
    """Frames of another race in the one on the screen; a race shown twice or never; one that waits clears it."""
    assert pure("placeOf", frame, SCREEN | screen) == place
