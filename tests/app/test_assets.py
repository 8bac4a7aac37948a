"""What ships: presets that can be raced, pairs that exist, readable recordings, a header that Spaces understands."""

import re

import pytest

from app.catalogue.catalogue import ASSETS, DEFAULT_TARGET, load, load_pairs, load_presets
from app.catalogue.machine import Machine
from app.catalogue.request import CHAINS, read_request
from app.jobs.frames import frame
from app.jobs.recorded import RACES, recorded_view
from app.page.controls import preset_values
from engine.analysis.metrics import race_speedup
from engine.core.errors import UsageError
from engine.core.events import steps
from engine.core.spec import SPECULATIVE, LaneSpec
from engine.loading.random_targets import shipped_config
from engine.recordings.recording import read
from tests.helpers import ROOT
from tests.helpers.machines import SMALL, with_gpu

RECORDED_RACES = sorted(RACES.glob("*.json"))


def test_a_preset_says_what_to_look_for() -> None:
    """A promise; whether each can be raced: tests/app/test_controls.py."""
    for preset in load_presets():
        assert preset.name and preset.message.strip() and preset.expect.endswith(".")
        assert "peculation" not in preset.expect, "whether it pays is measured, not promised"


def test_trees_race_chains() -> None:
    """The gain of trees claimed, not seen; or seen only where there is one."""
    won = []
    for preset in (preset for preset in load_presets() if CHAINS in preset.more):
        race = recorded_view(preset.id)
        branched = {name: any(step.parents for step in steps(race.events, name)) for name in (SPECULATIVE, CHAINS)}
        assert branched == {SPECULATIVE: True, CHAINS: False}
        won.append(race_speedup(race.events, SPECULATIVE) > race_speedup(race.events, CHAINS))
    assert {*won} == {True, False}


def test_presets_show_both_sides() -> None:
    """A page of prompts where it wins is an advertisement; greedy prose loops, which flatters n-grams."""
    presets = load_presets()
    races = [recorded_view(preset.id) for preset in presets]
    assert min(race_speedup(race.events) for race in races) < 0.9
    assert {preset.temperature > 0 for preset in presets} == {True, False}
    assert len({preset.id for preset in presets}) == len(presets)
    assert presets[0].prompt == (ASSETS / "prompts" / "csv_to_json.txt").read_text(encoding="utf-8")


def test_a_pair_is_a_lane_whose_target_is_known() -> None:
    """A pair that is refused at its race; without a hub what ships decides."""
    for pair in load_pairs():
        LaneSpec("speculative", pair.drafter, pair.k)
        assert pair.target == DEFAULT_TARGET or shipped_config(pair.target)


FLOAT32 = "float32"
# A machine, the dtype on its command line -> its default pair.
DEFAULTS: dict[str, tuple[Machine, str, str]] = {
    "no GPU": (SMALL, "auto", "gemma3-270m-hybrid"),
    "a GPU, nothing checked": (Machine(gpu=True), "auto", "gemma3-270m-hybrid"),
    "5 GB": (with_gpu(5.0), "auto", "gemma3-270m-hybrid"),
    "RTX 4070, 12 GB": (with_gpu(11.3), "auto", "qwen3-1.7b-eagle3"),
    "T4, 16 GB": (with_gpu(14.5, FLOAT32), "auto", "qwen3-0.6b-ngram"),
    "RTX 4090, 24 GB": (with_gpu(23.2), "auto", "qwen3-4b-eagle3"),
    "Turing, 24 GB": (with_gpu(22.0, FLOAT32), "bfloat16", "qwen3-4b-eagle3"),
    "Ampere, 24 GB": (with_gpu(22.0), "float32", "qwen3-1.7b-eagle3"),
    "RTX 5090, 32 GB": (with_gpu(31.0), "auto", "qwen3-8b-eagle3"),
    "RTX 8000, 48 GB": (with_gpu(47.0, FLOAT32), "auto", "qwen3-4b-eagle3"),
    "H100, 80 GB": (with_gpu(78.5), "auto", "qwen3-8b-eagle3"),
}


@pytest.mark.parametrize(("machine", "dtype", "wanted"), DEFAULTS.values(), ids=DEFAULTS)
def test_every_machine_gets_a_simple_pair_with_room_to_spare(machine: Machine, dtype: str, wanted: str) -> None:
    """A 24 GB card got the 270M model alone, and the first race ever run on an H100 was the most complicated one: a
    linear-attention target under a block drafter. What else is offered there: tests/app/test_checks.py."""
    assert load(machine, dtype=dtype).default.id == wanted


def test_the_command_line_decides() -> None:
    """The command line's target is the only one outside the catalogue that a visitor may race."""
    catalogue = load(SMALL, "some/folder", "draft_model:other/folder")
    assert (catalogue.default.target, catalogue.default.drafter) == ("some/folder", "draft_model:other/folder")
    assert catalogue.drafter(catalogue.default, "draft_model:other/folder") == "draft_model:other/folder"
    with pytest.raises(UsageError, match="unknown drafter"):
        catalogue.drafter(catalogue.default, "draft_model:third/folder")
    with pytest.raises(UsageError, match="unknown drafter"):
        load(SMALL, None, "nonsense")


@pytest.mark.parametrize("path", RECORDED_RACES, ids=lambda path: path.stem)
def test_a_recorded_race_is_readable_and_wears_its_ribbon(path) -> None:
    """What plays when the page opens was run by this program, and says that it is not live."""
    recording = read(path)
    assert recording["verdicts"]["speculative"]["kind"] == "identical_bits"
    preset = next(preset for preset in load_presets() if preset.id.replace("-", "_") == path.stem)
    view = recorded_view(preset.id)
    assert view.ribbon == "RECORDED" and frame(None, view, 0)["events"] == recording["events"]
    assert view.header and view.header["prompt"]["text"] == preset.prompt, "a click would show another prompt's race"
    catalogue = load(SMALL)
    values = {**preset_values(catalogue, preset, catalogue.default), "pair": catalogue.default.id, "width": "auto"}
    assert view.spec == read_request(catalogue, {**values, "audit": True}).spec, "Race it live would race another one"


def test_the_repository_is_a_space() -> None:
    """Spaces installs the gradio that README's header names: another one than the pinned is another page."""
    header = re.match(r"---\n(.*?)\n---\n", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert header, "README.md has no front matter"
    values = dict(re.findall(r"^(\w+): *(.+?) *$", header[1], re.MULTILINE))
    requirements = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", requirements, re.MULTILINE))
    assert values["sdk"] == "gradio"
    assert values["sdk_version"].strip("'\"") == pinned["gradio"]
    assert values["app_file"] == "app.py" and (ROOT / values["app_file"]).is_file()
    assert values["python_version"].strip("'\"") == "3.11"
    assert values["suggested_hardware"] and re.fullmatch(r"\d+[mh]", values["startup_duration_timeout"])
