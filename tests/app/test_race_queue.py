"""The line for the device: its limits, its order, the expected wait; and the address a request comes from."""

from __future__ import annotations

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


def test_the_expected_wait_is_learnt() -> None:
    """The expected wait must come from races that really ran."""
    now = [0.0]
    queue = RaceQueue(lambda: now[0])
    first, second, third = (queue.enter(visitor, "here") for visitor in "abc")
    assert second.expected_s is None
    now[0] = 10.0
    first.leave()
    assert (second.place, second.expected_s, third.expected_s) == (0, 0.0, 10.0)
    now[0] = 14.0
    assert third.expected_s == 6.0


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


def test_a_race_that_takes_longer_than_usual_is_not_about_to_end() -> None:
    """It would say "about 1 s" for as long as it takes: then nobody knows, and that is said."""
    now = [0.0]
    queue = RaceQueue(lambda: now[0])
    for seconds in (2.0, 8.0):
        ticket = queue.enter("a", "at a")
        now[0] += seconds
        ticket.leave()
    queue.enter("a", "at a")
    second = queue.enter("b", "at b")
    for lasted, expected in ((0.0, 5.0), (3.0, 5.0), (7.0, 1.0), (9.0, math.inf)):
        now[0] = 10.0 + lasted
        assert second.expected_s == expected


def test_one_race_that_took_very_long_is_no_rule() -> None:
    """The first race waits for the model to load: the tenth in the queue would read minutes instead of seconds."""
    now = [0.0]
    queue = RaceQueue(lambda: now[0])
    for seconds in (60.0, 2.0, 2.0, 2.0, 2.0):
        ticket = queue.enter("a", "at a")
        now[0] += seconds
        ticket.leave()
    waiting = [queue.enter(visitor, f"at {visitor}") for visitor in "abcdefghijk"]
    now[0] += 1.9
    ahead = waiting[-1].expected_s - waiting[1].expected_s
    assert ahead == 9 * 2.0
