"""A dry run of gpu_session.py on the stand-in for CUDA of tests/fake_cuda.py: python tools/gpu_pretended.py --out DIR --parts race correctness widths hybrid

What a GPU refuses in a capture or between devices fails here, on any machine; times mean nothing. Steps run torch's kernels, the shapes are the small ones, and
models are read on the CPU first. Minutes a part.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tests")]
os.environ |= {"PHOTOFINISH_TRITON": "0", "TRITON_INTERPRET": "1"}


def main() -> int:
    import gpu_session
    import torch
    from fake_cuda import fake_cuda, on_cuda

    from engine import loading

    read = loading._model

    def moved(source: Any, dtype: torch.dtype, device: torch.device) -> Any:
        return on_cuda(read(source, dtype, torch.device("cpu")))

    loading._model = moved  # type: ignore[assignment]
    sys.argv.append("--small")
    with fake_cuda() as device:
        failed = gpu_session.main()
    print(f"{len(device.graphs)} graphs, {device.waits} waits for the device")
    return failed


if __name__ == "__main__":
    sys.exit(main())
