"""What a published config.json says of a model: the same as the engine says of the model itself. The engine's own look
at the configuration is switched off where the two are compared, or they would be one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from engine.errors import RaceError, UnsupportedModel, UsageError
from engine.model.attention import caches
from engine.model.published import cache_bytes, num_parameters, quantised, refusal
from engine.models.loading import load
from engine.target.prepare import prepare
from tests.helpers.hub import ask_at, config_hub
from tests.helpers.published import PUBLISHED, of_text, random_model, tiny, without_memory

SINKS, CAP, NO_TEXT = "attention sinks", "attn_logit_softcapping 50", "no causal language model"
TWO_SIZES = "attention heads of"
EXPECTED = {
    "Qwen/Qwen3-0.6B": "",
    "Qwen/Qwen3-4B": "",
    "Qwen/Qwen3-8B": "",
    "Qwen/Qwen3.5-9B": "",
    "google/gemma-3-270m": "",
    "google/gemma-3-1b-it": "",
    "google/gemma-3-27b-it": "",
    "google/gemma-2-9b-it": CAP,
    "google/gemma-4-26B-A4B-it": TWO_SIZES,
    "RedHatAI/gemma-4-31B-it-FP8-Dynamic": TWO_SIZES,
    "meta-llama/Llama-3.1-8B-Instruct": "",
    "meta-llama/Llama-3.3-70B-Instruct": "",
    "mistralai/Mistral-7B-Instruct-v0.3": "",
    "openai/gpt-oss-20b": SINKS,
    "openai/gpt-oss-120b": SINKS,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "",
    "Qwen/Qwen3-235B-A22B-Instruct-2507": "",
    "microsoft/Phi-3-mini-4k-instruct": "",
    "microsoft/Phi-3-mini-128k-instruct": "longrope",
    "allenai/Olmo-3-7B-Instruct": "",
    "Qwen/Qwen3-8B-AWQ": "",
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": "",
    "state-spaces/mamba-2.8b-hf": "no attention",
    "google-bert/bert-base-uncased": NO_TEXT,
}
"""What each architecture is refused for; "" where it is not."""
QUANTISED = {
    "RedHatAI/gemma-4-31B-it-FP8-Dynamic": "compressed-tensors",
    "openai/gpt-oss-20b": "mxfp4",
    "openai/gpt-oss-120b": "mxfp4",
    "Qwen/Qwen3-8B-AWQ": "awq",
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": "gptq",
}
SERVED = [name for name, why in EXPECTED.items() if not why]
SIZED = [*SERVED, "google/gemma-2-9b-it", "openai/gpt-oss-20b", "openai/gpt-oss-120b"]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_configuration_says_what_the_engine_does(name, monkeypatch):
    """Tens of GB would be fetched for a model that is then refused; or one that runs would be refused unseen."""
    why = refusal(PUBLISHED[name])
    assert EXPECTED[name] in why and bool(why) == bool(EXPECTED[name])
    assert refusal(tiny(PUBLISHED[name]))[:20] == why[:20]
    if "longrope" in why:
        return  # its angles change with the length: a comparison over a few tokens may or may not see it
    monkeypatch.setattr("engine.model.attention.refusal", lambda config: "")
    model = random_model(PUBLISHED[name])
    if why:
        with pytest.raises(UnsupportedModel):
            prepare(model)
    else:
        prepare(model)


@pytest.mark.parametrize("name", [name for name, why in EXPECTED.items() if why])
def test_the_engine_gives_that_reason(name):
    """The page and the command line would give different reasons for one model."""
    model = random_model(PUBLISHED[name])
    with pytest.raises(UnsupportedModel) as caught:
        prepare(model)
    assert str(caught.value) == f"{type(model).__name__} {refusal(model.config.to_dict())}"


@pytest.mark.parametrize("name", EXPECTED)
def test_quantised_weights_are_refused_from_a_folder_too(name, tmp_path):
    """The engine would pack the codes of weights as if they were weights, or ask for a package that nobody tried."""
    why = quantised(PUBLISHED[name])
    assert QUANTISED.get(name, "") in why and bool(why) == (name in QUANTISED)
    (tmp_path / "config.json").write_text(json.dumps(tiny(PUBLISHED[name])))
    with pytest.raises(
        UsageError, match="has quantised" if why and not EXPECTED[name] else EXPECTED[name] or "no weights"
    ):
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


def test_what_does_not_fit_is_refused_before_its_weights(tmp_path: Path):
    """A machine would fetch 141 GB and then run out of memory."""
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["meta-llama/Llama-3.3-70B-Instruct"]))
    with pytest.raises(RaceError, match=r"take 141\.1 GB, and cpu has"):
        load(str(tmp_path), "bfloat16", "cpu")


@pytest.mark.parametrize(
    "config", [{"model_type": "gpt2", "n_head": 4, "n_embd": 64}, {"n_heads": 2, "rope_scaling": {}}]
)
def test_other_names_for_sizes_are_left_to_the_engine(config):
    """GPT-2 runs: what cannot be told from its configuration must not count against it."""
    assert (refusal(config), quantised(config), cache_bytes(config, 1000, 17)) == ("", "", 0)


def test_a_repository_is_refused_by_its_config_alone(monkeypatch, tmp_path):
    """The command line would fetch 65 GB of gpt-oss-120b, and then say that it has sinks."""
    with config_hub(monkeypatch, PUBLISHED) as hub:
        ask_at(monkeypatch, hub.address, tmp_path)
        with pytest.raises(UsageError, match="cannot load the model 'openai/gpt-oss-120b': it has attention sinks"):
            load("openai/gpt-oss-120b", "bfloat16", "cpu")
    asked = {path for name, path in hub.asked if name == "openai/gpt-oss-120b"}
    assert asked == {"resolve/main/config.json"}
