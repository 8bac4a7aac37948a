"""Every test run: no network, one thread (tests that need two ask for them: on a busy machine threads wait for each
other ten times as long as they compute, above all where they spin), and properties that try the same examples each time
(HYPOTHESIS_PROFILE=explore looks for new ones)."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton; for tests/helpers/gpu_kernels.py

# In a shell's background job: programs that tests interrupt would never notice.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import HealthCheck, settings

gc.disable()  # until all tests are collected: a third of the time that takes

COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", derandomize=True, max_examples=40, **COMMON)
settings.register_profile("explore", max_examples=500, **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Folders of files that take long. They go first: a process that begins one last would run on alone.
LONG = ("tools", "browser", "app", "kernels/cuda", "doctor", "exactness", "what_if", "studies")
# Tests that take seconds, measured with `--durations=0`: a file and a function each. They run with -m "".
SLOW = frozenset(Path(__file__).with_name("slow.txt").read_text().split())


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid.removeprefix("tests/").partition("[")[0] in SLOW:
        item.add_marker("slow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = [Path(__file__).parent / folder for folder in LONG]

    def turn(item: pytest.Item) -> int:
        return next((i for i, folder in enumerate(folders) if folder in item.path.parents), len(folders))

    items.sort(key=turn)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def little_to_collect() -> None:
    """What imports and other files' tests made stays. With it a garbage collection takes 0.3 s instead of 0.03 s, and
    setting up a race, loading a model and failing at either are collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """A switch that one test leaves set would decide which code the next tests of its process run; and how many random
    numbers it drew, which theirs are."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
    before = switches()
    yield
    assert switches() == before


def switches() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("PHOTOFINISH_", "TRITON_"))}


@pytest.fixture(scope="session")
def page_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of every served page of this run, in all its processes: what one page probed the next ones know."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "page-cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def server(page_cache: Path) -> Iterator[Any]:
    """The page on the trained fixture, one for all files of a process: starting it takes longer than most visits."""
    from tests.helpers.pageserver import served

    with served(page_cache) as running:
        yield running


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe with few rows an operator: for tests in which what it looks for is everywhere."""
    from engine.exactness import operators

    monkeypatch.setattr(operators, "LINEAR_ROWS", (16, 64))
    monkeypatch.setattr(operators, "ATTENTION_ROUNDS", (1, 2))


@pytest.fixture
def quick_races(monkeypatch: pytest.MonkeyPatch, few_rows: None) -> None:
    """Races whose widths are judged by few rows, and by a cache of their own: a new length takes seconds otherwise."""
    from engine.exactness import probe

    monkeypatch.setattr(probe, "PROBE_VERSION", "few rows")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch, few_rows: None) -> None:
    """Races of widths 1 and 4."""
    from engine.session import set_up

    monkeypatch.setattr(set_up, "candidates", lambda *unused, **more: (1, 4))
    monkeypatch.setattr(set_up, "roofline_figures", lambda *unused: None)
