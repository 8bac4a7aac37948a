"""Races on the stand-in for CUDA."""

from __future__ import annotations

import pytest

from engine.kernels.cuda.available import SWITCH
from tests.helpers.cuda_races import quick_races


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, few_rows: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """On torch's kernels. What the probe finds is the same in all tests."""
    quick_races(monkeypatch, tmp_path_factory.getbasetemp() / "quick_races")
    monkeypatch.setenv(SWITCH, "0")
