"""Whole steps compiled for an H100 without one: every launch that a model's step makes, and the choice of its tokens,
in a process of its own (an interpreted kernel cannot be compiled)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.helpers.apart import run_apart

pytestmark = pytest.mark.slow
ROWS = (1, 5, 8, 16)
NUM_LAYERS = 2
AROUND = {"qwen3": 3, "gemma3": 2, "qwen3_5": 3}
"""Launches besides those of layers: the first norm, of Qwen the last one too, and the head."""
OF_LAYERS = {"qwen3": 7 + 7, "gemma3": 9 + 9, "qwen3_5": 6 + 7}
"""Of the hybrid a linear layer and one of attention."""
MOST_REGISTERS = 255


def steps() -> dict[str, Any]:
    """By model and number of rows: how often each kernel was launched; and of each kernel its binaries and what the
    compiler says of them."""
    import torch
    import transformers
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    from engine.kernels.cuda.install import put_kernels
    from engine.kernels.cuda.kernels import TritonKernels
    from engine.kernels.cuda.sample import pick_rows
    from engine.kernels.torch import TorchKernels
    from engine.target.prepare import prepare
    from engine.target.target import StaticTarget
    from tests.helpers.apart import NoDevice, facts

    base = {
        "num_hidden_layers": NUM_LAYERS,
        "vocab_size": 4000,
        "max_position_embeddings": 4096,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    qwen3 = {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": False,
    }
    gemma3 = {
        "hidden_size": 640,
        "intermediate_size": 2048,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    qwen3_5 = {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "tie_word_embeddings": False,
    }
    qwen3_5 |= {
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "layer_types": ["linear_attention", "full_attention"],
    }
    models = {
        "qwen3": transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**base, **qwen3)),
        "gemma3": transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**base, **gemma3)),
        "qwen3_5": transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**base, **qwen3_5)),
    }
    run, launched, made = JITFunction.run, Counter(), {}

    def compile_only(self, *args, warmup, **kwargs):
        launched[self.__name__] += 1
        made.setdefault(self.__name__, []).append(run(self, *args, warmup=True, **kwargs))

    JITFunction.run = compile_only
    driver.set_active(NoDevice(90))
    launches: dict[str, dict[str, Any]] = {}
    for name, model in models.items():
        prepared = prepare(model.to(torch.bfloat16).eval(), TorchKernels(torch.device("cpu")))
        put_kernels(model)
        object.__setattr__(prepared, "kernels", TritonKernels(torch.device("cpu"), torch.bfloat16, against=""))
        for rows in ROWS:
            launched.clear()
            with torch.inference_mode():
                StaticTarget(prepared, 1280, (16,)).forward(torch.zeros(1, rows, dtype=torch.long), {})
            launches.setdefault(name, {})[str(rows)] = dict(launched)
    for rows in ROWS:
        for temperature in (0.0, 0.8):
            pick_rows(
                torch.zeros(rows, 151936, dtype=torch.bfloat16),
                torch.arange(151936, dtype=torch.int32),
                torch.zeros(rows, 2, dtype=torch.int32),
                temperature,
            )
    kernels = {
        name: {
            hash_: facts([kernel for kernel in its if kernel.hash == hash_])
            for hash_ in {kernel.hash for kernel in its}
        }
        for name, its in made.items()
    }
    return {"launches": launches, "kernels": kernels}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return run_apart(__file__)


@pytest.mark.parametrize("model", OF_LAYERS)
def test_a_step_is_as_few_launches_with_many_rows_as_with_one(found: dict[str, Any], model: str) -> None:
    """Every launch more is two or three microseconds a layer in which no weight is read."""
    launches = found["launches"][model]
    assert sum(launches["1"].values()) == OF_LAYERS[model] + AROUND[model], launches["1"]
    assert all(launches[str(rows)] == launches["1"] for rows in ROWS)


def test_no_kernel_of_a_step_spills(found: dict[str, Any]) -> None:
    """Spilled registers go through memory in the innermost loops."""
    assert set(found["kernels"]) >= {
        "linear_rows",
        "_attend",
        "_combine",
        "_place",
        "_normed",
        "_add_normed",
        "_delta_step",
        "_gated_norm",
        "_best_of_blocks",
        "_best_of_rows",
    }
    for name, binaries in found["kernels"].items():
        for its in binaries.values():
            assert its["spilled"] == 0 and its["registers"] <= MOST_REGISTERS, (name, its)


def test_one_binary_serves_any_number_of_rows(found: dict[str, Any]) -> None:
    """A row of a wider step would be computed by another binary, with other bits."""
    binaries = {name: len(its) for name, its in found["kernels"].items()}
    assert (
        binaries["linear_rows"] == 14
        # of Qwen the first qkv, the others, o, gate and up, down, head; of Gemma there is one qkv; of the hybrid what
        # is not Qwen's
    )
    assert binaries["_best_of_blocks"] == 2 and binaries["_best_of_rows"] == 1  # greedy, and with noise
    assert {binaries[name] for name in ("_attend", "_combine", "_place")} == {3}  # of each model's sizes one
    assert binaries["_normed"] == 2 and {binaries[name] for name in ("_add_normed", "_delta_step", "_gated_norm")} == {
        1
    }


if __name__ == "__main__":
    print(json.dumps(steps()))
