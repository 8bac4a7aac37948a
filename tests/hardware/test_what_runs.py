"""What runs a model's steps is told from its modules, in words, in recordings and in the terminal."""

import copy
import io
from typing import Any

import pytest
import torch
from rich.console import Console

from engine.cli.report import print_report
from engine.core.errors import UsageError
from engine.kernels.cpu import build
from engine.kernels.cuda import decoder
from engine.kernels.cuda.available import SWITCH
from engine.kernels.cuda.kernels import CudaKernels
from engine.kernels.torch import cpu_name
from engine.layers import decoder as fused_decoder
from engine.recordings.check import check
from engine.recordings.compare import compare
from engine.recordings.recording import Recording, checked, summary
from engine.recordings.recording import build as record
from engine.runner.prepare import prepare
from engine.runner.prepared import Prepared
from tests.helpers import races
from tests.helpers.gpu_kernels import TRITON
from tests.helpers.gpu_models import fresh as fresh_small
from tests.helpers.native_kernels import needs_kernels
from tests.helpers.tiny import PACKED, TORCH, fresh
from tests.helpers.trained import race

CUDA = torch.device("cuda", 0)


def sentence(model: Any, kernels: Any) -> str:
    return what_runs(prepare(model, kernels))


def what_runs(prepared: Prepared) -> str:
    return prepared.kernels.runs(prepared.model)


def test_each_way_to_run_a_step_has_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slower path would be taken for a faster one, in print and in every recording."""
    by_torch = "steps run by FusedDecoder (torch); linears: 13 {}; attention: torch's"
    assert sentence(fresh("qwen3"), TORCH) == by_torch.format("torch")
    assert sentence(fresh("qwen3"), PACKED) == by_torch.format("packed by oneDNN")
    assert sentence(fresh("qwen3_5"), TORCH).startswith("steps run by HybridDecoder (torch); ")
    monkeypatch.setattr(fused_decoder, "DECODERS", set())
    assert sentence(fresh("qwen3"), TORCH).startswith("steps run by Qwen3Model (transformers' own); ")


@needs_kernels
def test_compiled_kernels_are_told() -> None:
    """The same, for what is compiled."""
    made = prepare(fresh("trained", torch.bfloat16), PACKED)
    whole = "steps run by NativeDecoder (compiled C, a whole step in one call); linears: "
    last = f" compiled C{' with AMX' * build.has_tiles()}; attention: ours, compiled C"
    assert what_runs(made).startswith(whole) and what_runs(made).endswith(last)


def test_triton_kernels_are_told_and_why_a_decoder_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of six times as many launches would be called Triton's, and nobody would know what to mend."""
    by_triton = "linears: 5 Triton; attention: ours, Triton"
    assert sentence(fresh_small("qwen3"), TRITON) == f"steps run by GpuDecoder (Triton); {by_triton}"
    monkeypatch.setattr(decoder, "MOST_HEAD_DIM", 8)
    made, why = prepare(fresh_small("qwen3"), TRITON), "its heads have 16 numbers, more than 8"
    assert what_runs(made) == f"steps run by FusedDecoder (torch); {by_triton}; no Triton decoder: {why}"
    monkeypatch.setenv(SWITCH, "0")
    for kernels, why in (
        (CudaKernels(CUDA, torch.bfloat16), f"{SWITCH} is 0"),
        (TRITON.lower("it is wrong"), "it is wrong"),
    ):
        assert kernels is not None and kernels.runs(made.model).endswith(f"; no Triton decoder: {why}")


def test_what_ran_is_recorded_printed_and_compared() -> None:
    """Who reads a recording would not see which decoder its times are of."""
    made = race()
    recording = checked(record(made.header(), list(made.events()), made.result()).text.encode())
    sentence = recording["runs"]["sentence"]
    assert sentence == what_runs(made.prepared)
    assert summary(Recording.of(recording))["runs"] == sentence
    out = io.StringIO()
    print_report(Console(file=out, width=1000, highlight=False), Recording.of(recording))
    assert sentence in out.getvalue()
    other = copy.deepcopy(recording)
    other["runs"]["sentence"] = "steps run by another"
    differences = compare(Recording.of(recording), Recording.of(other))["differences"]
    assert differences == [f"what runs: {sentence} there, steps run by another here"]


def test_an_old_recording_is_read_and_one_of_another_shape_is_not() -> None:
    """Recordings from before would be refused; or a stranger's be printed as it is."""
    old = races.fixed_race()
    check(old)
    assert summary(Recording.of(old))["runs"] is None
    print_report(Console(file=io.StringIO()), Recording.of(old))
    for wrong in (7, [], {"decoder": "x"}, {"sentence": None}, {"sentence": "x" * 20_000}):
        with pytest.raises(UsageError, match="runs"):
            check({**old, "runs": wrong})


def test_two_machines_of_one_name_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cloud processors are all "AMD EPYC": `verify` would blame a file, a study go on with rows of two machines."""

    def named(name: str, family: str, model: str) -> str:
        entries = {"model name": name, "cpu family": family, "model": model}
        monkeypatch.setattr("engine.kernels.torch.cpu_info", lambda entry: entries[entry])
        return cpu_name()

    zen3, zen5 = named("AMD EPYC", "25", "1"), named("AMD EPYC", "26", "2")
    assert zen3.startswith("AMD EPYC (family 25, model 1), ") and zen5.startswith("AMD EPYC (family 26, model 2), ")
    assert named("AMD EPYC 9R14", "25", "17").startswith("AMD EPYC 9R14, "), "a name that says which it is stays"
