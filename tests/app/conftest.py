"""What the page's tests without a browser share."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from app.jobs import studies
from app.jobs.recorded import recorded_view
from app.page import handlers
from tests.helpers.pure_js import pure_js


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies look for news a hundred times a second."""
    monkeypatch.setattr(studies, "TICK_S", 0.01)


@pytest.fixture(autouse=True, scope="session")
def shipped_races_are_read_once() -> Iterator[None]:
    """Every page that is built reads and checks all shipped recordings, which is most of the time that takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handlers, "recorded_view", cache(recorded_view))
        yield


@pytest.fixture(scope="module")
def pure(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Calls functions of the page's program: those that the file's MODULES have, see `pure_js`."""
    with pure_js(*request.module.MODULES) as call:
        yield call
