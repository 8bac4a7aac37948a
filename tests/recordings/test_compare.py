"""What `verify` says of a re-run: the same tokens or where not, the bits apart from them, what was different here."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.recordings.compare import compare
from engine.recordings.recording import Recording
from tests.helpers import races
from tests.helpers.race_pages import TEXT, race_over, words_of


def compared(recorded: dict[str, Any], here: dict[str, Any]) -> dict[str, Any]:
    return compare(Recording.of(recorded), Recording.of(here))


def speculative_steps(recording: dict[str, Any], lane: str = "speculative") -> list[dict[str, Any]]:
    return [e for e in recording["events"] if e["lane"] == lane and e["type"] == "step"]


@given(races.recordings() | races.recordings(failing=True))
def test_a_race_agrees_with_itself(recording):
    """The same race again: same tokens, 0 recorded rows different, nothing to report of the circumstances."""
    result = compared(recording, copy.deepcopy(recording))
    assert result["same_tokens"] and result["differences"] == [] and result["digest"]["same"]
    assert result["sentence"].startswith("same tokens")
    assert ("bit for bit" if recording["spec"]["audit"] else "were not recorded") in result["sentence"]
    json.dumps(result, allow_nan=False)


@given(races.recordings(), st.data())
def test_the_first_token_that_differs_is_named(recording, data):
    """Any token changed in any counted lane: that lane and position are named, and other lanes stay the same."""
    here = copy.deepcopy(recording)
    lane = data.draw(st.sampled_from(["plain", "baseline", "speculative"]))
    step = data.draw(st.sampled_from(speculative_steps(here, lane)))
    i = data.draw(st.integers(0, len(step["token_ids"]) - 1))
    before, position = step["token_ids"][i], step["position"] + i
    step["token_ids"][i] += 1
    step["drafted"][: step["num_accepted"]] = step["token_ids"][: step["num_accepted"]]
    result = compared(recording, here)
    assert not result["same_tokens"]
    words = f"position {position}: token {before} there, token {before + 1} here"
    assert result["sentence"] == f"different: lane {lane!r} diverges from the recording at {words}"
    assert [name for name, verdict in result["lanes"].items() if not verdict["same_tokens"]] == [lane]


@pytest.mark.parametrize(
    "longer, words", [("here", "it ended there but continues here"), ("there", "it continued there but ends here")]
)
def test_a_lane_that_goes_on_for_longer_is_different(longer, words):
    """Equal tokens as far as both go are not the same completion."""
    there, here = races.fixed_race(), races.fixed_race()
    short = there if longer == "here" else here
    short["events"].remove(speculative_steps(short)[-1])
    result = compared(there, here)
    assert not result["same_tokens"]
    assert f"lane 'speculative' diverges from the recording at position 4: {words}" in result["sentence"]


def test_other_bits_with_the_same_tokens_are_told_and_accepted():
    """Another machine's arithmetic may round otherwise: said in rows, and still the same tokens."""
    here = races.fixed_race()
    speculative_steps(here)[0]["checksums"][1] ^= 1
    result = compared(races.fixed_race(), here)
    assert result["same_tokens"] and "1 of 15 rows of logits differ in their bits" in result["sentence"]


def test_the_plain_lane_counts_only_at_the_same_width():
    """The fastest width may be another one today: its tokens then part by rounding, no failure of the machine."""
    here = races.fixed_race()
    speculative_steps(here, "plain")[2]["token_ids"][0] += 1
    assert not compared(races.fixed_race(), here)["same_tokens"]
    here["widths"]["plain_width"] = 2
    result = compared(races.fixed_race(), here)
    assert result["same_tokens"] and "lane 'plain' ran at another width here and is not counted" in result["sentence"]


def test_other_weights_and_circumstances_are_named():
    """Who gets other tokens wants to know what is different here: weights, device, threads, versions."""
    here = races.fixed_race()
    here["model"]["digest"] = "d2"
    here["device"]["threads"] = 1
    here["versions"]["torch"] = "9.9"
    result = compared(races.fixed_race(), here)
    assert result["same_tokens"] and not result["digest"]["same"]
    assert "the weights are not the recorded ones (digest d1 there, d2 here)" in result["sentence"]
    assert result["differences"] == ["device threads: 2 there, 1 here", "torch: 2.13.0 there, 9.9 here"]


def test_other_tiles_are_named_where_tokens_part():
    """Tiles decide bits: who gets other tokens under other tiles would look for a fault elsewhere."""
    there, here = races.fixed_race(), races.fixed_race()
    there["versions"]["kernels"] = "0a, triton 3.9.0, tiles 1 (default)"
    here["versions"]["kernels"] = "0a, triton 3.9.0, tiles 2 (table file 3)"
    assert "kernels" not in compared(there, here)["sentence"]
    speculative_steps(here)[0]["token_ids"][-1] += 1
    result = compared(there, here)
    says = "; different kernels or tiles ran here, which may round differently"
    assert not result["same_tokens"] and result["sentence"].endswith(says)
    assert (
        "kernels: 0a, triton 3.9.0, tiles 1 (default) there, 0a, triton 3.9.0, tiles 2 (table file 3) here"
        in result["differences"]
    )


def test_a_lane_that_fails_here_is_no_success():
    """The recorded lane finished, this one failed: not the same, and its message is told."""
    here = races.fixed_race()
    for event in [e for e in here["events"] if e["lane"] == "speculative" and e["type"] != "started"]:
        here["events"].remove(event)
    here["events"].append({"lane": "speculative", "clock_s": 0.0, "type": "failed", "message": "the drafter failed"})
    result = compared(races.fixed_race(), here)
    assert not result["same_tokens"] and "(the drafter failed)" in result["sentence"]
    assert compared(here, races.fixed_race())["same_tokens"], "what a failed lane had committed before is what counts"


@pytest.mark.parametrize(
    ("factor", "device", "waited", "words"),
    [
        (1, {}, 0, "recorded 1.11x, here 1.11x (plain 5.0 and 5.0 tokens/s…); times are not proven"),
        (1.15, {}, 0, "here 1.28x (plain 5.0 and 4.3 tokens/s…); times are not proven"),
        (2, {}, 0, "here 2.22x (plain 5.0 and 2.5 tokens/s…); more than noise explains, on the same device"),
        (2, {"name": "a GPU"}, 0, "here 2.22x (plain 5.0 and 2.5 tokens/s…); on another device, which may differ"),
        (2, {}, 0.9, "tokens/s…); the machine was disturbed here; times are not proven"),
    ],
)
def test_both_speeds_stand_side_by_side(factor: float, device: dict[str, str], waited: float, words: str) -> None:
    """A file with other times than it was raced with would be confirmed by its tokens."""
    here = races.fixed_race(plain_s=0.2 * factor)
    here |= {"device": {**here["device"], **device}, "waited_share": waited}
    result = compared(races.fixed_race(), here)
    assert result["same_tokens"] and all(part in result["speed"] for part in words.split("…"))
    assert result["speed"] in result["sentence"]
    ratios = result["speedups"]["speculative"]
    assert ratios["here"] == pytest.approx(factor * ratios["recorded"]) and list(result["speedups"]) == ["speculative"]


def test_what_no_ratio_shows_is_stated_too() -> None:
    """A prefill or a bandwidth that somebody changed would be confirmed by tokens and by the ratio."""
    recorded = races.fixed_race()
    forged_file = copy.deepcopy(recorded)
    for event in forged_file["events"]:
        if event["type"] == "started":
            event["prefill_s"] = 4.25
    for race, bandwidth in ((forged_file, 80e9), (recorded, 40e9)):
        race["roofline"] = {"bytes_per_step": 1, "bandwidth_bytes_per_s": bandwidth, "how": ""}
    speed = compared(forged_file, recorded)["speed"]
    assert "its prefill 4.25 and 0." in speed and "memory 80 and 40 GB/s" in speed


def test_the_speed_of_every_lane_is_stated():
    """A second lane's ratio would be vouched for by the first one's."""
    several = race_over(words_of(TEXT)[:60], drafters={"a": "ngram", "b": "ngram"})
    assert "a: recorded 2.83x, here 2.83x, b: recorded 1.56x" in compared(several, several)["speed"]
