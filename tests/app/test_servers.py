"""The page where the lanes are servers: what can be chosen, what is refused, and that no visitor learns where they
are."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from app.controls import OF_THE_ENGINE, controls
from app.request import read_request, read_study
from app.servers import NO_STUDY, ServersBackend, servers_catalogue
from app.ui import build
from engine.errors import UsageError
from engine.progress import silent
from engine.remote.endpoint import endpoints_of
from tests.helpers import ROOT

URLS = ("http://secret-host-a.example:8000/v1", "http://secret-host-b.example:8001/v1")
LANES = [("baseline", f"openai:{URLS[0]}"), ("speculative", f"openai:{URLS[1]}")]
KEY = "sk-0123456789abcdef"


def servers(same_device: bool = False) -> ServersBackend:
    return ServersBackend(endpoints_of(LANES, ["a/model"], {"OPENAI_API_KEY": KEY}), same_device)


@pytest.mark.parametrize("chat", [True, False])
def test_what_can_be_chosen(chat: bool) -> None:
    """A control that does nothing on a server, a first race that is refused, or a prompt in the wrong form."""
    catalogue = servers_catalogue("a/model", chat)
    shown = [each.name for each in controls(catalogue) if each.look.get("visible", True)]
    assert not set(shown) & set(OF_THE_ENGINE) and {"prompt", "temperature", "seed", "max_new_tokens"} <= set(shown)
    values = {each.name: each.default for each in controls(catalogue)}
    asked = read_request(catalogue, values)
    preset = catalogue.presets[0]
    assert (asked.chat, asked.prompt) == (chat, preset.message if chat else preset.prompt)
    race = servers(True).prepare(asked, silent)
    header = race.header()
    assert [lane["name"] for lane in header["spec"]["lanes"]] == ["baseline", "speculative"] and header["spec"]["solo"]
    assert header["spec"]["params"]["max_new_tokens"] == preset.max_new_tokens
    assert servers(True).beside(race, silent) == {}


def test_no_visitor_learns_where_they_are() -> None:
    """A URL or a key in the page, in its API, or in what a race says of itself."""
    backend = servers()
    catalogue = servers_catalogue("a/model", False)
    page = build(catalogue, backend)
    asked = read_request(catalogue, {each.name: each.default for each in controls(catalogue)})
    said = [page.get_config_file(), page.get_api_info(), backend.prepare(asked, silent).header(), repr(vars(backend))]
    text = json.dumps(said, default=str)
    assert "secret-host" not in text and KEY not in text and ":8001" not in text


def test_a_study_is_another_commands() -> None:
    catalogue = servers_catalogue("a/model", False)
    values = {each.name: each.default for each in controls(catalogue)}
    asked = {"name": "a.txt", "text": "one", "limit": 1, "max_new_tokens": 4, "kept": None}
    with pytest.raises(UsageError, match=NO_STUDY):
        servers().study(read_study(catalogue, values, asked), (), silent)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--lane", LANES[0][0] + "=" + LANES[0][1]], "two lanes or more"),
        (["--lane", "a=ngram", "--lane", "b=ngram"], "NAME=openai:URL"),
        (["--lane", f"a=openai:{URLS[0]}", "--lane", f"a=openai:{URLS[1]}", "--model", "m"], "different names"),
        (["--lane", f"a=openai:{URLS[0]}", "--lane", f"b=openai:{URLS[1]}"], "--model NAME"),
        (["--lane", f"a=openai:{URLS[0]}", "--lane", "b=openai:ftp://x", "--model", "m"], "needs openai:http"),
        (
            ["--lane", f"baseline=openai:{URLS[0]}", "--lane", f"b=openai:{URLS[1]}", "--target", "x"],
            "without --target",
        ),
        (["--lane", f"speculative=openai:{URLS[0]}", "--model", "m"], "give the server's another name"),
        (["--lane", f"a=openai:{URLS[0]}", "--model", "m", "--chat"], "a box in Settings"),
        (["--same-device"], "give --lane"),
    ],
)
def test_an_operators_mistake_is_named(arguments: list[str], names: str) -> None:
    """A traceback, or a URL in a terminal that others see."""
    done = subprocess.run([sys.executable, "app.py", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and names in done.stderr.splitlines()[-1]
    assert "secret-host" not in done.stderr and "Traceback" not in done.stderr
