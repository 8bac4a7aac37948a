"""On a CUDA device: what the interpreter cannot show, and what no machine without one can."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


def test_small_models_are_exact_on_this_device(tmp_path: Path) -> None:
    """Kernels that race, graphs that repeat an old number, widths that are no class: tokens or rows of a lane would differ from the baseline's."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(ROOT / "tools" / "gpu_session.py"), "--small", "--out", str(tmp_path), "--parts", "correctness", "widths", "hybrid"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    correctness, widths, hybrid = (json.loads((tmp_path / f"gpu_{part}.json").read_text()) for part in ("correctness", "widths", "hybrid"))
    compared = [row for row in correctness["rows"] if "num_tokens" in row]
    assert not [row for row in correctness["rows"] if "failed" in row]
    assert {row["dtype"] for row in compared} == {"float32", "bfloat16"} and all(row["num_tokens"] for row in compared)
    for row in compared:  # float32 runs torch's own kernels: where they have no class of widths, nothing is promised
        assert not row["exact"] or row["num_tokens_different"] == row["num_rows_different"] == 0, row
    assert all(row["exact"] for row in compared if row["dtype"] == "bfloat16"), "of ours all widths are one class"
    assert all(correctness["golden"].values())
    assert widths["kernels"] and not widths["unstable"]
    assert {row["verdict"]["kind"] for row in hybrid["rows"]} == {"identical_bits"}
