"""The queue for the device: one race at a time, first come, first served, with limits per visitor and per address.
Standard library only."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from engine.core.errors import UsageError

from ..catalogue.limits import PER_VISITOR, Limits

MAX_RACES = 50
# How many of the last races predict how long the next ones take. With five, 5.5 % of the waits announced to 50 visitors
# were off by more than a factor of two; with twenty, 1.9 %.
REMEMBERED = 20
RESTARTS = "the page is being restarted; race again in a minute"
HANGS = "a race hangs and cannot be ended, so no other can start until the page is restarted; try again later"


class RaceQueue:
    """Races in order of arrival. The first has the device until it leaves.

    limits: how many races an address may have here, and how long each may have the device.
    is_closed: the page ends, and no race starts any more."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, limits: Limits | None = None) -> None:
        self._clock, self._limits = clock, limits or Limits()
        self._lock = threading.Lock()
        self._tickets: list[Ticket] = []
        self._durations: deque[float] = deque(maxlen=REMEMBERED)
        self._since = 0.0
        self.is_closed = False

    @property
    def is_empty(self) -> bool:
        return not self._tickets

    @property
    def num_waiting(self) -> int:
        """How many races wait for the device."""
        return max(0, len(self._tickets) - 1)

    @property
    def is_stalled(self) -> bool:
        """Whether the race that has the device no longer shows signs of life: see `Ticket.sign`."""
        with self._lock:
            return bool(self._tickets) and self._clock() > self._tickets[0].due

    @property
    def why_closed(self) -> str:
        """Why no race can start, in a sentence; "" if races can."""
        return RESTARTS if self.is_closed else HANGS if self.is_stalled else ""

    def enter(self, visitor: str, address: str, patient: bool = False) -> Ticket:
        """Join the end of the queue. patient: does not count as waiting. Raises UsageError if the visitor or the
        address has too many races, if the queue is full, or if no race can start any more."""
        if why := self.why_closed:
            raise UsageError(why)
        most_there = self._limits.races_per_address
        with self._lock:
            if sum(ticket.visitor == visitor for ticket in self._tickets) >= PER_VISITOR:
                raise UsageError(f"you already have {_races(PER_VISITOR)} here, running or waiting; stop one, or wait")
            if sum(ticket.address == address for ticket in self._tickets) >= most_there:
                raise UsageError(
                    f"your address already has {_races(most_there)} in the queue, the limit; try again later"
                )
            if len(self._tickets) >= MAX_RACES:
                raise UsageError(f"the queue is full ({MAX_RACES} races); try again later")
            ticket = Ticket(self, visitor, address, patient)
            self._tickets.append(ticket)
            if len(self._tickets) == 1:
                self._since = self._clock()
            return ticket


class Ticket:
    """A race's place in the queue."""

    def __init__(self, queue: RaceQueue, visitor: str, address: str, patient: bool = False) -> None:
        self._queue, self.visitor, self.address, self.patient = queue, visitor, address, patient
        self.over_at: float | None = None
        self.due = math.inf

    def sign(self, within_s: float) -> None:
        """A sign of life from whoever has the device: the next one follows within this many seconds, or it hangs."""
        self.due = self._queue._clock() + within_s

    @property
    def why_closed(self) -> str:
        """See `RaceQueue.why_closed`."""
        return self._queue.why_closed

    @property
    def place(self) -> int | None:
        """Number of races ahead; 0: it has the device; None: it has left."""
        with self._queue._lock:
            return self._queue._tickets.index(self) if self in self._queue._tickets else None

    @property
    def expected_s(self) -> float | None:
        """Estimated seconds until it gets the device, from the durations of the last races. None before the first race
        has ended, infinite if the running one takes longer than all of them."""
        queue = self._queue
        with queue._lock:
            if self not in queue._tickets or not queue._durations:
                return None
            if (place := queue._tickets.index(self)) == 0:
                return 0.0
            lasted = queue._clock() - queue._since
            longer = [duration for duration in queue._durations if duration > lasted]
            if not longer:
                return math.inf
            ordered = sorted(queue._durations)
            usual = ordered[1:-1] or ordered  # one race may have waited for a model to load
            return sum(longer) / len(longer) - lasted + (place - 1) * sum(usual) / len(usual)

    @property
    def overtime(self) -> str:
        """Why it must give up the device now, in a sentence; "" as long as it need not."""
        queue, most = self._queue, self._queue._limits.race_s
        with queue._lock:
            is_late = queue._tickets[:1] == [self] and self.over_at is None and queue._clock() - queue._since > most
        return f"Ended after {most:g} seconds, the limit on this page." if is_late else ""

    @property
    def is_waited_for(self) -> bool:
        """Whether it has the device while another race, not a patient one, waits."""
        with self._queue._lock:
            tickets = self._queue._tickets
            return tickets[:1] == [self] and not all(ticket.patient for ticket in tickets[1:])

    def race_over(self) -> None:
        """The race has ended, but the place is kept for other work until somebody waits. That time does not count as
        part of the race's duration."""
        self.over_at = self._queue._clock()

    def leave(self) -> None:
        """Give up the place, or the device. May be called more than once."""
        queue = self._queue
        with queue._lock:
            if self not in queue._tickets:
                return
            if queue._tickets[0] is self:
                now = queue._clock()
                queue._durations.append((self.over_at or now) - queue._since)
                queue._since = now
            queue._tickets.remove(self)


def _races(num: int) -> str:
    return "1 race" if num == 1 else f"{num} races"
