"""The line for the device: its limits, its order, the expected wait; and the address a request comes from."""

import asyncio
import math
from typing import Any

import fastapi
import gradio as gr
import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.catalogue.limits import PER_ADDRESS, PER_VISITOR
from app.jobs.queue import RaceQueue
from app.page.gate import address_of
from app.page.ui import SPACE_PROXIES
from engine.core.errors import UsageError

MOVES = st.tuples(st.integers(0, 4), st.sampled_from("xxxy"), st.sampled_from([True, True, True, True, False]))


@given(st.lists(MOVES, min_size=30, max_size=60))
def test_the_queue_is_a_line(moves) -> None:
    """Whoever came first goes first, whatever leaves from the middle; a place counts exactly those before it. Made-up
    names from one address would take most of the line, and a script makes up as many as it likes."""
    queue, line = RaceQueue(), []
    for number, address, enters in moves:
        visitor = f"{number} at {address}"
        if enters:
            mine = sum(ticket.visitor == visitor for ticket in line)
            if mine < PER_VISITOR and sum(ticket.address == address for ticket in line) < PER_ADDRESS:
                line.append(queue.enter(visitor, address))
            else:
                with pytest.raises(UsageError):
                    queue.enter(visitor, address)
        elif tickets := [ticket for ticket in line if ticket.visitor == visitor]:
            tickets[0].leave()
            tickets[0].leave()
            line.remove(tickets[0])
            assert tickets[0].place is None
        assert [ticket.place for ticket in line] == list(range(len(line)))


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("198.51.100.1", "", "198.51.100.1"),
        ("198.51.100.1", "203.0.113.7", "198.51.100.1"),
        ("10.16.3.80", "203.0.113.7", "203.0.113.7"),
        ("10.16.3.80", "198.51.100.66, 203.0.113.7, 10.1.2.3", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "", "2001:db8:1:2::"),
        ("::ffff:203.0.113.7", "", "203.0.113.7"),
        ("10.16.3.80", "unknown", "unknown"),
    ],
)
def test_an_address_is_not_made_up(peer, forwarded, address) -> None:
    """Only the Space's proxies are trusted, and only for the header entries that they wrote themselves."""
    seen: list[str] = []

    async def app(scope, receive, send) -> None:
        seen.append(address_of(gr.Request(fastapi.Request(scope))))

    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    scope: Any = {"type": "http", "client": (peer, 5), "headers": headers}
    asyncio.run(ProxyHeadersMiddleware(app, SPACE_PROXIES)(scope, None, None))  # type: ignore[arg-type]
    assert seen == [address]


@pytest.mark.parametrize(
    ("before", "lasted", "expected", "usual"),
    [
        ((), 0.0, None, 0),
        ((10.0,), 4.0, 6.0, 10.0),
        *(((2.0, 8.0), lasted, expected, 5.0) for lasted, expected in ((0.0, 5.0), (3.0, 5.0), (7.0, 1.0))),
        ((2.0, 8.0), 9.0, math.inf, 0),
        ((60.0, 2.0, 2.0, 2.0, 2.0), 2.5, 57.5, 2.0),
    ],
)
def test_the_expected_wait_is_learnt(before: Any, lasted: float, expected: float | None, usual: float) -> None:
    """A wait that comes from no race that ran, or holds the tables of one; "about 1 s" for as long as a race takes that
    is longer than all; or the tenth would read minutes, because the first race waited for the model to load."""
    now = [0.0]
    queue = RaceQueue(lambda: now[0])
    for seconds in before:
        ticket = queue.enter("a", "at a")
        now[0] += seconds
        ticket.race_over()
        now[0] += 4.0  # while its tables are made
        ticket.leave()
    first, second, *_, last = (queue.enter(visitor, f"at {visitor}") for visitor in "abcdefghijk")
    now[0] += lasted
    assert (first.expected_s, second.expected_s) == (None if expected is None else 0.0, expected)
    assert not usual or last.expected_s - second.expected_s == 9 * usual
