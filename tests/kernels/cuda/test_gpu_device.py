"""On a CUDA device: what the interpreter cannot show, and what no machine without one can."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers import ROOT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


def test_small_models_are_exact_on_this_device(tmp_path: Path) -> None:
    """Kernels that race, graphs that repeat an old number, widths that are no class: tokens or rows of a lane would
    differ from the baseline's."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [
        sys.executable,
        str(ROOT / "tools" / "gpu_session.py"),
        "--small",
        "--out",
        str(tmp_path),
        "--parts",
        "smoke",
        "correctness",
        "widths",
        "hybrid",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads((tmp_path / "gpu_session_1.json").read_text())["parts"]
    smoke, correctness, widths, hybrid = (found[part] for part in ("smoke", "correctness", "widths", "hybrid"))
    assert not smoke["wrong"] and widths["runs"]["decoder"] == hybrid["runs"]["decoder"] == "GpuDecoder"
    assert (
        correctness["total"]["num_tokens"] > 0
        and not correctness["total"]["num_tokens_different"]
        and all(correctness["golden"].values())
    )
    assert not [row for row in correctness["rows"] if row["dtype"] == "bfloat16" and row.get("num_rows_different")], (
        "of kernels of our own; torch's, in float32, promise equal tokens"
    )
    assert all(row["equal"] for row in correctness["turns"])
    assert {row["verdict"] for row in hybrid["races"]} == {"identical_bits"}
