"""The pretended device itself: what a GPU refuses is refused, and a graph repeats what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.errors import RaceError
from engine.kernels.cuda.available import SWITCH
from engine.kernels.cuda.graphs import FixedCall
from engine.target.target import StaticTarget
from tests.helpers import (
    gpu_kernels,  # noqa: F401  it switches the interpreter on
)
from tests.helpers.cuda_races import fresh, ready
from tests.helpers.fake_cuda import CUDA, CudaTensor, fake_cuda
from tests.helpers.tiny import LENGTH


def _there() -> Any:
    return torch.arange(6, device=CUDA)


FAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a constant on the CPU": (lambda x: x + torch.ones(6), "same device"),
    "a number on the CPU": (lambda x: x + torch.tensor(2), "a number on the host"),
    "an index on the CPU": (lambda x: x[torch.tensor([1])], "an index on the host"),
    "item": (lambda x: x[0].item(), "(item|_local_scalar_dense)"),
    "a branch": (lambda x: x if x[0] > 0 else -x, "capturing"),
    "a Python number": (lambda x: x * int(x[1]), "(item|_local_scalar_dense)"),
    "tolist": (lambda x: x.tolist(), "copy between host and device"),
    "a new tensor of a list": (lambda x: x + torch.tensor([1] * 6, device=CUDA), "copy between host and device"),
    "a write from the CPU": (lambda x: x.copy_(torch.zeros(6)), "copy between host and device"),
    "a bool index": (lambda x: x[x > 2], "a mask"),
    "nonzero": (lambda x: x.nonzero(), "nonzero"),
    "equal": (lambda x: torch.equal(x, x), "equal"),
    "random numbers": (lambda x: x + torch.randn(6, device=CUDA), "random numbers"),
    "synchronize": (lambda x: torch.cuda.synchronize(), "synchronize"),
    "numpy": (lambda x: x.numpy(), "can't convert cuda:0"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name):
    """The tests below would find nothing, since the device lets it pass."""
    function, words = FAULTS[name]
    with fake_cuda():
        x = _there()
        with (
            pytest.raises(RaceError, match=f"^a call could not be captured as a CUDA graph: .*{words}"),
            torch.inference_mode(),
        ):
            FixedCall(lambda: function(x), CUDA, name="a call")()


def test_a_fault_planted_in_a_step_is_found(monkeypatch):
    """The same, deep inside a model."""
    monkeypatch.setenv(SWITCH, "0")
    model = fresh("llama", torch.bfloat16)
    with fake_cuda():
        model = ready(model)
        head = model.model.lm_head
        forward = type(head).forward
        for fault, words in (
            (lambda out: out * torch.ones(out.shape[-1]), "same device"),
            (lambda out: out * float(out[0, 0, 0] * 0 + 1), "(item|_local_scalar_dense)"),
        ):
            monkeypatch.setattr(head, "forward", lambda x, fault=fault: fault(forward(head, x)))
            with pytest.raises(RaceError, match=f"^the step of width 4 could not be captured.*{words}"):
                StaticTarget(model, LENGTH, (4,)).warm()


def test_a_graph_repeats_what_was_recorded():
    """What is built on it would be no test of captured steps: a replay reads buffers as they are now, and hears nothing
    of Python's variables."""
    with fake_cuda() as device, torch.inference_mode():
        place, heard = torch.zeros(3, dtype=torch.long, device=CUDA), []
        call = FixedCall(lambda: (heard.append(1), (place[1:2] + torch.arange(2, device=CUDA)) * len(heard))[1], CUDA)
        assert call().tolist() == [0, 4] and len(heard) == 4  # after three warm-ups
        place[1] = 5
        out = call()
        assert isinstance(out, CudaTensor) and out.tolist() == [20, 24] and len(heard) == 4
        assert call() is out and device.graphs[-1].num_replays == 3
