"""Runs a test's own file as a program without Triton's interpreter: an interpreted kernel cannot be compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from tests.helpers import ROOT

TIMEOUT_S = 300


def run_apart(file: str) -> Any:
    """The JSON object on the last line that the program prints. Nothing that was compiled before is used."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment |= {"TRITON_CACHE_DIR": folder, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
