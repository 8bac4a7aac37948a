"""Planted faults of heads and draft models, which doctor must name first; healthy pairs, where it must find none."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cli.main import main
from engine.core.spec import SamplingParams
from engine.doctor import PROMPTS as OWN
from engine.doctor.checkup import Checkup
from engine.doctor.files import read_files
from engine.doctor.findings import Finding, first, is_broken, is_faulty
from engine.doctor.variants import variants
from engine.heads.names import HeadName
from engine.loading.loading import LoadedModel, load
from engine.loading.sources import BUNDLED_HEADS, DEFAULT_TARGET
from engine.studies.prompts.prompts import FilePrompt
from tests.helpers.heads import FORMATS, FORMS, HEADS, changed, formats_target, random_head, read, save
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import DRAFT, PROMPTS, trained

LAYERS, SHIPPED = "transformer_layer_config", BUNDLED_HEADS / "eagle3"
pytestmark = pytest.mark.usefixtures("quick_races")
Plant = Callable[[Path], tuple[str, Any]]  # makes a faulty head or model in a folder: the drafter, and the target


def head(kind: str = "eagle3", config: Any = None, tensors: Any = None, given: str = "") -> Plant:
    def plant(folder: Path) -> tuple[str, Path]:
        return f"{given or kind}:{changed(HEADS[kind], folder / 'head', config, tensors)}", TRAINED

    return plant


def reduced(tensors: Any = None) -> Plant:
    """The EAGLE-3 head with fewer words, and tables of them."""

    def few(own: dict[str, torch.Tensor]) -> None:
        num_words = len(own["lm_head.weight"])
        shuffled = torch.randperm(num_words - 1, generator=torch.Generator().manual_seed(7))
        ids = shuffled[: num_words - 100].sort().values  # never the last one, so that all offsets may be one more
        own |= {"lm_head.weight": own["lm_head.weight"][ids], "d2t": ids - torch.arange(len(ids))}
        own["t2d"] = torch.zeros(num_words, dtype=torch.bool).index_fill_(0, ids, True)
        if tensors:
            tensors(own)

    return head(config=lambda config: config.update(draft_vocab_size=config["draft_vocab_size"] - 100), tensors=few)


def draft_model(change: Callable[[dict[str, Any]], None]) -> Plant:
    """The draft model with another tokenizer."""

    def plant(folder: Path) -> tuple[str, Path]:
        made = Path(shutil.copytree(DRAFT, folder / "draft"))
        tokenizer = json.loads((made / "tokenizer.json").read_text())
        change(tokenizer["model"]["vocab"])
        (made / "tokenizer.json").write_text(json.dumps(tokenizer))
        return f"draft_model:{made}", TRAINED

    return plant


def target(**values: Any) -> Plant:
    def plant(folder: Path) -> tuple[str, Path]:
        made = Path(shutil.copytree(TRAINED, folder / "target"))
        (made / "config.json").write_text(json.dumps({**read(made).config, **values}))
        return f"eagle3:{HEADS['eagle3']}", made

    return plant


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    return lambda values: [values.pop(name, None) for name in names]  # type: ignore[return-value]


def setting(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda config: config.update(values)


def reading(ids: list[int]) -> Callable[[dict[str, Any]], None]:
    return setting(eagle_aux_hidden_state_layer_ids=ids)


def edit(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: tensors.update({name: change(tensors[name])})


def swapped(vocab: dict[str, int]) -> None:
    one, other = (next(token for token, i in vocab.items() if i == at) for at in (300, 301))
    vocab[one], vocab[other] = vocab[other], vocab[one]


def more(vocab: dict[str, int]) -> None:
    vocab["a word of another language"] = len(vocab)


def one_off(tensors: dict[str, Any]) -> None:
    del tensors["t2d"]
    tensors["d2t"] = tensors["d2t"] + 1


def fresh(tensors: dict[str, Any]) -> None:
    """Weights as before training."""
    for i, (name, value) in enumerate(sorted(tensors.items())):
        if value.is_floating_point():
            drawn = 0.02 * torch.randn(value.shape, generator=torch.Generator().manual_seed(i))
            tensors[name] = torch.ones_like(value) if "norm" in name else drawn


def unloaded(name: str) -> Callable[[dict[str, Any]], None]:
    """One table as before training, in the right shape."""
    return edit(name, lambda rows: 0.02 * torch.randn(rows.shape, generator=torch.Generator().manual_seed(0)))


def foreign(tensors: dict[str, Any]) -> None:
    """A trained head of another target: its hidden states have other directions."""
    order = torch.randperm(tensors["fc.weight"].shape[1], generator=torch.Generator().manual_seed(1))
    tensors["fc.weight"] = tensors["fc.weight"][:, order]


# Name -> the plant; the first finding's check; words of its remedy.
BY_FILES: dict[str, tuple[Plant, str, str]] = {
    "no output layer": (head(tensors=without("lm_head.weight")), "output layer", "lm_head.weight"),
    "no map of the vocabulary": (reduced(without("d2t", "t2d")), "vocabulary map", "d2t"),
    "two of three tapped layers in config.json": (head(config=reading([1, 3])), "tapped layers", "#aux=N,N,N"),
    "two of three tapped layers in fc": (
        head(tensors=edit("fc.weight", lambda fc: fc[:, : fc.shape[1] // 3 * 2].clone())),
        "tapped layers",
        "reads 2 hidden states",
    ),
    "layers of a deeper target": (head(config=reading([2, 18, 33])), "tapped layers", "#aux="),
    "a head for a narrower target": (
        head(tensors=edit("fc.weight", lambda fc: fc[:, : fc.shape[1] * 3 // 4 - 1].clone())),
        "hidden size",
        "hidden size",
    ),
    "DFlash given as EAGLE-3": (head("dflash", given="eagle3"), "format", "dflash:"),
    "a whole model given as a head": (lambda folder: (f"eagle3:{DRAFT}", TRAINED), "format", "draft_model"),
    "a sliding layer without a window": (
        head("dflash", config=lambda c: c[LAYERS].update(layer_types=["sliding_attention"] * 2)), "format", "Correct",
    ),
    "an embedding of other words": (
        head(tensors=lambda t: t.update({"embed_tokens.weight": torch.zeros(9000, t["norm.weight"].shape[0])})),
        "vocabulary",
        "tokenizer",
    ),
    "a map out of the vocabulary": (reduced(edit("d2t", lambda d: d + 10**6)), "tensors", "trained for"),
    "a map of ids instead of offsets": (
        reduced(edit("d2t", lambda d: d + torch.arange(len(d)))), "vocabulary map", "Subtract each row's number",
    ),
    "tables of two training runs": (
        reduced(edit("t2d", lambda t: t.roll(5))),
        "vocabulary map",
        "same training run",
    ),
    "a head that names another target": (
        head(config=lambda c: c["speculators_config"]["verifier"].update(name_or_path="Qwen/Qwen3-8B")),
        "trained for",
        "--target Qwen/Qwen3-8B",
    ),
    "a draft model with two tokens swapped": (draft_model(swapped), "vocabulary", "into its folder"),
    "a draft model with one more token": (draft_model(more), "vocabulary", "into its folder"),
    "a quantised target": (target(quantization_config={"quant_method": "awq"}), "target", "unquantised"),
    "a target of text and images": (
        target(model_type="mistral3", architectures=["Mistral3ForConditionalGeneration"]), "target", "another target",
    ),
}  # fmt: skip
BY_TOKENS: dict[str, tuple[Plant, str, str]] = {
    "weights never trained": (head(tensors=fresh), "weights", "trained checkpoint"),
    "a head of another target": (head(tensors=foreign), "acceptance", "exactly this target"),
    "a map one off": (reduced(one_off), "settings", "subtract 1"),
    "the residual from the wrong place": (head(config=setting(norm_before_residual=False)), "settings", "true"),
    "an embedding never loaded": (head(tensors=unloaded("embed_tokens.weight")), "embedding", "embed_tokens.weight"),
    "an output layer never loaded": (reduced(unloaded("lm_head.weight")), "output layer", "lm_head"),
    "tapped layers in another order": (  # of the head that ships: it reads its target's states well
        lambda folder: (f"eagle3:{changed(SHIPPED, folder / 'head', reading([15, 9, 2]))}", DEFAULT_TARGET),
        "settings",
        "#aux=2,9,15",
    ),
}  # fmt: skip


@cache
def default() -> LoadedModel:
    return load()


def compiled() -> LoadedModel:
    """The trained fixture as users run models: in bfloat16, by compiled kernels where there are some."""
    return trained("bfloat16")


@cache
def examined(drafter: str, target: str, with_tokens: bool) -> tuple[Finding, ...]:
    checkup = Checkup(target, drafter)
    findings = [*checkup.before_weights()]
    if with_tokens and not is_faulty(findings):
        num = {"dflash": 36, "draft_model": 16}.get(drafter.partition(":")[0], 30)  # as few as tell it from chance
        loaded, texts, num = (default, OWN[1:2], 18) if target == DEFAULT_TARGET else (compiled, PROMPTS, num)
        prompts = [FilePrompt(i, "", text) for i, text in enumerate(texts)]
        findings += checkup.with_tokens(loaded, prompts, SamplingParams(max_new_tokens=num))
    return tuple(findings)


@pytest.mark.parametrize("fault", [*BY_FILES, *(pytest.param(name, marks=pytest.mark.slow) for name in BY_TOKENS)])
def test_a_fault_is_named_first(fault: str, tmp_path: Path) -> None:
    """A drafter that cannot work is loaded all the same, or one drafts nothing right, and leaves its user guessing."""
    is_in_files = fault in BY_FILES
    plant, check, remedy = {**BY_FILES, **BY_TOKENS}[fault]
    drafter, target = plant(tmp_path)
    finding = first(examined(drafter, str(target), not is_in_files))
    level = "doubt" if check == "trained for" else "fault"
    assert finding and finding.check == check and (finding.level == level or not is_in_files), finding
    assert remedy in finding.change, finding


@pytest.mark.parametrize("drafter", [f"draft_model:{DRAFT}", "ngram", *HEADS])
def test_a_healthy_pair_has_no_fault(drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A false alarm, or a doubt about our own heads."""
    if drafter == "ngram":
        monkeypatch.setattr(compiled().tokenizer, "chat_template", None)
    findings = examined(drafter, DEFAULT_TARGET if drafter in HEADS else str(TRAINED), True)
    assert not is_faulty(findings) and (drafter not in HEADS or first(findings) is None), first(findings)
    assert any(finding.check == "worth it" for finding in findings)


@pytest.mark.parametrize(
    "place", ["checkup.target_findings", "checkup.worth", "text_kinds.text_findings", "trial.draft_findings"]
)
def test_a_check_that_raises_costs_only_itself(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One mistake in one check would take all other findings with it."""

    def bad(*arguments: object) -> None:
        raise AttributeError("no such thing")

    whole = [finding.check for finding in examined("ngram", str(TRAINED), True)]
    monkeypatch.setattr(f"engine.doctor.{place}", bad)
    findings = examined.__wrapped__("ngram", str(TRAINED), True)
    (broken,) = [finding for finding in findings if is_broken([finding])]
    assert broken.level == "untested" and "AttributeError: no such thing" in broken.says
    rest = [finding.check for finding in findings if finding != broken]
    assert len(rest) >= 2 and rest == [check for check in whole if check in rest]


ANOTHER: dict[str, Any] = {"rope_theta": 1e6}


@pytest.mark.parametrize("angles", [ANOTHER, {"rope_scaling": ANOTHER}, {"rope_theta": 1e4}, {}], ids=str)
def test_a_base_of_angles_is_compared_wherever_it_is_stated(angles: dict[str, Any], tmp_path: Path) -> None:
    """Another base than the target's, or one that is only not stated, 10,000, would cost acceptance unseen."""
    is_tried = ANOTHER in (angles, angles.get("rope_scaling"))
    drafter, _ = head(config=lambda config: config[LAYERS].update({"rope_parameters": None, **angles}))(tmp_path)
    folder = Path(drafter.partition(":")[2])
    about = read_files(str(folder)), read_files(str(TRAINED)), trained().model.get_input_embeddings().weight
    with variants("eagle3", HeadName(), folder, *about) as (trials, untested):
        assert any("rope_theta to the target's, 10000" in trial.change for trial in trials) == is_tried and not untested


def test_tables_of_another_width_are_said_to_be_untested(tmp_path: Path) -> None:
    """Nothing said would read as nothing found."""
    folder = save(tmp_path, *random_head("eagle3", **FORMS["eagle3"]["another width"]))
    about = read_files(str(folder)), read_files(str(FORMATS / "target"))
    embedding: Any = formats_target().model.get_input_embeddings().weight
    with variants("eagle3", HeadName(), folder, *about, embedding) as (_, untested):
        assert [(finding.level, finding.check) for finding in untested] == [
            ("untested", "embedding"),
            ("untested", "output layer"),
        ]
    assert all("64 wide, the head's 48" in finding.says for finding in untested)


def test_the_command_says_that_nothing_is_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    """A healthy pair's report would end in silence. Its faults are in test_files.py, as JSON."""
    healthy = ["doctor", "--target", str(TRAINED), "--drafter", f"eagle3:{HEADS['eagle3']}", "--files-only"]
    assert main(healthy) == 0 and "Nothing to change." in capsys.readouterr().out
