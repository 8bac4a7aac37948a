"""What a GPU would refuse, found without one: the engine's code for CUDA on a stand-in for the device
(`tests/helpers/fake_cuda.py`), which spoils the memory that graphs share."""

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core.events import Failed, Step
from engine.core.sampling.accept import Coupled
from engine.core.sampling.sampler import Sampler
from engine.core.spec import LaneSpec, RaceSpec, SamplingParams
from engine.kernels.choose import choose
from engine.kernels.cuda.available import SWITCH, reason_against
from engine.loading.loading import LoadedModel
from engine.progress import silent
from engine.runner import prepare as preparing
from engine.runner.prepared import Prepared
from engine.runner.target import StaticTarget
from engine.session import TorchRace, set_up
from engine.text import encode_prompt
from tests.helpers import fake_cuda as fake
from tests.helpers import (
    gpu_kernels,  # noqa: F401  it switches the interpreter on
    tiny,
)
from tests.helpers.cuda_races import on_device, read
from tests.helpers.fake_cuda import CUDA, fake_cuda, on_cuda
from tests.helpers.fakes import Empty, Oracle, Random, tokens_of
from tests.helpers.tiny import LENGTH, TORCH, TRAINED, fresh, random_ids
from tests.helpers.trained import DRAFT, PROMPTS, text_of

WIDTHS = (1, 4)
STEPS = [("llama", torch.bfloat16), ("gemma3", torch.float16), ("qwen3", torch.bfloat16), ("qwen3_5", torch.bfloat16)]
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0, max_new_tokens=5),
    "temperature": SamplingParams(temperature=0.8, seed=3, max_new_tokens=5),
    "top-k and top-p": SamplingParams(temperature=0.8, top_k=20, top_p=0.9, seed=3, max_new_tokens=5),
}
# How tokens are picked knows nothing of the model that made the rows: one model with every rule.
WITH_RULES = [(*STEPS[1], ["greedy"]), (*STEPS[2], [*SAMPLINGS]), (*STEPS[3], ["temperature"])]


def lane(model: Prepared, drafter: Any, params: SamplingParams) -> list[Any]:
    """The events of an audited lane, whose steps are captured."""
    target, sampler = StaticTarget(model, LENGTH, WIDTHS), Sampler(params, model.vocab_size, model.kernels)
    target.warm(random_ids(20, model.vocab_size), Coupled(sampler))
    prompt = random_ids(21, model.vocab_size)
    return tiny.lane(model, drafter, prompt, WIDTHS, params, max(WIDTHS) - 1, target=target, sample=sampler)


def committed(events: list[Any]) -> list[int]:
    return tokens_of([event for event in events if isinstance(event, Step)])


# Steps


@pytest.mark.parametrize(("name", "dtype", "rules"), WITH_RULES, ids=lambda x: str(x).removeprefix("torch."))
def test_whole_steps_run_captured_by_torchs_kernels(name, dtype, rules, monkeypatch):
    """The first step on a GPU would end in an error: a tensor left on the CPU, a question to the host in a capture,
    memory laid out otherwise than on a CPU; top-k and top-p wait for the host in every row; or a graph repeats the
    position at which it was captured."""
    monkeypatch.setenv(SWITCH, "0")
    model, on_cpu = fresh(name, dtype), preparing.prepare(fresh(name, dtype), TORCH)
    expected = {params: committed(lane(on_cpu, Empty(), params)) for params in map(SAMPLINGS.get, rules)}
    with fake_cuda() as device:
        model = preparing.prepare(on_cuda(model))
        assert not model.kernels.triton
        for params, tokens in expected.items():
            plain = lane(model, Empty(), params)
            truth = committed(plain)
            assert len(truth) == 5 and truth == tokens and plain[-1].reason == "length"
            num_graphs = len(device.captured)
            events = lane(model, Oracle(truth), params)
            steps = [e for e in events if isinstance(e, Step)]
            assert tokens_of(steps) == truth and len(steps) == 2 and steps[0].num_accepted == 3
            assert len(device.captured) > num_graphs
            assert committed(lane(model, Random(1, truth, model.vocab_size), params)) == truth


@pytest.mark.parametrize(("name", "dtype"), STEPS, ids=lambda x: str(x).removeprefix("torch."))
def test_steps_of_our_kernels_are_captured(name, dtype, monkeypatch):
    """Tensors for kernels would lie on the CPU, or be made by asking the host; or a loaded model that failed not
    find its way down to torch's. Launches write nothing here."""
    monkeypatch.setattr(preparing, "_check_faithful", lambda *unused, **more: None)
    monkeypatch.setattr(preparing, "check_agreement", lambda unused: None)
    model = fresh(name, dtype)
    with fake_cuda() as device:
        model = preparing.prepare(on_cuda(model))
        assert model.kernels.triton
        events = lane(model, Empty(), SAMPLINGS["temperature"])
        names = device.captured[-1]
        assert events[-1].reason == "length" and {"linear_rows", "_attend", "_best_of_blocks"} <= set(names)
        assert (name == "qwen3_5") == ("_delta_step" in names)
        assert not [name for name in names if "linear.default" in name or "attention" in name]
        model = preparing.lowered(model, "it failed")
        assert lane(model, Empty(), SAMPLINGS["temperature"])[-1].reason == "length"
        assert not {"linear_rows", "_attend", "_best_of_blocks", "_delta_step"} & set(device.captured[-1])
        assert model.kernels.runs(model.model).endswith("; no Triton decoder: it failed")


def test_an_older_chip_is_told_why(monkeypatch):
    """It would compile what cannot run there, or say nothing of why steps are slower."""
    monkeypatch.setattr(fake, "CAPABILITY", (7, 5))
    with fake_cuda():
        assert reason_against(CUDA) == "the device has compute capability 7.5; they need 8.0"


def test_torch_is_set_as_the_engine_needs_it():
    """cuDNN's attention prepares every shape again in each thread; TF32 makes late positions' angles others."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    torch.set_float32_matmul_precision("high")
    try:
        with fake_cuda():
            choose(CUDA).get_ready(silent)
            assert not (torch.backends.cuda.cudnn_sdp_enabled() or torch.backends.cuda.matmul.allow_tf32)
    finally:
        torch.set_float32_matmul_precision("highest")


# Races captured in graphs that share one pool

EXACT = (LaneSpec("plain", width="fastest"), LaneSpec("baseline"))
SPECULATIVE = {
    **{name: LaneSpec(name, drafter=text_of(name), k=3) for name in ("eagle3", "dflash", "draft_model")},
    "hybrid": LaneSpec("hybrid", drafter=f"hybrid:ngram+{text_of('eagle3')}", k=3),
}


@cache
def on_cpu(folder: Path) -> LoadedModel:
    """A fixture on the CPU, run by torch's kernels."""
    loaded = read(folder)
    loaded = replace(loaded, model=copy.deepcopy(loaded.model), _attached={})
    loaded.attached("prepared", lambda: preparing.prepare(loaded.model, TORCH))
    return loaded


def steps_of(loaded: LoadedModel) -> dict[str, list[Step]]:
    """The steps of each lane, without times and bits."""
    params = SamplingParams(0.7, 20, 0.9, seed=2, max_new_tokens=16)
    spec = RaceSpec((*EXACT, *SPECULATIVE.values()), params, audit=True)
    race = TorchRace(loaded, spec, encode_prompt(loaded.tokenizer, PROMPTS[0]))
    failed = [event for event in race.events() if isinstance(event.event, Failed)]
    assert not failed, failed
    without = {"draft_s": 0.0, "verify_s": 0.0, "checksums": ()}
    return {name: [replace(step, **without) for step in lane.steps] for name, lane in race.lanes.items()}


def test_a_captured_race_drafts_and_writes_what_one_on_the_cpu_does(quick, monkeypatch):
    """A draft would be that of the place where it was captured, or of hidden states that another lane's graph has
    overwritten: acceptance drops, and no audit sees it, since tokens stay exact."""
    monkeypatch.setattr(set_up, "candidates", lambda *unused, **more: (1, 2, 4))
    monkeypatch.setattr(LoadedModel, "companion", lambda self, name, progress: on_cpu(DRAFT))
    expected = steps_of(on_cpu(TRAINED))
    with fake_cuda():
        draft = on_device(DRAFT)
        monkeypatch.setattr(LoadedModel, "companion", lambda self, name, progress: draft)
        steps = steps_of(on_device())
    for name in SPECULATIVE:
        assert steps[name] == expected[name] and sum(step.num_accepted for step in expected[name]) > 0, name
