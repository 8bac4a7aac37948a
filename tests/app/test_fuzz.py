"""Whatever anybody sends to the page, nothing of the machine comes back, and the next visitor races."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from tests.helpers.fuzz import Fuzzer, calls, rss_mb

NUM_CALLS = 120
RACED = ("/stream", "/gradio_api/queue/data", "/gradio_api/call")
MAX_GROWTH_MB = 60  # 0.3 MB a call, as of answers that nobody reads, would be more


def test_no_call_breaks_the_page_or_learns_anything(server: Any) -> None:
    """A traceback, a path or a key would reach a stranger; a wrong value would be a fault of the page, or fill its disk
    or memory; or the queue would be dead."""
    server.visitor("before-the-fuzz").race()
    log = server.log.stat().st_size
    with closing(Fuzzer(server)) as fuzzer:
        drawn = calls(fuzzer.config)

        def send(num_calls: int) -> None:
            limits = settings(
                max_examples=num_calls, database=None, phases=[Phase.generate], suppress_health_check=HealthCheck
            )
            limits(given(drawn)(lambda call: fuzzer.send(call)))()

        send(NUM_CALLS // 2)  # loads what is loaded once
        fuzzer.statuses.clear()
        before_mb = rss_mb(server)
        send(NUM_CALLS)
        assert fuzzer.problems == []
        assert fuzzer.statuses[200] > NUM_CALLS / 4, fuzzer.statuses
        assert all(fuzzer.races[path] for path in RACED) and fuzzer.races.total() > NUM_CALLS / 10, fuzzer.races
        lines = server.log.read_bytes()[log:].decode().splitlines()
        assert [line for line in lines if " INFO race " not in line] == []
        assert rss_mb(server) - before_mb < MAX_GROWTH_MB
    assert server.visitor("after-the-fuzz").race()[-1]["state"] == "finished"
