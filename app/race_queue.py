"""Who has the device: one race at a time, first come, first served, with a limit on what one visitor and one address
may have in the queue. Standard library only."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from engine.errors import UsageError

PER_VISITOR = 3
"""One race running and two waiting."""
PER_ADDRESS = 12
"""A visitor's name is what the client says, the address is not. Four visitors' worth: people behind a router
share it."""
MAX_RACES = 50
REMEMBERED = 5


class RaceQueue:
    """The races that wait, and the first, which has the device until it leaves."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tickets: list[Ticket] = []
        self._durations: deque[float] = deque(maxlen=REMEMBERED)
        self._since = 0.0

    def enter(self, visitor: str, address: str, patient: bool = False) -> Ticket:
        """A place at the end of the queue. patient: it does not count as waiting. Raises UsageError for a visitor or an
        address with too many, or where the queue is too long."""
        with self._lock:
            if sum(ticket.visitor == visitor for ticket in self._tickets) >= PER_VISITOR:
                raise UsageError(
                    f"you already have {PER_VISITOR} races here, one running and {PER_VISITOR - 1} waiting; stop "
                    "one or wait for it to end"
                )
            if sum(ticket.address == address for ticket in self._tickets) >= PER_ADDRESS:
                raise UsageError(f"{PER_ADDRESS} races from your address are here, which is the most; try again later")
            if len(self._tickets) >= MAX_RACES:
                raise UsageError(f"{MAX_RACES} races are waiting for the device, which is the most; try again later")
            ticket = Ticket(self, visitor, address, patient)
            self._tickets.append(ticket)
            if len(self._tickets) == 1:
                self._since = self._clock()
            return ticket

    def _place(self, ticket: Ticket) -> int | None:
        with self._lock:
            return self._tickets.index(ticket) if ticket in self._tickets else None

    def _expected_s(self, ticket: Ticket) -> float | None:
        with self._lock:
            if ticket not in self._tickets or not self._durations:
                return None
            place = self._tickets.index(ticket)
            if place == 0:
                return 0.0
            lasted = self._clock() - self._since
            longer = [duration for duration in self._durations if duration > lasted]
            if not longer:
                return math.inf
            usual = sum(self._durations) / len(self._durations)
            return sum(longer) / len(longer) - lasted + (place - 1) * usual

    def _leave(self, ticket: Ticket) -> None:
        with self._lock:
            if ticket not in self._tickets:
                return
            had_device = self._tickets[0] is ticket
            self._tickets.remove(ticket)
            if had_device:
                now = self._clock()
                self._durations.append((ticket.over_at or now) - self._since)
                self._since = now

    def _is_waited_for(self, ticket: Ticket) -> bool:
        with self._lock:
            return self._tickets[:1] == [ticket] and not all(each.patient for each in self._tickets[1:])


class Ticket:
    """One race's place in the queue."""

    def __init__(self, queue: RaceQueue, visitor: str, address: str, patient: bool = False) -> None:
        self._queue, self.visitor, self.address, self.patient = queue, visitor, address, patient
        self.over_at: float | None = None

    @property
    def place(self) -> int | None:
        """How many races are before this one: 0 has the device; None has left."""
        return self._queue._place(self)

    @property
    def expected_s(self) -> float | None:
        """Seconds until this one should have the device, from how long the last races took; None before the first has
        ended, infinite where the running one takes longer than any of them."""
        return self._queue._expected_s(self)

    @property
    def is_waited_for(self) -> bool:
        """Whether this one has the device and another, not a patient one, waits for it."""
        return self._queue._is_waited_for(self)

    def race_over(self) -> None:
        """From now on the device is kept only until somebody waits for it: this time is no part of how long races
        last."""
        self.over_at = self._queue._clock()

    def leave(self) -> None:
        """Give the place up, or the device free. May be called again."""
        self._queue._leave(self)
