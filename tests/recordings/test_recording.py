"""A recording says everything and is believed nothing: it survives its file, and no file breaks its reader."""

import copy
import gzip
import json
import random
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem
from typing import Any

import pytest
from hypothesis import given

from engine import strict_json
from engine.core.errors import RaceError, UsageError
from engine.recordings import recording as recordings
from engine.recordings.check import check
from engine.recordings.event_json import to_json
from engine.recordings.recording import Recording
from tests.helpers import full_disk, races
from tests.helpers.altered import altered
from tests.helpers.race_pages import race_over

SUMMARY_KEYS = [
    "schema", "device", "dtype", "runs", "width", "widths_class", "seed", "temperature", "audit", "verdict",
    "plain_verdict", "lanes", "speedup", "verdicts", "speedups", "oracles", "cautions",
]  # fmt: skip
LANE_KEYS = [
    "token_ids", "text", "num_tokens", "prefill_s", "decode_s", "tokens_per_s", "ttft_s", "tpot_s", "itl_p50_s",
    "itl_p95_s", "num_steps", "per_step_drafted", "per_step_accepted", "acceptance_rate", "mean_acceptance_length",
]  # fmt: skip


@given(races.many_lanes() | races.many_lanes(failing=True) | races.servers_races())
def test_a_recording_survives_its_bytes(recording):
    """What a race wrote is read back whole, events, spec and all, and what only a server or a step taken apart knows;
    building it again from its parts gives the same; nobody can change one part of what was read without the others."""
    read = recordings.checked(json.dumps(recording).encode())
    assert read == recording and list(read) == list(recording)
    assert recordings.checked(gzip.compress(json.dumps(recording).encode())) == recording
    assert [to_json(event) for event in read.events] == recording["events"]
    header = {key: value for key, value in recording.items() if key not in ("schema", "format", "events")}
    assert recordings.build(header, read.events, {}) == recording and read.spec.to_json() == recording["spec"]
    json.dumps(recordings.summary(read), allow_nan=False)
    with pytest.raises((TypeError, AttributeError)):
        read["spec"] = {}
    with pytest.raises(AttributeError):
        read.events = ()


def test_files_are_written_whole_or_not_at_all(tmp_path):
    """A disk that fills up in the middle leaves the old file as it was, no remains beside it, and a clear error."""
    path, recording = tmp_path / "race.json", races.fixed_race()
    recordings.write(path, Recording.of(recording))
    assert recordings.read(path) == recording
    before = path.read_bytes()
    with full_disk(1000), pytest.raises(RaceError, match="cannot write"):
        recordings.write(path, Recording.of(recording))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_could_not_be_read_again_is_left_out(tmp_path, monkeypatch):
    """A long race would be lost with its extras, after it has been run."""
    recording = Recording.of(races.fixed_race()).adding({"candidates": {"seeds": [], "pieces": {}, "lanes": {}}})
    path, most = tmp_path / "race.json", len(recording.text)
    assert recordings.write(path, recording) == ()
    monkeypatch.setattr(recordings, "MAX_BYTES", most - 1)
    monkeypatch.setattr(strict_json, "BRACKETS", 1)
    monkeypatch.setattr(strict_json, "QUOTES", 1)
    assert recordings.write(path, recording) == ("candidates",)
    assert recordings.read(path) == races.fixed_race()
    monkeypatch.setattr(recordings, "MAX_BYTES", 10)
    with pytest.raises(RaceError, match="could not be read again"):
        recordings.write(path, recording)


def test_a_link_and_a_device_are_written_through(tmp_path):
    """Saving to a link changes the file it points to, and saving to /dev/null does not replace /dev/null."""
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    recordings.write(link, Recording.of(races.fixed_race()))
    assert link.is_symlink() and recordings.read(real) == races.fixed_race()
    recordings.check_writable("/dev/null")
    recordings.write("/dev/null", Recording.of(races.fixed_race()))
    with open("/dev/null", "rb") as null:
        assert null.read() == b""


def test_where_saving_cannot_work_is_said_before_the_race(tmp_path):
    """A missing folder, a folder in the file's place, a name with NUL: refused at once; good places stay untouched."""
    for bad in ("no/race.json", "", "a\0b", f"{'x' * 300}/y", "/proc/race.json"):
        with pytest.raises(UsageError, match="cannot save to"):
            recordings.check_writable(tmp_path / bad)
    recordings.check_writable(tmp_path / "race.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "not JSON"),
        (b"\xff{}", "not UTF-8"),
        (b'{"format": "photofinish-race", "sch', "not JSON"),
        (b"<html>", "a web page without a recorded race"),
        (b'<html><p id="recording">?</p>', "not JSON"),
        (b'<html><p id="recording">H4sI</p>', "a web page whose recorded race is damaged"),
        (b'{"schema": NaN}', "NaN"),
        (b'{"schema": -Infinity}', "Infinity"),
        (b'{"schema": 1e999}', "out of range"),
        (b'{"schema": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"schema": 1, "schema": 1}', "duplicate key"),
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 100_000, "nested"),
        (b"[]", "must be a JSON object, not a list"),
        (b"null", "not null"),
        (b"{}", "not a Photofinish recording"),
        (b'{"format": "photofinish-race"}', "its schema is None; this version reads schema 2$"),
        (b'{"format": "photofinish-race", "schema": 3}', "is 3; this version reads schema 2; a newer version"),
        (b'{"format": "photofinish-race", "schema": true}', "its schema is True"),
        (b'{"format": "photofinish-race", "schema": 2}', "lacks 'model'"),
    ],
)
def test_what_is_no_recording_is_named(data, words):
    """Each kind of broken or hostile file gets its own sentence, never another exception."""
    with pytest.raises(UsageError, match=words):
        recordings.checked(data)


def test_too_large_a_file_is_not_read_to_its_end(tmp_path):
    """A file beyond the limit (here an endless one) is refused after the limit."""
    with pytest.raises(UsageError, match="larger than 16 MB"):
        recordings.read("/dev/zero")
    for bad in (tmp_path / "none.json", tmp_path, "a\0b"):
        with pytest.raises(UsageError, match="cannot read the recording"):
            recordings.read(bad)


@given(altered(races.many_lanes() | races.servers_races() | races.recordings()))
def test_no_change_of_a_value_breaks_the_reader(recording):
    """Any value replaced, removed or added: the reader refuses with a UsageError, or all it returns can be used."""
    try:
        accepted = recordings.checked(json.dumps(recording).encode())
    except UsageError as error:
        assert len(str(error)) < 400
    else:
        json.dumps(recordings.summary(accepted), allow_nan=False)


Change = Callable[[dict[str, Any], list[dict[str, Any]]], object]


CONTRADICTIONS: dict[str, Change] = {
    "which the spec does not have": lambda r, s: s[0].update(lane="elsewhere"),
    "continues after its end": lambda r, s: r["events"].append(s[-1]),
    "does not begin with a started event": lambda r, s: r.update(
        events=[e for e in r["events"] if e["lane"] != "speculative" or e["type"] == "finished"]
    ),
    "does not begin with a started": lambda r, s: r["events"].remove(
        next(e for e in r["events"] if e["type"] == "started" and e["lane"] == "speculative")
    ),
    "starts twice": lambda r, s: r["events"].insert(0, next(e for e in r["events"] if e["type"] == "started")),
    "prompt tokens": lambda r, s: r["prompt"].update(token_ids=[1]),
    "comes where step": lambda r, s: s[1].update(position=2),
    "comes where step 0": lambda r, s: s[0].update(index=1),
    "at least 1": lambda r, s: s[1].update(token_ids=[], pieces=[], checksums=[]),
    "a lane at most 4": lambda r, s: r["spec"]["params"].update(max_new_tokens=4),
    "token id beyond": lambda r, s: s[1].update(token_ids=[2**31]),
    "the lane's k is 2": lambda r, s: r["spec"]["lanes"][2].update(k=2),
    "ran at width 3": lambda r, s: s[0].update(width=3),
    "0 checksums, but audit is true": lambda r, s: s[0].update(checksums=[]),
    "finished with 4 tokens": lambda r, s: next(e for e in r["events"] if e["type"] == "finished").update(num_tokens=4),
    "reports decode_s": lambda r, s: next(e for e in r["events"] if e["type"] == "finished").update(decode_s=0.7),
    "reports clock_s": lambda r, s: s[1].update(clock_s=0.1),
    "never ends": lambda r, s: r["events"].pop(),
    "says identical_bits, but its events differ": lambda r, s: s[1].update(token_ids=[99]),
    "the verdict on lane .speculative. says identical_bits": lambda r, s: s[1].update(checksums=[1]),
    "unknown field 'extra'": lambda r, s: r["spec"]["lanes"][0].update(extra=1),
    "params lacks 'seed'": lambda r, s: r["spec"]["params"].pop("seed"),
    "temperature must be": lambda r, s: r["spec"]["params"].update(temperature=-1),
    "wall_s 1.5 after 2.0": lambda r, s: [s[0].update(wall_s=2.0), s[1].update(wall_s=1.5)],
    "kind must be one of": lambda r, s: r["verdicts"]["speculative"].update(kind="perfect"),
    "role must be one of plain, .*, not 'judge'": lambda r, s: r["spec"]["lanes"][2].update(role="judge"),
    "a verdict on 'nobody'": lambda r, s: r["verdicts"].update(nobody=r["verdicts"]["plain"]),
    "a verdict on 'baseline'": lambda r, s: r["verdicts"].update(baseline=r["verdicts"]["plain"]),
    "the verdict on lane 'plain' must be an object, not None": lambda r, s: r["verdicts"].update(plain=None),
    "verdicts must be an object, not a list": lambda r, s: r.update(verdicts=[]),
    "it mixes lanes on servers": lambda r, s: r["spec"]["lanes"][2].update(drafter="server", k="auto"),
    "with another device: a race is of servers": lambda r, s: r["device"].update(type="server"),
    "lacks 'verdicts'": lambda r, s: r.pop("verdicts"),
    "says same_text, but": lambda r, s: [r.update(races.on_servers(r)), races.steps_of(r)[0].update(pieces=["!"] * 3)],
    "the lane's k is auto .at most 2": lambda r, s: r["spec"]["lanes"][2].update(k="auto", width=3),
}


@pytest.mark.parametrize("words", CONTRADICTIONS)
def test_a_recording_that_contradicts_itself_is_refused(words):
    """A race would be shown whose events, spec, prompt and verdicts disagree, or with a baseline that drafts."""
    recording = races.fixed_race()
    check(copy.deepcopy(recording))
    steps = [e for e in recording["events"] if e["lane"] == "speculative" and e["type"] == "step"]
    CONTRADICTIONS[words](recording, steps)
    with pytest.raises(UsageError, match=words):
        recordings.checked(json.dumps(recording).encode())


LONG = "n" * 10_001
NOWHERE = (None, True, -1, 2**64, 1e300, LONG, [[]], {"x": 1})
BUT: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("revision", "digest", "licence", "threads", "commit", "width", "plain_width"), (None,)),
    "rows_different": (None,),
    **dict.fromkeys(("text", "pieces", "drafted_pieces", "sentence"), (LONG,)),
    **dict.fromkeys(("logits", "noise"), (-1,)),
    **dict.fromkeys(("complete", "short"), NOWHERE),  # computed, whatever a file says
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in this JSON."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def test_what_cannot_be_where_it_is_gets_one_sentence():
    """A fault that is not noticed is drawn on the page; one without words leaves its owner in the dark."""
    whole = race_over(["one", " two", " three"] * 4, seed=5)
    whole["spec"]["params"]["temperature"] = 0.5
    whole = races.known_in_part(whole, random.Random(2))
    del whole["cautions"]  # computed, whatever a file says
    alike = {tuple("#" if str(key).isdigit() else key for key in path): path for path in places(whole)}
    for names, (*keys, last) in alike.items():
        field = next(name for name in reversed(names) if name != "#")
        good = (reduce(getitem, keys, whole)[last], *BUT.get(field, ()))
        for wrong in (wrong for wrong in NOWHERE if wrong not in good):
            recording = copy.deepcopy(whole)
            reduce(getitem, keys, recording)[last] = wrong
            with pytest.raises(UsageError) as caught:
                recordings.checked(json.dumps(recording).encode())
            assert 8 < len(str(caught.value)) < 450 and "\n" not in str(caught.value)


@given(races.recordings())
def test_the_summary_has_exactly_the_promised_keys(recording):
    """Scripts read `--json`: no key missing, none added."""
    summary = recordings.summary(Recording.of(recording))
    assert list(summary) == SUMMARY_KEYS
    names = ["kind", "rows_compared", "rows_different", "first_difference", "complete"]
    assert names == list(summary["verdict"]) == list(summary["plain_verdict"])
    lane_keys = {name: list(lane) for name, lane in summary["lanes"].items()}
    assert lane_keys == dict.fromkeys(["plain", "baseline", "speculative"], LANE_KEYS)


def test_the_summary_tells_what_a_reader_saw():
    """The stop string is cut from the text, its token is counted; the speed-up is speculative against plain."""
    summary = recordings.summary(Recording.of(races.fixed_race()))
    assert [lane["text"] for lane in summary["lanes"].values()] == ["abcd"] * 3
    assert [lane["num_tokens"] for lane in summary["lanes"].values()] == [5] * 3
    about = [summary[name] for name in ("device", "dtype", "width", "widths_class")]
    assert about == ["cpu", "float32", 8, [2, 4, 8]]
    assert summary["speedup"] == pytest.approx((5 * 0.2 / 5) / (3 * 0.3 / 5))


@given(races.recordings(failing=True))
def test_a_failed_lane_says_so_in_its_own_object(recording):
    """The failing lane has its message under "error", others none, and without its tokens there is no speed-up."""
    summary = recordings.summary(Recording.of(recording))
    assert recordings.failures(Recording.of(recording)) == {"speculative": summary["lanes"]["speculative"]["error"]}
    assert "error" not in summary["lanes"]["plain"] and "error" not in summary["lanes"]["baseline"]
    assert (summary["speedup"] is None) == (summary["lanes"]["speculative"]["num_tokens"] == 0)
