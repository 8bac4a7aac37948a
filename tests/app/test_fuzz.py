"""Whatever anybody sends to the page, nothing of the machine comes back, and the next visitor races."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.fuzz import fuzzed

NUM_CALLS = 200
"""`python -m tests.helpers.fuzz` makes more, and to pages of other kinds."""
MAX_GROWTH_MB = 60
"""0.3 MB a call, as of answers that nobody reads, would be more."""


@pytest.mark.slow
def test_no_call_breaks_the_page_or_learns_anything(server: Any) -> None:
    """A traceback, a path or a key would reach a stranger; a wrong value would be a fault of the page, or fill its disk
    or memory; or the queue would be dead."""
    server.visitor("before-the-fuzz").race()
    with fuzzed(server) as fuzzer:
        fuzzer.run(NUM_CALLS // 2)  # loads what is loaded once
        report = fuzzer.run(NUM_CALLS)
        assert report.problems == []
        assert report.statuses[200] > report.num_calls / 4 and report.num_read > report.num_calls / 20
        assert report.log_bytes == 0, server.log.read_text()[-report.log_bytes :]
        assert fuzzer.growth_mb() < MAX_GROWTH_MB
    assert server.visitor("after-the-fuzz").race()[-1]["state"] == "finished"
