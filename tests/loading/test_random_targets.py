"""Random weights of a published shape: always the same, on the device at once, and named as what they are."""

import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from app.catalogue.catalogue import load_pairs
from app.jobs.loader import ModelStatus
from app.page.sentences import model_line
from engine.cli.report import print_report
from engine.core.errors import PhotofinishError, UsageError
from engine.core.spec import RANDOM
from engine.kernels.cuda.kernels import CudaKernels
from engine.kernels.processor import free_bytes
from engine.layers.published import quantised, refusal
from engine.loading import random_targets
from engine.loading.default_model import NAME
from engine.loading.loading import load
from engine.loading.random_targets import (
    ENDS,
    LICENCE,
    bytes_tokenizer,
    config_file,
    shipped,
    shipped_config,
    tokenizer,
)
from engine.loading.sources import find
from engine.recordings.recording import Recording
from engine.runner.target import StaticTarget
from engine.text import Pieces, end_token_ids
from tests.helpers.races import fixed_race
from tests.helpers.tiny import TRAINED

PUBLISHED = {
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3.5-9B": 8_953_803_264,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B-Instruct-2507": 235_093_634_560,
    "google/gemma-3-270m": 268_098_176,
    "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "openai/gpt-oss-20b": 20_914_757_184,
    "openai/gpt-oss-120b": 116_829_156_672,
}  # parameters as the owners count them (Qwen3.5-9B: its language model)
TINY = {
    "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 600,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": False,
    "max_position_embeddings": 1024, "eos_token_id": [3, 4], "torch_dtype": "float32",
    "quantization_config": {"quant_method": "fp8"}, "auto_map": {"AutoConfig": "own.Config"},
}  # fmt: skip


@pytest.fixture
def config(tmp_path) -> Path:
    """A configuration of a tiny shape, with all that a published one may carry."""
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    return path


def test_every_shape_that_ships_has_its_published_size():
    """A speed would be claimed for a model of another size."""
    assert set(shipped()) == set(PUBLISHED)
    for name, num_parameters in PUBLISHED.items():
        model = random_targets._without_memory(config_file(RANDOM + name), torch.bfloat16)
        assert sum(weight.numel() for weight in model.parameters()) == num_parameters, name
        assert {weight.device.type for weight in model.parameters()} == {"meta"}


def test_the_targets_that_can_be_raced_in_bf16_have_a_shape():
    """A preset whose weights are not at hand could not be measured."""
    targets = {pair.target for pair in load_pairs()} - {NAME}
    refused = {name for name in targets if refusal(shipped_config(name)) or quantised(shipped_config(name))}
    assert all(shipped_config(name) for name in targets) and targets - refused <= set(shipped())
    assert refused and not refused & set(shipped())
    ours = json.loads((config_file(RANDOM + "google/gemma-3-270m")).read_text())
    assert [kind == "full_attention" for kind in ours["layer_types"]] == [(layer + 1) % 6 == 0 for layer in range(18)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_target_is_the_same_model(config, dtype):
    """Two runs of one command would race different models; or one with quantised layers, a stranger's code or another
    precision than was asked for; or a caller's own random numbers would change."""
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    first, second = (load(f"{RANDOM}{config}", dtype, "cpu") for _ in range(2))
    assert torch.equal(torch.rand(3), wanted)
    assert first.info == second.info and first.info.dtype == dtype
    for (name, a), (_, b) in zip(first.model.named_parameters(), second.model.named_parameters(), strict=True):
        assert torch.equal(a, b) and a.dtype == getattr(torch, dtype) and not a.requires_grad, name
    assert not first.model.training and not {"quantization_config", "auto_map"} & first.model.config.to_dict().keys()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_its_logits_are_finite_and_depend_on_what_was_said(config, dtype):
    """A model that always says the same, or nothing that is a number, exercises neither acceptance nor exactness."""
    target = StaticTarget(load(f"{RANDOM}{config}", dtype, "cpu").prepared, 256, (4,))
    logits = target.extend([1, 2, 3, 4], 4)[0].float().clone()
    target.rollback(0)
    others = target.extend([5, 2, 3, 4], 4)[0].float()
    assert torch.isfinite(logits).all() and (logits.std(dim=-1) > 0.01).all()
    assert len(set(logits.argmax(-1).tolist())) > 1 and not torch.equal(logits[3], others[3])


def test_it_is_labelled_wherever_it_is_recorded_or_shown(config):
    """A random model's figures would pass for the real one's."""
    info = load(f"{RANDOM}{config}", "float32", "cpu").info
    assert info.name == f"{RANDOM}{config}" and info.licence == LICENCE and "random" in info.licence
    assert info.digest.startswith("random-") and info.digest != find(f"{RANDOM}Qwen/Qwen3-8B").digest
    assert "RANDOM WEIGHTS" in model_line(ModelStatus(info.name, "ready", "", None))
    assert "RANDOM" not in model_line(ModelStatus(NAME, "ready", "", None))
    recording = fixed_race()
    recording["model"] |= {"name": info.name, "licence": info.licence}
    with (console := Console(width=200)).capture() as shown:
        print_report(console, Recording.of(recording))
    assert "RANDOM WEIGHTS" in shown.get() and "weights are random" in shown.get()


def test_nothing_ends_a_random_text_but_its_length(config):
    """Lanes would end by chance, at an end token that means nothing to random weights."""
    loaded = load(f"{RANDOM}{config}", "float32", "cpu")
    assert end_token_ids(loaded.model.config, loaded.model.generation_config, loaded.tokenizer) == frozenset()
    assert all(getattr(loaded.model.config, name) is None for name in ENDS)


@pytest.mark.parametrize("text", ["plain", "naïve 猫 🦊\n\ttabs", "  two  spaces ", "⟨300⟩"])
@pytest.mark.parametrize("num_words", [256, 600, 151_936])
def test_any_text_becomes_ids_of_the_vocabulary_and_back(text, num_words):
    """A prompt as text could not be raced with a shape whose own tokenizer is not at hand."""
    made = bytes_tokenizer(num_words)
    ids = made(text)["input_ids"]
    assert len(made) == num_words and ids and max(ids) < 256 and made.decode(ids) == text
    assert "".join(Pieces(made, []).push(ids)) == text
    if num_words > 300:
        assert "".join(Pieces(made, ids).push([299])) == "⟨299⟩"


def test_a_folders_own_tokenizer_comes_first_and_a_tiny_vocabulary_is_told(config):
    """Ids beyond the vocabulary, or another model's words for a folder that brings its own."""
    ours, own = tokenizer(TRAINED / "config.json"), load(str(TRAINED), "float32").tokenizer
    assert ours("def main")["input_ids"] == own("def main")["input_ids"]
    assert len(tokenizer(config)) == TINY["vocab_size"]
    config.write_text(json.dumps(TINY | {"vocab_size": 255}))
    with pytest.raises(UsageError, match="vocabulary of 255"):
        load(f"{RANDOM}{config}", "float32", "cpu")


@pytest.mark.parametrize("name", ["", "Qwen/Qwen3-9B", "nothing/here.json", "../configs", "\0", "x" * 300])
def test_an_unknown_shape_names_those_there_are(name):
    """The visitor would have to guess; and a name must never reach the hub."""
    with pytest.raises(UsageError) as caught:
        load(f"{RANDOM}{name}", "float32", "cpu")
    assert all(shape in str(caught.value) for shape in shipped()) and "\n" not in str(caught.value)


DAMAGES = {
    "no model_type": json.dumps({key: value for key, value in TINY.items() if key != "model_type"}),
    "an unknown model_type": json.dumps(TINY | {"model_type": "nonesuch"}),
    "no language model": json.dumps({"model_type": "vit", "vocab_size": 600}),
    "words for numbers": json.dumps(TINY | {"hidden_size": "wide"}),
    "heads that do not fit": json.dumps(TINY | {"num_attention_heads": 0}),
    "a number twice": '{"model_type": "qwen3", "model_type": "llama"}',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_configuration_is_one_clear_line(config, damage):
    """The visitor would see a traceback, or race something else than was asked for."""
    config.write_text(DAMAGES[damage])
    with pytest.raises(PhotofinishError) as caught:
        load(f"{RANDOM}{config}", "float32", "cpu")
    assert isinstance(caught.value, UsageError) and "\n" not in str(caught.value) and config.name in str(caught.value)


def test_blocks_that_torch_keeps_and_does_not_use_are_free(monkeypatch):
    """A second model on a GPU would be refused although torch has let go of the first."""
    figures = {"mem_get_info": (7 << 30, 80 << 30), "memory_reserved": 60 << 30, "memory_allocated": 2 << 30}
    for name, value in figures.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert CudaKernels(torch.device("cuda", 0), None).free_bytes() == (7 + 60 - 2) << 30


V2, V1 = "sys/fs/cgroup/memory", "sys/fs/cgroup/memory/memory"
UNLIMITED = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:       4 kB\n", f"{V2}.max": "max", f"{V2}.current": "5"}
IN_V2 = {f"{V2}.max": "5000", f"{V2}.current": "4000", f"{V2}.stat": "anon 1\ninactive_file 1500\n"}
IN_V1 = {f"{V1}.limit_in_bytes": "5000", f"{V1}.usage_in_bytes": "4000", f"{V1}.stat": "total_inactive_file 1500\n"}


@pytest.mark.parametrize(("files", "free"), [({}, 4096), (IN_V2, 2500), (IN_V1, 2500)])
def test_memory_ends_where_a_containers_limit_ends(files, free, tmp_path):
    """A model larger than a container would be begun, and the process be killed without a word."""
    assert free_bytes(tmp_path) > 10**18
    for name, content in {**UNLIMITED, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert free_bytes(tmp_path) == free
