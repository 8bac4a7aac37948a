"""Races on the stand-in for CUDA."""

import pytest

from engine.exactness.widths import WidthClasses
from engine.kernels.cuda.available import SWITCH
from engine.session import set_up
from tests.helpers.cuda_races import quick_races


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """On torch's kernels. The probe itself is tested elsewhere; here its answer is given."""
    quick_races(monkeypatch, tmp_path_factory.getbasetemp() / "quick_races")
    monkeypatch.setattr(set_up, "probe_cached", lambda *unused: WidthClasses(((1,), (4,))))
    monkeypatch.setenv(SWITCH, "0")
