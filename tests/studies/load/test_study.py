"""The command `study` against loopback servers of known schedule."""

import asyncio
import gc
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.cli.main import main
from engine.core.spec import SamplingParams
from engine.remote.endpoint import endpoint_of
from engine.studies.load.users import ask_all
from tests.helpers import ROOT
from tests.helpers.loopback import WORDS, as_chat, says, servers, sse, stream_of
from tests.helpers.schedule import FIRST_S, INTERVAL_S, TOKENS, Scheduled, serving

KEY = "sk-secret-of-the-test"


def arguments(folder: Path, urls: dict[str, str], num: int, *more: str) -> list[str]:
    data = folder / "prompts.txt"
    data.write_text("\n".join(f"question {index}." for index in range(num)))
    lanes = [part for name, url in urls.items() for part in ("--lane", f"{name}=openai:{url}")]
    return ["study", *lanes, "--model", "m", "--data", str(data), "--json", "--timeout", "5", *more]


def study(folder: Path, urls: dict[str, str], num: int, *more: str) -> int:
    return main(arguments(folder, urls, num, *more))


def test_a_known_schedule_is_measured(tmp_path, capfd) -> None:
    """A metric by another definition than documented, on servers that keep connections open and that do not."""
    latency = FIRST_S + (TOKENS - 1) * INTERVAL_S
    with serving(Scheduled(pace=1, keep=True)) as one, serving(Scheduled(pace=1, keep=False)) as two:
        more = ("--concurrency", "1,2", "--requests", "2")
        assert study(tmp_path, {"a": one, "b": two}, 6, *more) == 0
    levels = json.loads(capfd.readouterr().out)["levels"]
    assert [level["num_output_tokens"] for level in levels] == [2 * TOKENS] * 4
    truth = {"ttft_p95_s": FIRST_S, "itl_p95_s": INTERVAL_S, "latency_median_s": latency}
    truth["tpot_p95_s"] = latency / TOKENS
    for level in levels:
        rate = level["concurrency"] * TOKENS / latency
        for name, true in {**truth, "output_tokens_per_s": rate, "total_tokens_per_s": 2 * rate}.items():
            assert level[name] == pytest.approx(true, rel=0.3), name


def test_lanes_get_the_same_prompts_once_and_no_secret_is_printed(tmp_path, capfd, monkeypatch) -> None:
    """Lanes would get other prompts, a cache would answer for a second use, or a key or URL be printed."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    first, second = Scheduled(), Scheduled()
    with serving(first) as one, serving(second) as two:
        more = ("--concurrency", "1,4", "--requests", "6", "--temperature", "1")
        assert study(tmp_path, {"baseline": one, "plain": two}, 14, *more) == 0
    said = "".join(capfd.readouterr())
    assert KEY not in said and "127.0.0.1" not in said
    prompts = [[(body["prompt"], body["seed"]) for body in server.asked] for server in (first, second)]
    assert prompts[0][:8] == prompts[1][:8] and sorted(prompts[0]) == sorted(prompts[1])
    assert len({prompt for prompt, _ in prompts[0]}) == len(prompts[0]) == 14
    assert prompts[0][:3] == [("question 12.", 0), ("question 13.", 1), ("question 0.", 0)]


def test_answers_to_the_same_question_are_compared_and_lanes_take_turns(tmp_path, capfd) -> None:
    """A drafter that changes texts would pass for a faster one, or answers to two questions be held against each
    other; or servers on one device slow each other."""
    more = ("--concurrency", "1,3", "--requests", "4")
    first, second = Scheduled(0.02, bad="question 5."), Scheduled(other=("question 1.", "question 5."))
    with serving(first) as one, serving(second) as two:
        assert study(tmp_path, {"a": one, "b": two}, 10, *more) == 0
        report = json.loads(capfd.readouterr().out)
        counts = [(row["lane"], row["num_same_text"], row["num_compared"]) for row in report["levels"]]
        assert counts == [("a", None, None), ("b", 3, 4), ("a", None, None), ("b", 3, 3)]
        assert [row["other_prompts"] for row in report["levels"] if row["lane"] == "b"] == [[2], []]
        assert "Same text: 3 of 4 with 1 user, 3 of 3 with 3." in report["says"]
    assert first.spans[5][1] < second.spans[2][0] and second.spans[5][1] < first.spans[6][0]


@pytest.mark.parametrize("other", ["musing", "reasoning"])
def test_texts_that_nobody_could_read_are_said_and_never_the_same(tmp_path, capfd, other) -> None:
    """Text in an unknown field on both servers would be "the same text"; or a text and none would not count as two."""
    streams = (as_chat(stream_of([1] * 20, WORDS * 2, ids=False), name) for name in ("musing", other))
    one, two = (says([sse(event) for event in events], 0.001) for events in streams)
    with servers(one, two) as hosts:
        urls = {name: host.url for name, host in zip("ab", hosts, strict=True)}
        more = ("--concurrency", "1", "--requests", "2", "--chat", "--max-new-tokens", "20")
        assert study(tmp_path, urls, 4, *more) == 0
    result = json.loads(capfd.readouterr().out)
    a, b = result["levels"]
    silent = other == "musing"
    assert (a["num_textless"], b["num_textless"]) == (2, 2 * silent) and (b["ttft_p95_s"] is None) == silent
    assert (b["num_compared"], b["num_same_text"]) == ((None, None) if silent else (2, 0))
    said = " ".join(result["says"])
    assert "2 of 2 answers of a with 1 user count tokens, but no text came" in said and ("of b" in said) == silent


def test_a_failed_request_is_counted_and_not_asked_again(tmp_path, capfd) -> None:
    """Errors would be dropped from the level, or hidden by asking again."""
    server = Scheduled(bad="question 1.")
    with serving(server) as url:
        assert study(tmp_path, {"a": url}, 6, "--concurrency", "4", "--requests", "4") == 0
    level = json.loads(capfd.readouterr().out)["levels"][0]
    assert (level["num_requests"], level["num_errors"], level["num_output_tokens"]) == (4, 1, 3 * TOKENS)
    assert level["errors"] == {"status": 1} and "answered 500" in level["fault"]
    assert sum(body["prompt"] == "question 1." for body in server.asked) == 1


def test_a_connection_that_was_closed_meanwhile_is_no_failed_request(tmp_path, capfd) -> None:
    """llama.cpp's server closes connections when they are used again: one request in twenty would count as failed."""
    server = Scheduled()
    server.stale = True
    with serving(server) as url:
        assert study(tmp_path, {"a": url}, 22, "--concurrency", "2", "--requests", "20") == 0
    level = json.loads(capfd.readouterr().out)["levels"][0]
    assert level["num_errors"] == 0 and level["num_output_tokens"] == 20 * TOKENS
    assert server.num_connections > 20 and len({body["prompt"] for body in server.asked}) == len(server.asked) == 22


def test_a_server_that_is_not_there_is_said_at_once(tmp_path, capfd) -> None:
    """A study of a dead server would hang, or print its URL."""
    assert study(tmp_path, {"a": "http://127.0.0.1:9/v1"}, 6, "--concurrency", "1", "--requests", "4") == 1
    out, err = capfd.readouterr()
    assert "lane a cannot be reached" in err and "127.0.0.1" not in out + err


@pytest.mark.parametrize("program", ["llamacpp", "vllm"])
def test_a_servers_own_counters_are_taken_where_its_answers_say_nothing(tmp_path, capfd, program) -> None:
    """Tokens a step would be unknown for most servers, the warm-up's be among a level's, or those of other users be
    called this one's: a piece of vLLM's answers holds a whole step."""
    server = Scheduled()
    server.counters = program
    with serving(server) as url:
        assert study(tmp_path, {"a": url}, 10, "--concurrency", "1,3", "--requests", "4") == 0
    result = json.loads(capfd.readouterr().out)
    for level in result["levels"]:
        right = (pytest.approx(1 + 3 / 2), "server") if program == "llamacpp" else (None, None)
        assert (level["mean_acceptance_length"], level["acceptance_from"]) == right
    assert ("2.50 tokens a step, but a piece of its answers has 1.00" in str(result["says"])) == (program == "vllm")


def test_a_server_that_dies_leaves_the_other_lane_alone(tmp_path, capfd) -> None:
    """A killed server would hang the study, or take the other lane with it."""
    more = ("--concurrency", "1,2,4", "--requests", "4")
    with serving(Scheduled()) as one, serving(Scheduled(most=2 + 4 + 2)) as two:
        began = time.monotonic()
        assert study(tmp_path, {"a": one, "b": two}, 14, *more) == 1
        assert time.monotonic() - began < 10
    out, err = capfd.readouterr()
    levels = {(level["lane"], level["concurrency"]): level for level in json.loads(out)["levels"]}
    assert [levels["a", num]["num_errors"] for num in (1, 2, 4)] == [0, 0, 0]
    assert levels["b", 1]["num_errors"] == 0 and levels["b", 4]["errors"] == {"connect": 4}
    assert 1 <= levels["b", 2]["num_errors"] <= 2
    assert "with 4 users no request was answered: the server of lane b cannot be reached" in err


def test_what_was_measured_before_an_interruption_is_printed(tmp_path) -> None:
    """Hours of work would be lost by Ctrl-C."""
    server = Scheduled(pace=0.1)
    with serving(server) as url:
        words = arguments(tmp_path, {"a": url}, 10, "--concurrency", "1,2", "--requests", "4")
        running = subprocess.Popen([sys.executable, "-m", "engine", *words], cwd=ROOT, stdout=subprocess.PIPE)
        ends = time.monotonic() + 30
        while len(server.asked) < 2 + 4 + 2 and time.monotonic() < ends:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=10)
    assert running.returncode == 130
    assert [level["concurrency"] for level in json.loads(out)["levels"]] == [1]


@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_study_under_load_leaves_the_collector_as_it_was(is_frozen):
    """Each later full collection would stop the page's races for 0.2 s, or the process never free anything again."""
    gc.unfreeze()
    try:
        if is_frozen:
            gc.freeze()
        asyncio.run(ask_all(endpoint_of("a", "openai:http://127.0.0.1:9/v1", "m", {}), [], 1, SamplingParams(), 1.0))
        assert bool(gc.get_freeze_count()) == is_frozen
    finally:
        gc.unfreeze()
