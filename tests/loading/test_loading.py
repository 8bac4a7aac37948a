"""Targets, dtypes and devices: what can be loaded is; what cannot is one clear sentence, and never sent anywhere."""

import hashlib
import json
import logging
import math
import os
import shutil
import weakref
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from app.jobs.backend import TorchBackend
from engine.core.errors import UsageError
from engine.core.events import Prompt
from engine.core.spec import LaneSpec, RaceSpec, SamplingParams
from engine.kernels.torch import Kernels
from engine.loading.loading import DTYPES, load
from engine.progress import quiet, silent
from engine.session import TorchRace
from tests.helpers import sha256
from tests.helpers.tiny import TRAINED


@pytest.fixture
def folder(tmp_path) -> Path:
    """A copy of the trained target to damage."""
    return Path(shutil.copytree(TRAINED, tmp_path / "model"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_local_folder_loads_in_the_dtype_asked_for(dtype):
    """The record would name another dtype than the one that ran, or weights other than the file's."""
    loaded = load(str(TRAINED), dtype=dtype, device="cpu")
    info = loaded.info
    assert (info.name, info.revision, info.dtype, info.device) == (str(TRAINED), "", dtype, "cpu")
    assert loaded.info.digest == sha256(TRAINED / "model.safetensors")
    for name, value in load_file(TRAINED / "model.safetensors").items():
        weight = loaded.model.get_parameter(name)
        assert torch.equal(weight, value.to(DTYPES[dtype])) and not weight.requires_grad
    assert not loaded.model.training and loaded.tokenizer("a")["input_ids"]


def test_the_page_gives_back_one_models_memory_before_it_loads_the_next(quick_races, monkeypatch):
    """A page on a GPU that goes from one 8B model to another would hold both, or what torch keeps of the first."""
    seen, backend = [], TorchBackend(dtype="float32", device="cpu")
    first = backend.loader.get(str(TRAINED), silent)
    first.model.cycle = [first.model]  # which a collection has to find, among what it was told to skip
    lanes = LaneSpec("plain", width=1), LaneSpec("baseline", width=1)
    race = TorchRace(first, RaceSpec(lanes, SamplingParams(max_new_tokens=2)), Prompt("", (1, 2, 3)))
    list(race.events())
    old = weakref.ref(first.model)
    del first, race
    monkeypatch.setattr(Kernels, "give_back_memory", lambda self: seen.append(old() is None))
    backend.loader.get(str(TRAINED.parent / "draft"), silent)
    assert seen == [True]


def test_the_digest_is_of_the_bytes(folder):
    """Two models of the same name could not be told apart; one model in another folder would look like another."""
    assert load(str(folder), "float32").info.digest == load(str(TRAINED), "float32").info.digest
    (folder / "model.safetensors").unlink()
    stock = AutoModelForCausalLM.from_pretrained(TRAINED, dtype=torch.float32)
    stock.save_pretrained(folder, max_shard_size="1MB")
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) > 1
    lines = "".join(f"{sha256(path)}  {path.name}\n" for path in files)
    loaded = load(str(folder), "float32")
    assert loaded.info.digest == hashlib.sha256(lines.encode()).hexdigest()
    assert all(torch.equal(loaded.model.get_parameter(name), value) for name, value in stock.named_parameters())
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "../model.safetensors"}}))
    with pytest.raises(UsageError, match=r"which model\.safetensors\.index\.json names"):
        load(str(folder), "float32")


def test_pickled_weights_load_but_run_nothing(folder):
    """A stranger's checkpoint would run its code on this machine."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    loaded = load(str(folder), "float32")
    assert loaded.info.digest == sha256(folder / "pytorch_model.bin")
    assert all(torch.equal(loaded.model.get_parameter(name), value) for name, value in weights.items())

    trap = folder / "trap"

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(trap),)

    torch.save({**weights, "model.norm.weight": Trap()}, folder / "pytorch_model.bin")
    with pytest.raises(UsageError, match="more than tensors"):
        load(str(folder), "float32")
    assert not trap.exists()


def test_code_in_a_folder_is_never_run(folder):
    """A stranger's model would run its code on this machine, or ask on the terminal whether it may."""
    trap = folder / "trap"
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(trap)!r})\nclass Config: pass\nclass Model: pass\n")
    config = json.loads((folder / "config.json").read_text())
    code = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    own = {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": code}
    (folder / "config.json").write_text(json.dumps(config | own))
    with pytest.raises(UsageError, match="never run here"):
        load(str(folder), "float32")
    assert not trap.exists()


WEIGHTS, POINTER = "model.safetensors", "version https://git-lfs.github.com/spec/v1"


def _with(more: str, without: str = "nothing"):
    def damage(folder: Path) -> None:
        weights = {name: value for name, value in load_file(folder / WEIGHTS).items() if without not in name}
        save_file(weights | {more: torch.ones(1)}, folder / WEIGHTS, {"format": "pt"})

    return damage


def _put(name: str, content: str = ""):
    def damage(folder: Path) -> None:
        (folder / WEIGHTS).unlink()
        (folder / name).write_text(content)

    return damage


def _change(**values):
    def damage(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | values))

    return damage


DAMAGES = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    "a config that is no JSON": (lambda folder: (folder / "config.json").write_text("{"), "cannot be used"),
    "a config that is no object": (lambda folder: (folder / "config.json").write_text("[1]"), "cannot be used"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
    "truncated weights": (lambda folder: os.truncate(folder / WEIGHTS, 100_000), "is damaged: .*download it again"),
    "a large file's pointer": (_put(WEIGHTS, POINTER), "is damaged: .*git lfs pull"),
    "a tokenizer's pointer": (lambda folder: (folder / "tokenizer.json").write_text(POINTER), "damaged.*git lfs pull"),
    "an adapter": (_put("adapter_config.json"), r"no weights.*; it has adapter_config\.json, .*merge it"),
    "a file for llama.cpp": (_put("q8.gguf"), r"no weights.*; it has q8\.gguf, "),
    "no index": (lambda folder: (folder / WEIGHTS).rename(folder / "m-1-of-2.safetensors"), "of several, whose index"),
    "a mark": (lambda folder: (folder / "tokenizer.json").write_text("\ufeff{}"), "tokenizer.json' is damaged.*BOM"),
    "settings' pointer": (lambda folder: (folder / "generation_config.json").write_text(POINTER), "n_config.*git lfs"),
    "scales of quantised weights": (_with("model.layers.0.mlp.up_proj.weight_scale"), "quantised, which config.json"),
    "names of a wrapper": (_with("_orig_mod.lm_head.weight", ".layers.1."), "missing, .*; there is _orig_mod.lm_head"),
    "weights of MLX": (_change(quantization={"group_size": 64, "bits": 4}), r"has quantised weights \(4 bits\)"),
    "another shape": (_change(vocab_size=2112), r"embed_tokens\.weight, \[2048, 128\] instead of \[2112, 128\]"),
    "an unknown architecture": (_change(model_type="nonesuch"), "cannot load"),
    "no language model": (_change(model_type="vit", architectures=["ViTModel"]), "cannot load"),
    "no tokenizer": (lambda folder: [path.unlink() for path in folder.glob("tokenizer*")], "it has no tokenizer"),
    "a broken tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "cannot load"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_folder_that_is_no_model_is_one_clear_line(folder, damage, capfd):
    """The visitor would see a traceback, a wall of warnings, or a model whose missing layers are random numbers."""
    change, says = DAMAGES[damage]
    change(folder)
    with pytest.raises(UsageError, match=says) as caught:
        load(str(folder), "float32")
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


UNKNOWN = [("dtype", value) for value in ("int4", "BFLOAT16", "")]
UNKNOWN += [("device", value) for value in ("tpu", "cuda:x", "cuda:-1", "")]


@pytest.mark.parametrize(("option", "value"), UNKNOWN)
def test_unknown_dtypes_and_devices_list_the_choices(option, value):
    """The visitor would have to guess what there is."""
    with pytest.raises(UsageError, match=rf"unknown {option} .*{value}.*; choose one of: .*(float32|cpu)"):
        load(str(TRAINED), **{option: value})


def test_loading_is_silent_and_puts_every_switch_back(folder, capfd):
    """`--json` would not be JSON; the app's own logging would stay off. Odd values that change nothing stop nothing."""
    _change(bos_token_id=-1, time_step_limit=[0.0, math.inf])(folder)
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "model.layers.9.unknown": torch.zeros(1)}, folder / "model.safetensors", {"format": "pt"})
    hub = logging.getLogger("huggingface_hub")

    def switches():
        return transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled(), hub.level

    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_info()
    transformers_logging.enable_progress_bar()
    before = switches()
    said = []
    assert load(str(folder), "float32", progress=lambda stage, share: said.append((stage, share))).prepared
    assert capfd.readouterr() == ("", "")
    assert switches() == before
    assert len(said) >= 2 and all(stage and (share is None or 0 <= share <= 1) for stage, share in said)
    with pytest.raises(KeyError), quiet():
        raise KeyError
    assert switches() == before
    transformers_logging.set_verbosity(level)
