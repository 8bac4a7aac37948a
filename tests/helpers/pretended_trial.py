"""engine/runner/trial_process.py on the stand-in for CUDA, where the attention is wrong. Other launches write nothing,
and count as right."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch

from tests.helpers import gpu_kernels  # noqa: F401  it switches the interpreter on
from tests.helpers.fake_cuda import fake_cuda, on_cuda


def main() -> None:
    from engine.core.errors import UnsupportedModel
    from engine.kernels.cuda import graphs
    from engine.runner import trial_process

    drawn = trial_process._drawn

    def drawn_here(config: Any, dtype: torch.dtype, device: torch.device) -> Any:
        return on_cuda(drawn(config, dtype, torch.device("cpu")))

    def agrees(prepared: Any) -> None:
        if prepared.kernels._runs("attention"):
            raise UnsupportedModel("it is wrong here")

    replaced = {"_drawn": drawn_here, "check_agreement": agrees, "_check_choice": lambda unused: None}
    with ExitStack() as stack:
        for name, value in replaced.items():
            stack.enter_context(mock.patch.object(trial_process, name, value))
        stack.enter_context(mock.patch.object(graphs, "WARM_UPS", 1))
        stack.enter_context(fake_cuda())
        trial_process.main()


if __name__ == "__main__":
    main()
