"""The controls of a race: described once, built from that description, and read by name all the way to the race."""

from __future__ import annotations

from typing import Any

import pytest

from app.backend import TorchBackend
from app.catalogue import Catalogue, load
from app.controls import controls, pair_choices, preset_values
from app.handlers import Handlers
from app.request import RaceRequest, read_request
from app.texts import safe
from app.ui import build
from engine.errors import UsageError
from tests.helpers.machines import LARGE, SMALL
from tests.helpers.pageserver import ORDER

CATALOGUES = [load(SMALL), load(LARGE)]


def defaults(catalogue: Catalogue) -> dict[str, Any]:
    return {control.name: control.default for control in controls(catalogue)}


@pytest.mark.parametrize("catalogue", CATALOGUES, ids=["small", "large"])
def test_the_page_has_exactly_the_controls_that_are_described(catalogue) -> None:
    """A value that reaches the race under another control's name changes the race in silence. The API's names are a
    promise: ORDER has had them, in this order, since the first version."""
    page = build(catalogue, TorchBackend())
    race = next(function for function in page.fns.values() if function.api_name == "race")
    built = dict(zip(race.input_keyword_names, race.inputs, strict=True))
    assert list(built) == list(ORDER) == [control.name for control in controls(catalogue)]
    for control in controls(catalogue):
        component = built[control.name]
        shown = (type(component).__name__, component.label, component.value)
        assert shown == (control.kind, control.label, control.default)
    parameters = page.get_api_info()["named_endpoints"]["/race"]["parameters"]
    assert [each["parameter_name"] for each in parameters] == list(ORDER)


@pytest.mark.parametrize("catalogue", CATALOGUES, ids=["small", "large"])
def test_what_the_page_opens_with_can_be_raced(catalogue) -> None:
    """A page whose first click is refused; or a value that is described and then ignored, or read and not described."""
    wanted = read_request(catalogue, defaults(catalogue))
    assert isinstance(wanted, RaceRequest)
    for name in ORDER:
        with pytest.raises(KeyError, match=name):
            read_request(catalogue, {key: value for key, value in defaults(catalogue).items() if key != name})
        with pytest.raises(UsageError):
            read_request(catalogue, {**defaults(catalogue), name: object()})


@pytest.mark.parametrize("catalogue", CATALOGUES, ids=["small", "large"])
def test_a_preset_sets_controls_that_there_are(catalogue) -> None:
    """A preset's value for a control that was renamed would never arrive."""
    for preset in catalogue.presets:
        values = preset_values(catalogue, preset, catalogue.default)
        assert set(values) < set(ORDER)
        read_request(catalogue, {**defaults(catalogue), **values})


def test_model_and_guesses_never_contradict_each_other() -> None:
    """A pair named after one drafter beside another drafter: each target stands there once, and what is said below the
    drafter is of that drafter."""
    for machine in (SMALL, LARGE):
        catalogue = load(machine)
        targets = [catalogue.pair(pair_id).target for _, pair_id in pair_choices(catalogue)]
        assert targets == list(dict.fromkeys(pair.target for pair in catalogue.runnable))
        assert catalogue.default.id in dict(map(reversed, pair_choices(catalogue)))
        handlers = Handlers(catalogue, TorchBackend())
        for pair in catalogue.runnable:
            assert safe(pair.note) in handlers.drafter_line(pair.id, pair.drafter)
        assert handlers.drafter_line(catalogue.default.id, "synthetic:0.8") == ""
