"""What the page's program makes of the stream: events out of pieces, and which race is on the screen. Without a
browser."""

import json
import random
from typing import Any

import pytest

from tests.helpers.pure_js import pure_js

READ = """(pieces) => { const heard = [], take = eventReader((...event) => heard.push(event));
    pieces.forEach(take); return heard; }"""


def test_events_come_whole_out_of_any_pieces() -> None:
    """A frame that is cut at a line's end, twice heard, or taken for what follows; a comment that ends the stream."""
    events = [
        ["", json.dumps({"text": "a: b\n\ndata: c"})],
        ["model", json.dumps("<p>é 🏁</p>")],
        ["", "1"],
        ["refused", '"x"'],
    ]
    written = ":\n\n".join(f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n" for name, data in events)
    rng = random.Random(5)
    with pure_js("base/events.js") as pure:
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
def test_where_a_frame_belongs(frame, screen, place) -> None:
    """Frames of another race in the one on the screen; a race shown twice or never; one that waits clears it."""
    with pure_js("board/place.js") as pure:
        assert pure("placeOf", frame, SCREEN | screen) == place
