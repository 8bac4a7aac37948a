"""A race of two servers on loopback: what its recording says is what the servers said."""

import json
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.events import Failed, Finished, Started, Step, steps
from engine.core.spec import SamplingParams
from engine.recordings import recording as recordings
from engine.recordings.steps_csv import steps_csv
from engine.remote import same_text
from engine.remote.client import Patience
from engine.remote.endpoint import Endpoint
from engine.remote.reply import Chunk, Drafted, Reply
from engine.remote.request import Question
from engine.remote.server_race import RemoteRace
from engine.remote.steps import Written
from tests.helpers.loopback import WORDS, Answer, lists, says, servers, sse, stream_of, tokens_of
from tests.helpers.races import events_of

TEXT = list(WORDS) * 3
ACCEPTED = [0, 2, 1, 0, 3, 4, 5, 2, 1, 1]
DRAFTED = [5, 5, 2, 5, 5, 4, 5, 5, 5, 5]
PLAIN = stream_of([1] * len(TEXT), TEXT)
SPECULATIVE = stream_of([1, *(n + 1 for n in ACCEPTED)], TEXT, lists(ACCEPTED, DRAFTED))
PATIENCE = Patience(5.0, 10.0)
MAX = SamplingParams(max_new_tokens=len(TEXT))


def race_of(urls: list[str], **more: Any) -> RemoteRace:
    names = ["baseline", "speculative", "third"]
    endpoints = [Endpoint(name, "a-model", url, f"key-of-{name}") for name, url in zip(names, urls, strict=False)]
    return RemoteRace(endpoints, Question("Once"), MAX, PATIENCE, **more)


def recording_of(*answers: Answer, **more: Any) -> recordings.Recording:
    """The recording of a race of servers that answer so, as it comes back from its file."""
    with servers(*answers) as hosts:
        race = race_of([host.url for host in hosts], **more)
        recording = recordings.build(race.header(), list(race.events()), race.result())
    return recordings.checked(json.dumps(recording.fields).encode())


def steps_in(recording: recordings.Recording, lane: str = "speculative") -> list[Step]:
    return steps(events_of(recording), lane)


def test_a_race_records_what_both_servers_said():
    """Tokens, text, drafts or winner other than said; a file that does not open; events lost for a slow reader."""
    pause_s, live = 0.01, []
    with servers(says([sse(e) for e in PLAIN], pause_s), says([sse(e) for e in SPECULATIVE], pause_s)) as hosts:
        race = race_of([host.url for host in hosts])
        for event in race.events():
            live.append(event)
            time.sleep(2 * pause_s)
        recording = recordings.build(race.header(), live, race.result())
    assert [host.num_connections for host in hosts] == [1, 1] and [len(host.asked) for host in hosts] == [2, 2]
    recording = recordings.checked(json.dumps(recording.fields).encode())
    summary = recordings.summary(recording)
    for name in ("baseline", "speculative"):
        lane = summary["lanes"][name]
        assert lane["token_ids"] == tokens_of(TEXT) and lane["text"] == "".join(TEXT) and lane["num_tokens"] == 30
        assert 0 < lane["prefill_s"] == lane["ttft_s"] < 0.2
        own = [e.event for e in live if e.lane == name]
        assert isinstance(own[0], Started) and isinstance(own[-1], Finished)
        assert not any(s.num_drafted for s in own[1:-1])
        assert "".join(piece for s in own[1:-1] for piece in s.pieces) == "".join(TEXT)
    assert summary["lanes"]["speculative"]["per_step_accepted"] == (0, *ACCEPTED)
    assert summary["lanes"]["speculative"]["per_step_drafted"] == (0, *DRAFTED)
    plain, speculative = (summary["lanes"][name]["tokens_per_s"] for name in ("baseline", "speculative"))
    assert plain < min(speculative, 1 / pause_s) and speculative < 29 / (10 * pause_s)
    assert summary["speedup"] == pytest.approx(speculative / plain)
    assert summary["verdicts"]["speculative"]["kind"] == "same_text" and summary["verdict"]["rows_compared"] == 30
    assert recording["prompt"] == {"text": "Once", "token_ids": [], "chat": False}
    walls = [e["wall_s"] for e in recording["events"]]
    assert walls == sorted(walls)
    assert len(steps_csv(recording).splitlines()) == 1 + 30 + 11
    assert all(secret not in json.dumps(recording.fields) for secret in ("key-of", "127.0.0.1", "http:"))


def test_lanes_run_at_once_and_on_one_device_one_after_the_other():
    """Two servers on one device would slow each other, or two on their own wait for nothing."""
    answers = [says([sse(e) for e in PLAIN], 0.01), says([sse(e) for e in SPECULATIVE], 0.01)]
    for same_device in (False, True):
        recording = recording_of(*answers, same_device=same_device)
        begins, ends = (
            {e["lane"]: e["wall_s"] for e in recording["events"] if e["type"] == kind}
            for kind in ("started", "finished")
        )
        assert (begins["speculative"] > ends["baseline"]) == same_device == recording["spec"]["solo"]
        assert same_device or abs(begins["speculative"] - begins["baseline"]) < 0.1


@settings(max_examples=100)
@given(st.lists(st.none() | st.integers(0, 5), max_size=20), st.randoms(use_true_random=False), st.integers(0, 3))
def test_the_servers_list_is_found_in_every_merge(truth, rng, cut):
    """An n-gram drafter drafts at some steps and vLLM lists these alone: its counts would be lost, or called a lie."""
    sizes = [1, *(1 if n is None else n + 1 for n in truth)]
    if truth and truth[-1]:
        sizes[-1] = max(1, sizes[-1] - cut)
    accepted = tuple(n for n in truth if n is not None)
    drafted = Drafted(sum(accepted), 7 * len(accepted), len(accepted), accepted, (7,) * len(accepted))
    written, chunks, at, num = Written(1000), list[Chunk](), 0.0, 0
    while sizes:
        some = rng.randrange(1, len(sizes) + 1) if rng.random() < 0.5 else 1
        num += (size := sum(sizes[:some]))
        sizes, at = sizes[some:], at + rng.random()
        chunks.append(Chunk(at, "", "x" * size, tuple(range(size)), num))
        written.take(chunks[-1])
    written.end(Reply(chunks[:1], num_tokens=num))
    steps = written.steps(drafted)
    assert steps is not None and sum(len(s.token_ids) for s in steps) == num
    counts = [(s.num_accepted, len(s.token_ids)) for s in steps if s.num_drafted]
    assert [n for n, _ in counts][:-1] == list(accepted)[:-1] and len(counts) == len(accepted)
    assert not counts or counts[-1][0] in (accepted[-1], counts[-1][1])
    assert sum(s.seconds for s in steps) == pytest.approx(written.at_s[-1] - written.at_s[0])


def test_lists_that_contradict_the_tokens_are_not_believed():
    """A server's own figures would stand in the recording as if they had been checked."""
    lies = stream_of([1, *(n + 1 for n in ACCEPTED)], TEXT, lists([5] * 10, [5] * 10))
    recording = recording_of(says([sse(*PLAIN)]), says([sse(*lies)]))
    assert "contradict" in recording["promises"]["speculative"]
    assert [len(s.token_ids) for s in steps_in(recording)] == [1, *(n + 1 for n in ACCEPTED)]
    assert not any(s.num_drafted for s in steps_in(recording))


def test_two_texts_part_in_context():
    """Two servers that round differently would look broken, or their difference could not be found."""
    other = [*TEXT[:12], " dog", *TEXT[13:]]
    recording = recording_of(says([sse(*PLAIN)]), says([sse(*stream_of([1] * 30, other))]))
    verdict = recording["verdicts"]["speculative"]
    assert verdict["kind"] == "other_text" and not recordings.faults(recording)
    tokens = [tokens_of(TEXT)[12], tokens_of(other)[12]]
    assert (verdict["first_difference"]["position"], verdict["first_difference"]["tokens"]) == (12, tokens)
    assert "a fault" not in verdict["sentence"] and 'speculative continues " dog 猫' in verdict["sentence"]
    alike = [same_text.Answer(name, text, [], False, "finished", 0) for name, text in (("a", "a b"), ("b", "a\u00a0b"))]
    assert 'a continues " b" (U+0020), b continues "\u00a0b" (U+00A0)' in same_text.judge(*alike)["sentence"]


def test_two_models_are_not_compared():
    """Two models that write two texts would be told that they differ."""
    with servers(says([sse(*PLAIN)]), says([sse(*SPECULATIVE)])) as hosts:
        endpoints = [Endpoint(lane, lane, host.url) for lane, host in zip(("baseline", "other"), hosts, strict=True)]
        race = RemoteRace(endpoints, Question("x"), MAX, PATIENCE)
        result = [list(race.events()), race.result()][1]
    assert result["verdicts"] == {} and "another model" in result["promises"]["other"]


def test_closing_the_stream_ends_all_lanes():
    """A visitor who presses Stop would leave two servers writing for nobody, and threads behind."""
    never = says([sse(e) for e in PLAIN[:5]] + [b": nothing\n"] * 10_000, 0.05)
    before = threading.active_count()
    with servers(never, never) as hosts:
        race = race_of([host.url for host in hosts])
        stream = race.events()
        next(e for e in stream if isinstance(e.event, Step))
        began = time.perf_counter()
        stream.close()
        assert time.perf_counter() - began < 1 and threading.active_count() == before + 1
        recording = recordings.build(race.header(), [], {**race.result(), "stopped": True})
    recordings.checked(json.dumps(recording.fields).encode())
    assert not any(isinstance(e.event, (Finished, Failed)) for e in events_of(recording))
