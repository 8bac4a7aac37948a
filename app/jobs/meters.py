"""What an operator learns about races and studies: metrics in Prometheus' format, and a line in the log for each race.

Everything is counted when a race is over, or when the metrics are read: nothing between two steps. Labels have few
values; what a visitor types is never one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from engine.analysis.metrics import lane_metrics
from engine.core.errors import UsageError
from engine.core.events import Failed
from engine.core.spec import SERVER, SPECULATIVE

from ..catalogue.catalogue import Catalogue
from ..catalogue.request import RaceRequest
from .logs import RUNNING
from .queue import RaceQueue
from .races import Over

SECONDS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
RATES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SHARES = tuple(i / 10 for i in range(1, 11))
LENGTHS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 16)  # buckets of the histograms


class Meters:
    """The metrics of one page. Races, their waits and seconds are labelled with the id of their pair, lanes with their
    role, drafts with the kind of drafter: `hybrid`, never `hybrid:ngram+eagle3`."""

    def __init__(self, queue: RaceQueue) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def histogram(name: str, what: str, label: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"photofinish_{name}", what, [label], buckets=buckets, registry=registry)

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"photofinish_{name}", what, labels, registry=registry)

        def gauge(name: str, what: str, value: Callable[[], float]) -> None:
            Gauge(f"photofinish_{name}", what, registry=registry).set_function(value)

        gauge("queue_length", "Races and studies that wait for the device.", lambda: queue.num_waiting)
        gauge("device_busy", "1 if a race or a study has the device, else 0.", lambda: not queue.is_empty)
        gauge("device_stalled", "1 if a race hangs and the page must be restarted, else 0.", lambda: queue.is_stalled)
        self._races = counter("races", "Races, by outcome: finished, stopped, failed or refused.", "outcome", "pair")
        self._studies = counter("studies", "Studies, check-ups and studies under load, by outcome.", "kind", "outcome")
        self._failures = counter("failures", "Failed races, lanes of finished races, and studies.", "what")
        self._waits = histogram("wait_seconds", "Seconds that a race waited for the device.", "pair", SECONDS)
        self._seconds = histogram("race_seconds", "Seconds that a race had the device.", "pair", SECONDS)
        self._rates = histogram("tokens_per_second", "Tokens a second of a lane, prefill excluded.", "lane", RATES)
        self._shares = histogram("acceptance_rate", "Share of a lane's draft tokens kept.", "drafter", SHARES)
        self._lengths = histogram("tokens_per_step", "Tokens a step of a drafting lane.", "drafter", LENGTHS)

    def text(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self._registry)

    @contextmanager
    def refusals(self, pair_id: object, catalogue: Catalogue) -> Iterator[None]:
        """Count a request for a race that is refused inside. pair_id: what was sent; the label is empty if it is not on
        offer."""
        try:
            yield
        except UsageError:
            offered = (pair.id for pair in catalogue.runnable)
            self._races.labels("refused", next((each for each in offered if each == pair_id), "")).inc()
            raise

    def study_over(self, kind: str, state: str) -> None:
        """Count a study of a kind that ended in a state of `frames.ENDED`."""
        self._studies.labels(kind, state).inc()
        if state == "failed":
            self._failures.labels("study").inc()

    def race_over(self, over: Over) -> None:
        """Count a race that has ended, and log it."""
        pair, state = over.request.pair.id, over.view.state
        self._races.labels(state, pair).inc()
        self._waits.labels(pair).observe(over.waited_s)
        if over.lasted_s is not None:
            self._seconds.labels(pair).observe(over.lasted_s)
        num_failed = sum(isinstance(event.event, Failed) for event in over.view.events)
        self._failures.labels("lane").inc(num_failed)
        if state == "failed":
            self._failures.labels("race").inc()
        num_tokens = sum(self._count_lanes(over)) if over.view.spec else 0
        drafters = drafters_of(over.request)
        lasted_s = None if over.lasted_s is None else round(over.lasted_s, 3)
        race = {
            "id": hashlib.sha256(over.view.race.encode()).hexdigest()[:8],  # whoever knows its own id can read it
            "pair": pair,
            "drafters": drafters,
            "state": state,
            "waited_s": round(over.waited_s, 3),
            "lasted_s": lasted_s,
            "num_tokens": num_tokens,
        }
        took = "never began" if lasted_s is None else f"took {lasted_s:.1f} s, {num_tokens} tokens"
        words = race["id"], state, pair, ", ".join(drafters), over.waited_s, took
        RUNNING.info("race %s %s: %s, %s; waited %.1f s, %s", *words, extra={"race": race})

    def _count_lanes(self, over: Over) -> list[int]:
        """Count every lane; the tokens of each."""
        assert over.view.spec is not None
        found = []
        for lane in over.view.spec.lanes:
            numbers = lane_metrics(over.view.events, lane.name)
            found.append(numbers.num_tokens)
            if numbers.tokens_per_s is not None:
                self._rates.labels(lane.role).observe(numbers.tokens_per_s)
            if numbers.acceptance_rate is not None and numbers.mean_acceptance_length is not None:
                self._shares.labels(kind_of(lane.drafter)).observe(numbers.acceptance_rate)
                self._lengths.labels(kind_of(lane.drafter)).observe(numbers.mean_acceptance_length)
        return found


def kind_of(drafter: str) -> str:
    """The name of a drafter without its argument."""
    return drafter.partition(":")[0]


def drafters_of(request: RaceRequest) -> list[str]:
    """The kinds of the drafters of a race."""
    if request.pair.lanes is not None:
        return [SERVER]
    return sorted({kind_of(lane.drafter) for lane in request.spec.lanes if lane.role == SPECULATIVE})
