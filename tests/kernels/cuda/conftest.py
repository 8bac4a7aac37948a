"""Races on the stand-in for CUDA."""

import pytest

from engine.exactness.widths import WidthClasses
from engine.kernels.cuda import graphs
from engine.kernels.cuda.available import SWITCH
from engine.session import set_up


@pytest.fixture
def quick(narrow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On torch's kernels. The probe itself is tested elsewhere; here its answer is given."""
    monkeypatch.setattr(set_up, "probe_cached", lambda *unused: WidthClasses(((1,), (4,))))
    monkeypatch.setattr(graphs, "WARM_UPS", 1)
    monkeypatch.setenv(SWITCH, "0")
