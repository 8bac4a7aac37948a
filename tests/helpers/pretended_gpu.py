"""A part of `python -m tools.gpu --pretend` on the stand-in for CUDA of fake_cuda.py, on any machine.

What a GPU refuses in a capture or between devices fails here; times mean nothing. Parts run torch's kernels; in the one
that forces Triton's, launches are recorded and write nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch

from tools.gpu.part import Part


def profile(**unused: Any) -> Any:
    """In the place of torch's, which knows nothing of the stand-in: one kernel of a microsecond."""
    took = SimpleNamespace(elapsed_us=lambda: 1.0)
    kernel = SimpleNamespace(name="a kernel", device_type=torch.autograd.DeviceType.CUDA, time_range=took)
    return nullcontext(SimpleNamespace(events=lambda: [kernel]))


@contextmanager
def pretended(part: Part) -> Iterator[None]:
    """While entered, this machine has a pretended GPU."""
    from engine.exactness import operators, probe
    from engine.hardware import bandwidth
    from engine.kernels.cuda import graphs, kernels, linear, tiles
    from engine.loading import loading
    from engine.runner import agreement, prepare, trial_process
    from engine.session import set_up
    from tests.helpers.fake_cuda import fake_cuda, on_cuda
    from tools.gpu import big

    read, drawn = loading._model, trial_process._drawn
    torch.set_num_threads(1)  # threads that wait for each other cost more than they compute

    def moved(source: Any, files: Any, dtype: torch.dtype, device: torch.device) -> Any:
        model = read(source, files, dtype, torch.device("cpu"))
        return on_cuda(model) if device.type == "cuda" else model

    def drawn_there(config: Any, dtype: torch.dtype, device: torch.device) -> Any:
        return on_cuda(drawn(config, dtype, torch.device("cpu")))

    with ExitStack() as stack:

        def put(owner: Any, **values: Any) -> None:
            stack.enter_context(mock.patch.multiple(owner, **values))

        put(loading, _model=moved)
        put(trial_process, _drawn=drawn_there)
        put(torch.cuda, is_bf16_supported=lambda **unused: True)
        put(agreement, DEPTHS=(17,), MOST_ROWS=2, WIDTHS=(1, 2))
        put(prepare, FAITHFUL_TOKENS=6, ROWS=4)
        put(probe, MIN_ROWS=2)
        put(operators, LINEAR_ROWS=(8, 8), ATTENTION_ROUNDS=(1, 1), ATTENTION_ROWS=8, DELTA_ROWS=4)
        put(set_up, ROUNDS=1, candidates=lambda k, *unused, **more: tuple({1, k + 1}))
        put(graphs, WARM_UPS=1)
        put(bandwidth, SECONDS=0.01, ROUNDS=1, SMALLEST=1 << 20)
        put(kernels, LARGEST_READ=1 << 20)
        put(big, profile=profile)
        stack.enter_context(mock.patch.dict(os.environ, {"PHOTOFINISH_NATIVE": "0"}))
        if part.name == "trial":  # few programs: the interpreter takes as long for a small one
            put(linear, tile_of=lambda *unused: tiles.Config(64, 64, 4, 3))
        if part.name == "race-8b":  # outputs that nothing has written agree with nothing
            put(prepare, _check_faithful=lambda *unused, **more: None, check_agreement=lambda *unused: None)
        elif part.name != "trial":
            stack.enter_context(mock.patch.dict(os.environ, {"PHOTOFINISH_TRITON": "0"}))
        stack.enter_context(fake_cuda(run_kernels=part.name == "trial"))
        yield
