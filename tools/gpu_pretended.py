"""For gpu_session.py --pretend: a part on the stand-in for CUDA of tests/helpers/fake_cuda.py, on any machine.

What a GPU refuses in a capture or between devices fails here; times mean nothing. Parts that judge numbers run torch's
kernels. In the others launches of our own are recorded and write nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

sys.path.append(str(Path(__file__).resolve().parent.parent))
LAUNCHING = {"widths", "widths_tuned", "tuning", "profile", "variants"}
"""Parts that measure launches of our kernels."""


class NoProfiler:
    """In the place of torch's, which knows nothing of the stand-in: a kernel of a microsecond."""

    def __init__(self, **unused: Any) -> None: ...

    def __enter__(self) -> NoProfiler:
        return self

    def __exit__(self, *unused: Any) -> None: ...

    def events(self) -> list[Any]:
        from torch.autograd import DeviceType

        return [
            SimpleNamespace(
                name="a kernel", device_type=DeviceType.CUDA, time_range=SimpleNamespace(elapsed_us=lambda: 1.0)
            )
        ]


@contextmanager
def pretended(function: str) -> Iterator[None]:
    """While entered, this machine has a pretended GPU, for that part. TRITON_INTERPRET must not be 0."""
    os.environ.setdefault("TRITON_INTERPRET", "1")
    import torch.profiler

    from engine.kernels.cuda import tuning
    from engine.models import loading
    from engine.target import prepare
    from tests.helpers.fake_cuda import fake_cuda, on_cuda

    name, read = function.partition(":")[2], loading._model

    def moved(source: Any, dtype: torch.dtype, device: torch.device) -> Any:
        return on_cuda(read(source, dtype, torch.device("cpu")))

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(loading, "_model", moved))
        stack.enter_context(mock.patch.object(torch.profiler, "profile", NoProfiler))
        stack.enter_context(
            mock.patch.dict(os.environ, {"PHOTOFINISH_TRITON": "" if name in LAUNCHING | {"smoke"} else "0"})
        )
        if name in LAUNCHING:  # outputs that nothing has written agree with nothing
            stack.enter_context(mock.patch.object(prepare, "_check_faithful", lambda *unused, **more: None))
            stack.enter_context(mock.patch.object(prepare, "check_agreement", lambda *unused: None))
        for constant in ("COLD_BYTES", "REPEATS"):
            stack.enter_context(mock.patch.object(tuning, constant, 2))
        stack.enter_context(fake_cuda(run_kernels=name == "smoke"))
        yield
