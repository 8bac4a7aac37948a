"""Pages with lanes on servers: what can be chosen, that no visitor learns where they are, and what the figures and a
second run make of a race with lanes here and there."""

from __future__ import annotations

import copy
import json
import re

import pytest

from app.catalogue.catalogue import load
from app.catalogue.machine import Machine
from app.catalogue.request import read_again, read_request, read_study
from app.figures.charts import ARRIVALS, NOT_ASKED, charts
from app.figures.why import NO_RATIO, compared_of, why
from app.jobs.frames import MIXED_TEXT, Prepared, RaceView, fold
from app.jobs.server_races import ServersBackend, servers_catalogue
from app.jobs.worker import told_again
from app.page.controls import OF_THE_ENGINE, controls
from app.page.ui import build
from engine.core.errors import UsageError
from engine.core.spec import RaceSpec
from engine.progress import silent
from engine.recordings.recording import Recording, loads
from engine.remote.endpoint import endpoints_of
from tests.helpers.race_pages import TEXT, race_over, words_of
from tests.helpers.races import beside_a_server, on_servers

URLS = ("http://secret-host-a.example:8000/v1", "http://secret-host-b.example:8123/v1")
LANES = [("baseline", f"openai:{URLS[0]}"), ("speculative", f"openai:{URLS[1]}")]
KEY = "sk-0123456789abcdef"


ALONE = Recording.of(race_over(words_of(TEXT)))
BOTH = loads(json.dumps(beside_a_server(ALONE.fields)).encode())


def servers(same_device: bool = False) -> ServersBackend:
    return ServersBackend(endpoints_of(LANES, ["a/model"], {"OPENAI_API_KEY": KEY}), same_device)


@pytest.mark.parametrize("chat", [True, False])
def test_what_can_be_chosen(chat: bool) -> None:
    """A control that does nothing on a server, a first race that is refused, or a prompt in the wrong form."""
    catalogue = servers_catalogue(servers(), chat)
    shown = [control.name for control in controls(catalogue) if control.options.get("visible", True)]
    assert not set(shown) & set(OF_THE_ENGINE) and {"prompt", "temperature", "seed", "max_new_tokens"} <= set(shown)
    values = {each.name: each.default for each in controls(catalogue)}
    asked = read_request(catalogue, values)
    preset = catalogue.presets[0]
    assert (asked.chat, asked.prompt) == (chat, preset.message if chat else preset.prompt)
    race = servers(True).prepare(asked, silent)
    header = race.header()
    assert [lane["name"] for lane in header["spec"]["lanes"]] == ["baseline", "speculative"] and header["spec"]["solo"]
    assert header["spec"]["params"]["max_new_tokens"] == preset.max_new_tokens
    assert servers(True).extras(race, silent) == {}


def test_no_visitor_learns_where_they_are() -> None:
    """A URL or a key in the page, in its API, or in what a race says of itself."""
    backend = servers()
    catalogue = servers_catalogue(backend, False)
    page = build(catalogue, backend)
    asked = read_request(catalogue, {control.name: control.default for control in controls(catalogue)})
    said = [page.get_config_file(), page.get_api_info(), backend.prepare(asked, silent).header(), repr(vars(backend))]
    text = json.dumps(said, default=str)
    assert "secret-host" not in text and KEY not in text and ":8123" not in text


def test_a_study_takes_a_lane_that_drafts() -> None:
    """Two plain servers would be studied, and fail without a word on why."""
    backend = ServersBackend(
        endpoints_of([(name, f"openai:{URLS[0]}") for name in ("plain", "baseline")], ["m"], {}), False
    )
    catalogue = servers_catalogue(backend, False)
    values = {control.name: control.default for control in controls(catalogue)}
    asked = {"name": "a.txt", "text": "one", "limit": 1, "max_new_tokens": 4, "kept": None}
    with pytest.raises(UsageError, match="no lane of these servers drafts"):
        backend.study(read_study(catalogue, values, asked), (), silent)


# ---- a race with lanes here and a lane on a server


def shown(lane: str) -> Recording:
    """The recording as the page sends it for this lane's figures: with the lane before the others that draft."""
    recording = copy.deepcopy(BOTH.fields)
    recording["spec"]["lanes"].sort(key=lambda each: each["name"] not in ("plain", "baseline", lane))
    return Recording.of(recording)


def test_a_lane_here_has_the_figures_that_it_has_without_a_server():
    """A server in the race would change or remove what the page says about local lanes."""
    assert [chart.sentence for chart in charts(shown("speculative"))] == [each.sentence for each in charts(ALONE)]
    assert [each.sentence for each in why(shown("speculative"))] == [each.sentence for each in why(ALONE)]


def test_nothing_is_worked_out_between_two_devices():
    """A figure that divides a server's seconds by this machine's, as if a drafter had made the difference."""
    recording = shown("there")
    assert compared_of(recording) is None
    assert [each.sentence for each in why(recording)] == [NO_RATIO] * 5
    times, acceptance, _, over_k = charts(recording)
    assert "as long as a plain one" not in times.sentence and times.figure is not None
    assert acceptance.figure is not None and over_k.sentence == NOT_ASKED
    assert fold(RaceView("r"), Prepared(BOTH)).text == MIXED_TEXT


def test_no_time_within_a_server_is_shown():
    """A sentence on how long a server drafted, which nobody here has measured."""
    fields = on_servers(ALONE.fields)
    fields["device"]["type"] = "server"
    recording = Recording.of(fields)
    said = " ".join(chart.sentence for chart in (*charts(recording), *why(recording)))
    assert "drafting and wider steps" in said and ARRIVALS in said
    assert not re.search("Drafting took|drafting [0-9]|guesses that took", said)


def test_such_a_race_is_run_again_without_its_server():
    """Running a stranger's race again would be refused, or would send requests to a server."""
    catalogue = load(Machine(), pairs="all")
    recording = {**BOTH, "model": {**BOTH["model"], "name": catalogue.default.target}}
    asked = read_again(catalogue, Recording.of(recording))
    assert [lane.name for lane in asked.spec.lanes] == ["plain", "baseline", "speculative"]
    assert isinstance(asked.spec, RaceSpec)
    assert "wrote the same" in told_again(BOTH, ALONE) and "bit for bit" in told_again(BOTH, ALONE)


@pytest.mark.parametrize("what", ["checksums there", "no checksums here", "places", "sentence"])
def test_a_file_with_a_lane_on_a_server_is_checked(what):
    """An audited race would be refused because a server gives no logits, or opened though the lanes here lack them; or
    a race be read whose lanes are in no place."""
    broken = copy.deepcopy(BOTH.fields)
    first = {e["lane"]: e for e in reversed(broken["events"]) if e["type"] == "step"}
    if what == "checksums there":
        first["there"]["checksums"] = [1] * len(first["there"]["token_ids"])
    elif what == "no checksums here":
        first["baseline"]["checksums"] = []
    else:
        broken["places"].update({"lanes": ["there"]} if what == "places" else {"sentence": 1})
    with pytest.raises(UsageError):
        loads(json.dumps(broken).encode())
