"""What a visitor brings back: results that the page saved, alone or in one file; and a recorded race, run again."""

import copy
import json
from functools import reduce
from operator import getitem
from typing import Any

import pytest

from app.catalogue.catalogue import load
from app.catalogue.limits import MAX_FILE_CHARS, MAX_NEW_TOKENS, MAX_PROMPT_CHARS
from app.catalogue.request import read_again
from app.catalogue.saved import MAX_FINDINGS, MAX_LEVELS, OPENED, read_saved
from app.jobs.backend import TorchBackend
from app.jobs.recorded import RACES
from app.jobs.worker import said_again
from app.page.handlers import Handlers
from app.page.stream import Asked
from engine.core.errors import UsageError
from engine.doctor import findings
from engine.recordings.check import check
from engine.recordings.recording import Recording, read
from tests.helpers.machines import SMALL
from tests.helpers.races import fixed_race, steps_of
from tests.helpers.results import CHECK_UP, FOUND, LOAD, STUDY, joint
from tests.helpers.staged import in_loop

NAMELESS = findings.report(FOUND, {"target": "m"})
REPORTS = {"study": STUDY, "load": LOAD, "checkup": CHECK_UP}
# What a file says of itself, and nobody believes.
LIES = {"study": {"verdict": "no"}, "load": {"says": ["<b>well</b>"], "gains_with": [7]}, "checkup": {"first": {}}}


@pytest.mark.parametrize("kinds", [*([kind] for kind in REPORTS), [*REPORTS]], ids="+".join)
@in_loop
async def test_what_was_saved_is_shown_and_computed_again(kinds: list[str]) -> None:
    """What was sent to a colleague could not be read; or a file's own verdict be believed."""
    asked = {"temperature": 0.5, "max_new_tokens": 8, "num_differing": 2}
    saved = [{**REPORTS[kind], **LIES[kind], "asked": {**asked, "other": 1}} for kind in kinds]
    order = {"saved": f"\n{json.dumps(saved[0] if len(saved) == 1 else joint(*saved))}\n"}
    events = await Handlers(load(SMALL), TorchBackend()).runs()["open"](Asked("a", "here", {}, order))
    frames = {frame["kind"]: frame for frame in [json.loads(value) async for name, value in events if not name]}
    assert [*frames] == kinds and frames.get("study", {}).get("num_done", 4) == 4
    for kind, frame in frames.items():
        assert frame["report"] == json.loads(json.dumps(REPORTS[kind])) and frame["asked"] == asked
        assert (frame["state"], frame["text"], frame["opened"]) == ("finished", OPENED, True) and "key" not in frame


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([], "it must have a result"),
        ([STUDY, STUDY], "one of a kind"),
        ([*REPORTS.values(), STUDY], "results has 4 entries; at most 3 are allowed"),
        ([joint(STUDY)], "its kind is 'results', not one of study, load, checkup"),
        ([{"format": "photofinish-race"}], "its kind is 'race'"),
        ([7], "must be an object"),
        *(([{**saved, "asked": {"temperature": "hot"}}], "asked.temperature must be") for saved in REPORTS.values()),
        ([{**STUDY, "rows": STUDY["rows"] * 300}], "more than 1000 rows"),
        ([{**CHECK_UP, "findings": [{**CHECK_UP["findings"][0], "level": "fatal"}]}], "level must be one of fault"),
        ([{**CHECK_UP, "findings": CHECK_UP["findings"] * MAX_FINDINGS}], f"more than {MAX_FINDINGS} findings"),
        *(([{**NAMELESS, **about}], "does not say of which")
          for about in ({}, {"lanes": [], "models": []}, {"models": ["m"]})),
        *(([{**LOAD, **changes}], ".") for changes in (
            {"format": "photofinish-study"}, {"lanes": ["x"]}, {"said": {}}, {"lanes": None}, {"levels": []},
            {"levels": [LOAD["levels"][0]] * 2}, {"levels": [{**LOAD["levels"][0], "num_compared": 5}]},
            {"levels": [7]}, {"levels": [{**LOAD["levels"][0], "lane": "c"}]},
            {"levels": [{**LOAD["levels"][0], "concurrency": i} for i in range(1, MAX_LEVELS + 2)]},
            *({"levels": [{**LOAD["levels"][0], "output_tokens_per_s": s}]} for s in (-1, 1e300, 1e-300, "7", True)),
        )),
    ],
)  # fmt: skip
def test_what_is_no_result_of_this_page_is_refused(results: list[Any], words: str) -> None:
    """A stranger's file would break the page, or be shown for what it is not."""
    with pytest.raises(UsageError, match=words) as error:
        read_saved(json.dumps(joint(*results)))
    assert 10 < len(str(error.value)) < 300


def test_a_file_that_is_cut_or_too_long_is_refused_and_none_is_a_race() -> None:
    """A traceback; or whoever opens a result where races are opened would not learn where it belongs."""
    for text in (None, "[]", json.dumps(STUDY)[:-9], "a" * (MAX_FILE_CHARS + 1)):
        with pytest.raises(UsageError):
            read_saved(text)
    for saved in (*REPORTS.values(), joint(STUDY)):
        with pytest.raises(UsageError, match="; open it with Open a result in \u201cTry it on yours\u201d"):
            check(saved)


# ---- a recorded race

SHIPPED = sorted(RACES.glob("*.json"))


@pytest.mark.parametrize(
    ("place", "value", "names"),
    [
        (("model", "name"), "../weights", "'../weights', which this page cannot run. It can run: gemma-3-270m"),
        (("spec", "lanes", -1, "drafter"), "eagle3:/srv/weights", "eagle3:/srv/weights"),
        (("spec", "params", "max_new_tokens"), MAX_NEW_TOKENS + 1, f"1 to {MAX_NEW_TOKENS} on this page"),
        (("prompt", "text"), "a" * (MAX_PROMPT_CHARS + 1), f"at most {MAX_PROMPT_CHARS} are allowed"),
    ],
    ids=["target", "drafter", "length", "prompt"],
)
def test_a_file_orders_no_more_than_the_page_does(place: tuple[Any, ...], value: Any, names: str) -> None:
    """A file from anywhere would load weights from a folder of this machine, or hold it for an hour."""
    recorded = read(SHIPPED[0]).fields
    *way, last = place
    reduce(getitem, way, recorded)[last] = value
    with pytest.raises(UsageError, match=names):
        read_again(load(SMALL), Recording.of(recorded))


def test_what_is_said_afterwards() -> None:
    """ "The same" of other tokens, of other bits or other weights."""
    recorded = Recording.of(fixed_race())
    assert said_again(recorded, recorded) == (
        "This machine wrote the same 5 tokens, bit for bit; recorded 1.11x, here 1.11x (plain 5.0 and 5.0 tokens/s, "
        "its prefill 0.50 and 0.50 s); times are not proven."
    )
    rounded, parted, weights = (copy.deepcopy(recorded.fields) for _ in range(3))
    for step in (event for event in rounded["events"] if event["type"] == "step"):
        step["checksums"] = [1 for _ in step["checksums"]]
    steps_of(parted)[0]["token_ids"][-1] = 99
    weights["model"]["digest"] = "another"
    for race, said, unsaid in (
        (rounded, "wrote the same 5 tokens; recorded", "bit for bit"),
        (parted, "different", "wrote the same"),
        (weights, "the weights are not the recorded ones", "wrote the same"),
    ):
        words = said_again(recorded, Recording.of(race))
        assert said in words and unsaid not in words
