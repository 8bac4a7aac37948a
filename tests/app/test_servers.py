"""Pages with lanes on servers: what can be chosen, that nobody learns where they are, and what the figures say."""

import json
import re

import pytest

from app.catalogue.request import read_request
from app.figures.charts import ARRIVALS, charts
from app.figures.why import why
from app.jobs.server_races import ServersBackend, servers_catalogue
from app.page.controls import OF_THE_ENGINE, controls
from app.page.ui import build
from engine.progress import silent
from engine.recordings.recording import Recording
from engine.remote.endpoint import endpoints_of
from tests.helpers.race_pages import TEXT, race_over, words_of
from tests.helpers.races import on_servers

URLS = ("http://secret-host-a.example:8000/v1", "http://secret-host-b.example:8123/v1")
LANES = [("baseline", f"openai:{URLS[0]}"), ("speculative", f"openai:{URLS[1]}")]
KEY = "sk-0123456789abcdef"


def servers(same_device: bool = False) -> ServersBackend:
    return ServersBackend(endpoints_of(LANES, ["a/model"], {"OPENAI_API_KEY": KEY}), same_device)


@pytest.mark.parametrize("chat", [True, False])
def test_what_can_be_chosen(chat: bool) -> None:
    """A control that does nothing on a server, a first race that is refused, or a prompt in the wrong form."""
    catalogue = servers_catalogue(servers(), chat)
    shown = [control.name for control in controls(catalogue) if control.options.get("visible", True)]
    assert not set(shown) & set(OF_THE_ENGINE) and {"prompt", "temperature", "seed", "max_new_tokens"} <= set(shown)
    values = {setting.name: setting.default for setting in controls(catalogue)}
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


def test_no_time_within_a_server_is_shown():
    """A sentence on how long a server drafted, which nobody here has measured."""
    recording = Recording.of(on_servers(race_over(words_of(TEXT))))
    said = " ".join(chart.sentence for chart in (*charts(recording), *why(recording)))
    assert "drafting and wider steps" in said and ARRIVALS in said
    assert not re.search("Drafting took|drafting [0-9]|guesses that took", said)
