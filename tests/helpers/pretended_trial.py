"""engine/runner/trial_process.py on the stand-in for CUDA, where the kernels are wrong."""

import sys
from typing import Any
from unittest import mock

import torch

from tests.helpers import gpu_kernels  # noqa: F401  it switches the interpreter on
from tests.helpers.fake_cuda import fake_cuda, on_cuda


def main() -> int:
    from engine.core.errors import UnsupportedModel
    from engine.kernels.cuda import graphs
    from engine.runner import trial_process

    drawn = trial_process._drawn

    def drawn_here(config: Any, dtype: torch.dtype, device: torch.device) -> Any:
        return on_cuda(drawn(config, dtype, torch.device("cpu")))

    wrong = mock.Mock(side_effect=UnsupportedModel("it is wrong here"))
    with (
        mock.patch.multiple(trial_process, _drawn=drawn_here, check_agreement=wrong),
        mock.patch.object(graphs, "WARM_UPS", 1),
        fake_cuda(),
    ):
        return trial_process.main()


if __name__ == "__main__":
    sys.exit(main())
