"""What ships with the page: presets that can be raced, pairs that name what exists, recordings that can be read, and a
header that Spaces understands."""

from __future__ import annotations

import json
import re

import pytest

from app.catalogue.catalogue import ASSETS, DEFAULT_TARGET, KINDS, load, load_pairs, load_presets
from app.catalogue.fits import reason
from app.catalogue.machine import Machine
from app.catalogue.request import CHAINS, read_request
from app.jobs.races import first_frame
from app.jobs.recorded import RACES, recorded_view
from app.page.controls import preset_values
from app.page.sentences import safe
from engine.analysis.metrics import race_speedup
from engine.core.errors import UsageError
from engine.core.events import steps
from engine.core.spec import SPECULATIVE, LaneSpec
from engine.layers.published import refusal
from engine.loading.random_targets import shipped_config
from engine.recordings.recording import Recording, read, write
from tests.helpers import ROOT
from tests.helpers.machines import LARGE, SMALL, with_gpu
from tests.helpers.races import fixed_race

RECORDED_RACES = sorted(RACES.glob("*.json"))


def test_a_preset_says_what_to_look_for_and_plays_its_own_race() -> None:
    """A button that answers with an error, or a promise; whether each can be raced: tests/app/test_controls.py."""
    for preset in load_presets():
        assert preset.kind in KINDS and preset.name and preset.message.strip() and preset.expect.endswith(".")
        assert recorded_view(preset.id) is not None, preset.id
        assert "peculation" not in preset.expect, "whether it pays is measured, not promised"


def test_trees_race_chains() -> None:
    """The gain of trees claimed, not seen; or seen only where there is one."""
    won = []
    for preset in (preset for preset in load_presets() if CHAINS in preset.more):
        race = recorded_view(preset.id)
        assert race is not None and race.spec is not None
        lanes = {lane.name: (lane.drafter, lane.k) for lane in race.spec.lanes if lane.role == SPECULATIVE}
        assert lanes == {SPECULATIVE: (preset.drafter, "tree:7"), CHAINS: (preset.drafter, 7)}
        branched = {name: any(step.parents for step in steps(race.events, name)) for name in lanes}
        assert branched == {SPECULATIVE: True, CHAINS: False}
        won.append(race_speedup(race.events, SPECULATIVE) > race_speedup(race.events, CHAINS))
    assert {*won} == {True, False}


def test_a_preset_suits_every_target() -> None:
    """With the bundled model's head as its drafter, a preset would be refused for every other target."""
    catalogue = load(SMALL, target="./elsewhere")
    for preset in catalogue.presets:
        drafter, k = catalogue.drafting(preset, catalogue.default)
        of_the_target = catalogue.default.drafter, catalogue.default.k
        assert drafter in catalogue.drafters(catalogue.default)
        assert (drafter, k) in ((preset.drafter, preset.k), of_the_target)
        bundled = load(SMALL)
        assert bundled.drafting(preset, bundled.default) == (preset.drafter, preset.k), "its heads ship"


def test_presets_show_both_sides() -> None:
    """A page of prompts where it wins is an advertisement; greedy prose loops, which flatters n-grams."""
    presets = load_presets()
    assert {preset.kind for preset in presets} == set(KINDS)
    races = [recorded_view(preset.id) for preset in presets]
    assert min(race_speedup(race.events) for race in races if race) < 0.9
    assert all(preset.temperature > 0 for preset in presets if preset.kind in ("summary", "chat", "creative"))
    assert len({preset.id for preset in presets}) == len(presets)
    assert presets[0].prompt == (ASSETS / "prompts" / "csv_to_json.txt").read_text(encoding="utf-8")


def test_the_fields_pairs_are_there() -> None:
    """The pairs that the field races, each a valid lane."""
    pairs = load_pairs()
    assert {pair.target for pair in pairs} >= {
        DEFAULT_TARGET,
        "Qwen/Qwen3-8B",
        "Qwen/Qwen3.5-9B",
        "RedHatAI/gemma-4-31B-it-FP8-Dynamic",
        "openai/gpt-oss-120b",
    }
    for pair in pairs:
        LaneSpec("speculative", pair.drafter, pair.k)
        assert pair.target == DEFAULT_TARGET or shipped_config(pair.target), "without a hub what ships decides"


def test_a_small_machine_gets_the_bundled_model_and_reasons() -> None:
    """Everything else is greyed, with the reason; asking for it all the same is refused with that reason."""
    catalogue = load(SMALL)
    assert catalogue.default.target == DEFAULT_TARGET
    assert {pair.target for pair in catalogue.runnable} == {DEFAULT_TARGET}
    assert catalogue.runnable[0] == catalogue.default
    reasons = [offer.reason for offer in catalogue.offers if offer.reason]
    assert all("GPU" in each or "run it on a server" in each for each in reasons)
    with pytest.raises(UsageError, match="needs an NVIDIA GPU"):
        catalogue.pair("qwen3-8b-draft")


CARDS: dict[str, tuple[float, str, str]] = {
    "RTX 4070, 12 GB": (11.3, "bfloat16", "qwen3-1.7b-eagle3"),
    "T4, 16 GB, no bfloat16": (14.5, "float32", "qwen3-0.6b-ngram"),
    "RTX 4090, 24 GB": (23.2, "bfloat16", "qwen3-4b-eagle3"),
    "RTX 5090, 32 GB": (31.0, "bfloat16", "qwen3-8b-eagle3"),
    "RTX 8000, 48 GB, no bfloat16": (47.0, "float32", "qwen3-4b-eagle3"),
    "H100, 80 GB": (78.5, "bfloat16", "qwen3-8b-eagle3"),
}  # what each has free, what it runs best, and its default pair


@pytest.mark.parametrize("card", CARDS)
def test_every_card_gets_a_simple_pair_with_room_to_spare(card: str) -> None:
    """A 24 GB card got the 270M model alone, and the first race ever run on an H100 was the most complicated one: a
    linear-attention target under a block drafter. Simple: plain attention, one size of experts, a drafter of one token
    at a time."""
    free, dtype, wanted = CARDS[card]
    machine = with_gpu(free, dtype)
    default = load(machine).default
    config = shipped_config(default.target)
    assert default.id == wanted
    assert default.drafter.partition(":")[0] in ("eagle3", "ngram")
    assert config["model_type"] == "qwen3" and not refusal(config) and "num_experts" not in config
    assert not reason(default.target, default.drafter, with_gpu(0.9 * free), 4 if dtype == "float32" else 2)


def test_the_headline_pair_is_on_offer_where_it_fits() -> None:
    """It is no longer the default, and would be out of sight; before it is checked, nothing of the hub is chosen."""
    for machine in (LARGE, with_gpu(31.0)):
        assert load(machine).pair("qwen3.5-9b-dflash")
    assert load(Machine(gpu=True)).default.target == DEFAULT_TARGET
    catalogue = load(with_gpu(5.0))
    assert catalogue.default.target == DEFAULT_TARGET
    assert "GPU memory" in next(offer.reason for offer in catalogue.offers if offer.pair.id == "qwen3-8b-draft")


def test_sizes_are_those_of_the_dtype_that_will_run() -> None:
    """A Turing card of 24 GB would fetch 8 GB for a model that takes 16 there; `--dtype` decides where it is given."""
    turing = with_gpu(22.0, "float32")
    assert load(turing, dtype="bfloat16").default.id == "qwen3-4b-eagle3"
    assert load(with_gpu(22.0), dtype="float32").default.id == "qwen3-1.7b-eagle3"


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
    assert read(path)["verdicts"]["speculative"]["kind"] == "identical_bits"
    preset = next(preset for preset in load_presets() if preset.id.replace("-", "_") == path.stem)
    view = recorded_view(preset.id)
    assert view is not None and view.ribbon == "RECORDED" and view.ended
    assert view.header and view.header["prompt"]["text"] == preset.prompt, "a click would show another prompt's race"
    catalogue = load(SMALL)
    values = {**preset_values(catalogue, preset, catalogue.default), "pair": catalogue.default.id, "width": "auto"}
    assert view.spec == read_request(catalogue, {**values, "audit": True}).spec, "Race it live would race another one"


def test_a_recording_is_a_race_that_is_over(tmp_path) -> None:
    """What is shown before any model is loaded has every event, its ribbon, and the header that frames carry."""
    write(tmp_path / "a.json", Recording.of(fixed_race()))
    view = recorded_view("a", folder=tmp_path)
    assert view is not None and (view.state, view.ribbon, view.recording) == ("finished", "RECORDED", fixed_race())
    first = json.loads(first_frame(view))
    assert first["events"] == fixed_race()["events"] and json.loads(first["recording"]) == fixed_race()
    assert set(first["metrics"]) == {"plain", "baseline", "speculative"}
    assert recorded_view("b", folder=tmp_path) is None
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(UsageError):
        recorded_view("c", folder=tmp_path)


def test_hostile_text_is_text() -> None:
    """gr.HTML runs two template languages over what it is given; nothing of ours may be either."""
    shown = safe("<img onerror=x> ${alert(1)} {{x}} `y` \\ \"q\" 'q' &amp;")
    assert not set("<>${}`\\\"'") & set(shown)


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
