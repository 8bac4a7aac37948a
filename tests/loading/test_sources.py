"""Where models come from: a path is never looked up elsewhere, a hub repository is recorded with its commit, and a
published config.json says what the engine will say of the model."""

import copy
import json
import re
import shutil
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto import modeling_auto

from engine.core.errors import RaceError, UnsupportedModel, UsageError
from engine.kernels.cpu.kernels import CpuKernels
from engine.kernels.torch import Kernels
from engine.layers.attention import caches
from engine.layers.published import NEVER_ALONE, WRITES, cache_bytes, num_parameters, quantised, refusal, unpacking
from engine.loading.loading import load
from engine.loading.sources import find, hub_names
from engine.runner.prepare import prepare
from tests.helpers import sha256
from tests.helpers.hub import COMMIT, ask_at, config_hub
from tests.helpers.published import PUBLISHED
from tests.helpers.tiny import TRAINED

PATHS = ("/no/such", "./no", "../no", "~/no-such-model", ".", "", "\0", "a", "a/b/c", "a//b", "-a/b", "a/b@", "C:\\x")
ODD = ("a b/c", "http://a/b", "é/b")


@pytest.mark.parametrize("address", ("https://huggingface.co/{}", "huggingface.co/{}/tree/main", "hf.co/{}/?a=b"))
@pytest.mark.parametrize("text", ("Qwen/Qwen3", "hybrid:ngram+eagle3:a/b#aux=2,9", "ngram,eagle3:a/b,dflash:d/e"))
def test_an_address_on_the_hub_is_a_name(address, text):
    """What a newcomer copies from the browser would be an unknown model; or a folder of that name become another."""
    assert hub_names(re.sub(r"[\w.-]+/[\w.-]+", lambda name: address.format(name[0]), text)) == text
    assert hub_names("https://huggingface.co/a/b/blob/v2/config.json") == "a/b@v2"
    for path in (*PATHS, *ODD, "/data/hf.co/a/b", "./huggingface.co/a/b", "~/hf.co/a/b", "https://hf.co/datasets/a/b"):
        assert hub_names(path) == path


@pytest.mark.parametrize("target", [*PATHS, *ODD])
def test_what_is_no_repository_name_never_reaches_the_hub(target, monkeypatch, tmp_path):
    """A private path would be sent to a stranger's server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **k: pytest.fail(f"the hub was asked for {a}"))
    with pytest.raises(UsageError, match=r"no model at|unknown model|is no model"):
        load(target)


def test_what_exists_on_disk_never_reaches_the_hub(tmp_path, monkeypatch):
    """A repository of the same name would replace a folder, or a file be looked up there."""
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **k: pytest.fail(f"the hub was asked for {a}"))
    shutil.copytree(TRAINED, tmp_path / "model")
    monkeypatch.chdir(tmp_path.parent)
    name = tmp_path.name
    assert load(f"{name}/model", "float32").info.name == f"{name}/model"
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for other, words in ((f"{name}/empty", "no config"), (f"{name}/file", "is a file"), ("./none", "no such folder")):
        with pytest.raises(UsageError, match=words):
            load(other)


def test_the_licence_is_the_model_cards(tmp_path):
    """A licensed model would be shown without its terms."""
    (tmp_path / "config.json").touch()
    for card, licence in (
        (None, "not stated"),
        ("# x", "not stated"),
        ("---\ntags: a\nlicense: apache-2.0\n---\n", "apache-2.0"),
        ("---\nlicense: 'mit'\n---\nlicense: no", "mit"),
    ):
        if card is not None:
            (tmp_path / "README.md").write_text(card)
        assert find(str(tmp_path)).licence == licence


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub on this machine with one repository, and an empty cache of it."""
    with config_hub(monkeypatch, {"owner/tiny": TRAINED}) as running:
        ask_at(monkeypatch, running.address, tmp_path / "hub")
        yield running


@pytest.mark.parametrize("target", ["owner/tiny", "owner/tiny@v1"])
def test_a_hub_repository_loads_with_its_commit(hub, target, capfd, monkeypatch):
    """A record would not say which version of a model ran; progress would be the hub client's own bars."""
    said = []
    loaded = load(target, "float32", progress=lambda stage, share: said.append((stage, share)))
    assert capfd.readouterr() == ("", "")
    digest = sha256(TRAINED / "model.safetensors")
    assert (loaded.info.name, loaded.info.revision, loaded.info.digest) == (target, COMMIT, digest)
    expected = AutoModelForCausalLM.from_pretrained(TRAINED, dtype=torch.float32)
    assert all(torch.equal(loaded.model.get_parameter(name), value) for name, value in expected.named_parameters())
    assert any("fetching" in stage and share is not None for stage, share in said)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # without a network, what was fetched serves
    assert load(target, "float32").info == loaded.info


@pytest.mark.parametrize(
    ("target", "is_offline"), [("owner/nonesuch", False), ("owner/tiny@nonesuch", False), ("owner/tiny", True)]
)
def test_what_cannot_be_fetched_is_one_clear_line(hub, target, is_offline, monkeypatch):
    """The visitor would see the client's traceback and advice for its programmers, also where there is no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", is_offline)
    with pytest.raises(UsageError, match=f"cannot fetch '{target}' from the hub: .*choose gemma-3-270m") as caught:
        load(target)
    assert "\n" not in str(caught.value)


# Published configurations: the engine's own look at them is switched off where the two are compared

# A tiny model's sizes: what makes an architecture stays as it is. Positions beyond the original ones come soon.
SIZES = {
    "hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32, "head_dim": 16, "global_head_dim": 32,
    "num_attention_heads": 4, "num_global_key_value_heads": 1, "num_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2, "experts_per_token": 2, "top_k_experts": 2, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "vocab_size": 2048,
    "vocab_size_per_layer_input": 2048, "query_pre_attn_scalar": 16, "time_step_rank": 8, "n_layer": 4, "depth": 1,
    "num_heads": 4, "out_hidden_size": 64, "image_size": 28, "original_max_position_embeddings": 128,
}  # fmt: skip
SOME_LAYERS, WORD = 3, 2000


def tiny(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same architecture with few layers, at least one of each type, and small ones."""
    made = copy.deepcopy(dict(config))
    for name, value in config.items():
        if name.endswith("_config") and isinstance(value, Mapping) and name != "quantization_config":
            made[name] = tiny(value)
        elif name in SIZES and value is not None:
            made[name] = SIZES[name]
        elif name == "num_key_value_heads":
            made[name] = max(1, value * SIZES["num_attention_heads"] // config["num_attention_heads"])
        elif name.endswith(("token_id", "token_index")):
            made[name] = None if name.startswith(("bos", "eos", "pad")) else WORD
        elif name in ("rope_scaling", "rope_parameters") and value:
            made[name] = {**value, **{key: value[key][:8] for key in ("long_factor", "short_factor") if key in value}}
            if "mrope_section" in value:
                made[name]["mrope_section"] = [1, 1, 0]
    if types := config.get("layer_types"):
        made["layer_types"] = types[: max(SOME_LAYERS, *(types.index(kind) + 1 for kind in types))]
    if "num_hidden_layers" in config:
        made["num_hidden_layers"] = len(made.get("layer_types") or range(SOME_LAYERS))
    return made


def without_memory(config: Mapping[str, Any]) -> PreTrainedModel:
    """transformers' model of that configuration, on no device."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(_config(config), dtype=torch.bfloat16)


def random_model(config: Mapping[str, Any]) -> PreTrainedModel:
    """A tiny model of that architecture, its weights drawn large enough that logits spread."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(_config(tiny(config)), dtype=torch.float32)
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.15)
    return model.eval()


def _config(raw: Mapping[str, Any]) -> Any:
    kept = {name: value for name, value in raw.items() if name != "quantization_config"}
    config = CONFIG_MAPPING[raw["model_type"]].from_dict(kept)
    for part in (config, config.get_text_config()):
        part.bos_token_id = part.eos_token_id = part.pad_token_id = None
    return config


def of_text(model: PreTrainedModel) -> int:
    """Weights of its language model."""
    weights = model.named_parameters()
    return sum(weight.numel() for name, weight in weights if "vision" not in name and "multi_modal" not in name)


RUN = """
    Qwen/Qwen3-0.6B Qwen/Qwen3-1.7B Qwen/Qwen3-4B Qwen/Qwen3-8B Qwen/Qwen3.5-9B google/gemma-3-270m
    google/gemma-3-1b-it google/gemma-3-27b-it meta-llama/Llama-3.1-8B-Instruct meta-llama/Llama-3.3-70B-Instruct
    mistralai/Mistral-7B-Instruct-v0.3 openai/gpt-oss-20b openai/gpt-oss-120b Qwen/Qwen3-30B-A3B-Instruct-2507
    Qwen/Qwen3-235B-A22B-Instruct-2507 microsoft/Phi-3-mini-4k-instruct microsoft/Phi-3-mini-128k-instruct
    allenai/Olmo-3-7B-Instruct Qwen/Qwen3-8B-AWQ Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4
"""
SERVED = RUN.split()
EXPECTED = dict.fromkeys(SERVED, "") | {
    "google/gemma-2-9b-it": "attn_logit_softcapping 50",
    **dict.fromkeys(("google/gemma-4-26B-A4B-it", "RedHatAI/gemma-4-31B-it-FP8-Dynamic"), "attention heads of"),
    "state-spaces/mamba-2.8b-hf": "no attention",
    "google-bert/bert-base-uncased": "no causal language model",
}  # what each architecture is refused for; "" where it is not
QUANTISED = {"Qwen/Qwen3-8B-AWQ": "awq", "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": "gptq"}
SIZED = [*SERVED, "google/gemma-2-9b-it"]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_configuration_says_what_the_engine_does(name, monkeypatch):
    """Tens of GB would be fetched for a model that is then refused, or a good one be refused unseen."""
    why = refusal(PUBLISHED[name])
    assert EXPECTED[name] in why and bool(why) == bool(EXPECTED[name])
    assert refusal(tiny(PUBLISHED[name]))[:20] == why[:20]
    model = random_model(PUBLISHED[name])
    if not why:
        prepare(model)
        return
    with pytest.raises(UnsupportedModel) as caught:
        prepare(model)
    assert str(caught.value) == f"{type(model).__name__} {refusal(model.config.to_dict())}"
    monkeypatch.setattr("engine.layers.attention.refusal", lambda config: "")
    with pytest.raises(UnsupportedModel):
        prepare(random_model(PUBLISHED[name]))


@pytest.mark.parametrize("name", EXPECTED)
def test_quantised_weights_are_refused_from_a_folder_too(name, tmp_path):
    """The engine would pack the codes of weights as if they were weights, or ask for a package that nobody tried."""
    why = quantised(PUBLISHED[name])
    assert QUANTISED.get(name, "") in why and bool(why) == (name in QUANTISED)
    assert ("; a server keeps" in unpacking(PUBLISHED[name])) == (not why and "quantization_config" in PUBLISHED[name])
    (tmp_path / "config.json").write_text(json.dumps(tiny(PUBLISHED[name])))
    with pytest.raises(UsageError, match=EXPECTED[name] or ("has quantised" if why else "no weights")):
        load(str(tmp_path), "float32", "cpu")


@pytest.mark.parametrize("name", SIZED)
def test_weights_are_counted_as_transformers_counts_them(name):
    """A model that does not fit would be offered, or one that fits refused."""
    counted = of_text(without_memory(PUBLISHED[name]))
    assert counted * 0.995 <= num_parameters(PUBLISHED[name]) <= counted * 1.005


@pytest.mark.parametrize("name", SERVED)
def test_a_cache_is_as_large_as_the_engine_makes_it(name):
    """As above: at the longest race the caches of all lanes are as much as half the weights."""
    shape = prepare(random_model(PUBLISHED[name])).shape
    made = caches(shape, 512, 17, torch.bfloat16, torch.device("cpu"))
    num_bytes = sum(side.nbytes for layer in made for side in layer)
    inputs = sum(made[layer][1].nbytes for layer in shape.linear.layers) if shape.linear else 0
    assert cache_bytes(tiny(PUBLISHED[name]), 512, 17) == num_bytes - inputs


@pytest.mark.parametrize(
    "config", [{"model_type": "gpt2", "n_head": 4, "n_embd": 64}, {"n_heads": 2, "rope_scaling": {}}]
)
def test_other_names_for_sizes_are_left_to_the_engine(config):
    """GPT-2 runs: what cannot be told from its configuration must not count against it."""
    assert (refusal(config), quantised(config), cache_bytes(config, 1000, 17)) == ("", "", 0)


def test_what_transformers_loads_as_no_language_model_is_refused_by_name():
    """What has no decoder of its own would be fetched whole, and then refused in transformers' words; or what has one,
    such as LLaVA, which states hardly a size of it, be refused, or be said to take no memory."""
    for kind, name in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.items():
        runs = kind in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        alone = kind not in NEVER_ALONE and any(part in name for part in WRITES)
        for text, loads in (("nonesuch", False), ("llama", runs or alone)):
            why = refusal(config := {"model_type": kind, "architectures": [name], "text_config": {"model_type": text}})
            assert (name not in why) == loads, (kind, text, why)
    assert num_parameters(config) == pytest.approx(6_738_415_616, rel=1e-3)  # what a part leaves out is as in its type


NUM = num_parameters(PUBLISHED["Qwen/Qwen3-8B"])
TOO_LARGE = rf"{4 * NUM / 1e9:.1f} GB in float32, and cpu has {3 * NUM / 1e9:.1f} GB"


@pytest.mark.parametrize(
    ("name", "dtype", "free", "why"),
    [
        ("google/gemma-2-9b-it", "bfloat16", 200 * 10**9, "it caps its attention"),
        ("openai/gpt-oss-120b", "bfloat16", 200 * 10**9, r"take 233\.6 GB in bfloat16, and cpu"),
        ("random:Qwen/Qwen3-8B", "bfloat16", 16 * 10**9, r"take 16\.4 GB in bfloat16, and cpu has 16\.0 GB free"),
        ("Qwen/Qwen3-8B", "auto", 3 * NUM, TOO_LARGE),
        ("Qwen/Qwen3-8B", "bfloat16", 3 * NUM, "has no weights"),  # it fits, and this hub has none
    ],
)
def test_a_model_is_refused_by_its_config_alone(name, dtype, free, why, monkeypatch, tmp_path):
    """The command line would fetch 18 GB of Gemma 2, and then say that it does not run; or 65 GB of 4 bits, and then
    run out of memory for 16; or, on an older card without bfloat16, the 16 GB of an 8B model that takes 32 there. Or
    random weights be drawn until the system kills the process."""
    monkeypatch.setattr(Kernels, "free_bytes", lambda self: free)
    monkeypatch.setattr(CpuKernels, "best_dtype", lambda self: "float32")
    with config_hub(monkeypatch, PUBLISHED) as hub:
        ask_at(monkeypatch, hub.address, tmp_path)
        with pytest.raises((UsageError, RaceError), match=why):
            load(name, dtype, "cpu")
    asked = {path for asked_for, path in hub.asked if asked_for == name}
    assert (asked <= {"resolve/main/config.json"}) == (why != "has no weights")
