"""Who has the device: one race at a time, first come, first served, with a limit on what one visitor and one address
may have in the line. Standard library only."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from engine.errors import UsageError

PER_VISITOR = 3
"""One race running and two waiting."""
PER_ADDRESS = 12
"""A visitor's name is what the client says, the address is not. Four visitors' worth: people behind a router share it."""
MAX_LINE = 50
REMEMBERED = 5


class Turns:
    """The line of races. The head of the line has the device until it leaves."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._line: list[Ticket] = []
        self._durations: deque[float] = deque(maxlen=REMEMBERED)
        self._since = 0.0

    def enter(self, visitor: str, address: str) -> Ticket:
        """A place at the end of the line. Raises UsageError for a visitor or an address with too many, or where the
        line is too long."""
        with self._lock:
            if sum(ticket.visitor == visitor for ticket in self._line) >= PER_VISITOR:
                raise UsageError(f"you already have {PER_VISITOR} races here, one running and {PER_VISITOR - 1} waiting; stop one or wait for it to end")
            if sum(ticket.address == address for ticket in self._line) >= PER_ADDRESS:
                raise UsageError(f"{PER_ADDRESS} races from your address are here, which is the most; try again later")
            if len(self._line) >= MAX_LINE:
                raise UsageError(f"{MAX_LINE} races are waiting for the device, which is the most; try again later")
            ticket = Ticket(self, visitor, address)
            self._line.append(ticket)
            if len(self._line) == 1:
                self._since = self._clock()
            return ticket

    def _place(self, ticket: Ticket) -> int | None:
        with self._lock:
            return self._line.index(ticket) if ticket in self._line else None

    def _expected_s(self, ticket: Ticket) -> float | None:
        with self._lock:
            if ticket not in self._line or not self._durations:
                return None
            usual = sum(self._durations) / len(self._durations)
            running = max(0.0, usual - (self._clock() - self._since))
            place = self._line.index(ticket)
            return running + (place - 1) * usual if place else 0.0

    def _leave(self, ticket: Ticket) -> None:
        with self._lock:
            if ticket not in self._line:
                return
            had_device = self._line[0] is ticket
            self._line.remove(ticket)
            if had_device:
                now = self._clock()
                self._durations.append(now - self._since)
                self._since = now


class Ticket:
    """One race's place in the line."""

    def __init__(self, turns: Turns, visitor: str, address: str) -> None:
        self._turns, self.visitor, self.address = turns, visitor, address

    @property
    def place(self) -> int | None:
        """How many races are before this one: 0 has the device; None has left."""
        return self._turns._place(self)

    @property
    def expected_s(self) -> float | None:
        """Seconds until this one should have the device, from how long the last races took; None before the first has ended."""
        return self._turns._expected_s(self)

    def leave(self) -> None:
        """Give the place up, or the device free. May be called again."""
        self._turns._leave(self)
