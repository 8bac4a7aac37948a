"""What servers do wrong in the middle of a study."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

import pytest

from engine.cli.main import main
from engine.under_load.data import WARM_UP
from tests.helpers.loopback import Answer, Body, says, servers
from tests.helpers.server_faults import GOOD, SAID, TEXT

TIMEOUT_S, NUM = 1.5, 3
NO_FAULT = {"counts go back", "no counts", "its own reason"}
"""What makes a race impossible and is nothing to a study, which counts by usage alone."""
CASES = [case for case in SAID if case[0] not in NO_FAULT]


def after_warm_up(bad: Answer) -> Answer:
    """Good answers to the questions that warm up, then bad ones. A study asks for as many tokens each time."""
    good, num_asked = says([GOOD]), 0

    async def answer(path: str, body: Body) -> AsyncIterator[bytes]:
        nonlocal num_asked
        num_asked += 1
        async for part in (good if num_asked <= WARM_UP else bad)(path, body):
            yield part

    return answer


@pytest.mark.parametrize("bad, words", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_fault_is_counted_in_its_lane_and_leaves_the_other_alone(tmp_path, capfd, bad, words) -> None:
    """A server's fault would hang a study, end it for the other server too, or be dropped from its level."""
    (tmp_path / "prompts.txt").write_text("\n".join(f"question {index}." for index in range(NUM + WARM_UP)))
    with servers(says([GOOD]), after_warm_up(bad)) as (first, second):
        began = time.perf_counter()
        lanes = ["--lane", f"a=openai:{first.url}", "--lane", f"b=openai:{second.url}", "--model", "m"]
        asked = ["--concurrency", str(NUM), "--requests", str(NUM), "--max-new-tokens", str(len(TEXT))]
        more = ["--data", str(tmp_path / "prompts.txt"), "--timeout", str(TIMEOUT_S), "--json"]
        assert main(["study", *lanes, *asked, *more]) == 1
        assert time.perf_counter() - began < TIMEOUT_S + 5
    found, err = capfd.readouterr()
    good, faulty = json.loads(found)["levels"]
    assert good["num_errors"] == 0 and good["num_output_tokens"] == NUM * len(TEXT)
    assert (faulty["num_requests"], faulty["num_errors"], faulty["num_output_tokens"]) == (NUM, NUM, 0)
    assert sum(faulty["errors"].values()) == NUM and "lane b" in faulty["fault"]
    if words not in ("was silent for 0.5 s", "did not finish within 1 s"):
        assert words in faulty["fault"] and words in err
    else:
        assert faulty["num_timeouts"] == NUM
    assert not any(faulty[metric] for metric in ("output_tokens_per_s", "ttft_p95_s", "itl_p95_s", "tpot_p95_s"))
    assert len(second.asked) == WARM_UP + NUM
