"""`python app.py`: mistakes are answered in one line before anything is served, and what an operator allows."""

import os
import runpy
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from engine.core.errors import UsageError
from tests.helpers import ROOT
from tests.helpers.pageserver import TARGET

APP = str(ROOT / "app.py")
URLS = ("http://secret-host-a.example:8000/v1", "http://secret-host-b.example:8001/v1")
ONE, TWO = (f"openai:{url}" for url in URLS)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str]]:
    """Runs the program without a page, which it must not come to. Returns its exit status and what it printed."""
    monkeypatch.setitem(sys.modules, "app.page.ui", None)
    monkeypatch.setattr("app.page.ending.on_signal", lambda act: None)

    def program(*arguments: str) -> tuple[Any, str]:
        monkeypatch.setattr("sys.argv", ["app.py", *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(APP, run_name="__main__")
        printed = capsys.readouterr()
        return ended.value.code, printed.out + printed.err

    return program


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--drafter", "nonsense"], "unknown drafter 'nonsense'"),
        (["--port", "99999"], "from 1 to 65535"),
        (["--dtype", "int3"], "bfloat16"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["--host", "::1%lo"], "without a zone, not '::1%lo'"),
        (["--host", "[127.0.0.1]"], "not '[127.0.0.1]'"),
        (["--host", "192.0.2.7"], "cannot serve on 192.0.2.7: Cannot assign requested address"),
        (["--lane", f"baseline={ONE}"], "two lanes or more"),
        (["--lane", "a=ngram", "--lane", "b=ngram"], "NAME=openai:http"),
        (["--lane", f"a={ONE}", "--lane", f"a={TWO}", "--model", "m"], "different names"),
        (["--lane", f"a={ONE}", "--lane", f"b={TWO}", "--model", "m"], "one of them plain or baseline"),
        (["--lane", f"plain={ONE}", "--lane", f"b={TWO}"], "--model NAME"),
        (["--lane", f"plain={ONE}", "--lane", "b=openai:ftp://x", "--model", "m"], "needs openai:http"),
        (["--lane", f"baseline={ONE}", "--lane", f"b={TWO}", "--target", "x"], "without a server's --lane"),
        (["--same-device"], "is for servers: --lane"),
        (["--limits", "no.such.file"], "cannot read the limits: No such file"),
        (["--own", "--lane", f"a={ONE}", "--model", "m"], "without --lane and --limits"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_unusable_arguments_are_one_line(run, arguments: list[str], words: str) -> None:
    """A traceback, or a URL in a terminal that others see."""
    status, printed = run(*arguments)
    assert status == 2 and words in printed.splitlines()[-1]
    assert "Traceback" not in printed and "secret-host" not in printed


@pytest.mark.parametrize("host", [[], ["--host", "127.0.0.1"], ["--host", "0.0.0.0"]], ids=" ".join)
def test_a_port_in_use_is_one_line(run, host: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second page on one port is refused in words of ours: what they say helps, wherever the port came from."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("GRADIO_SERVER_PORT", port := str(taken.getsockname()[1]))
        for given in (["--port", port], []):
            line = f"app.py: cannot serve on port {port}: Address already in use; give --port another one\n"
            assert run(*given, *host) == (2, line)


def test_a_port_of_the_environment_is_checked_too(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradio would read it, and end with a traceback."""
    monkeypatch.setenv("GRADIO_SERVER_PORT", "many")
    status, printed = run()
    assert status == 2 and "(as given, or $GRADIO_SERVER_PORT), not 'many'" in printed.splitlines()[-1]


def test_a_page_for_others_keeps_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an address that others can reach, a visitor could switch the model for everybody."""
    program = runpy.run_path(APP)
    refuses = pytest.raises(UsageError, match="which the operator of this page has not allowed")
    for host, judged in (("127.0.0.1", nullcontext()), ("0.0.0.0", refuses)):
        monkeypatch.setattr("sys.argv", ["app.py", "--host", host, "--target", TARGET])
        catalogue, *_ = program["_page"](program["arguments"]())
        assert catalogue.default.target == TARGET
        with judged:
            catalogue.pair("gemma3-270m-ngram")


@pytest.mark.parametrize(
    ("arguments", "environment", "names"),
    [
        ([], {}, {"127.0.0.1"}),
        (["--host", "127.0.0.1"], {}, {"127.0.0.1"}),
        (["--host", "::1"], {}, {"[::1]"}),
        (["--host", "[0:0::1]"], {}, {"[::1]"}),
        ([], {"GRADIO_SERVER_NAME": "[::1]"}, {"[::1]"}),
        ([], {"GRADIO_SERVER_NAME": ""}, {"127.0.0.1"}),
        (["--host", "::", "--own"], {}, set()),
        (["--host", "fd00:0::5", "--own"], {}, {"[fd00::5]"}),
        (["--limits", os.devnull], {}, None),
        (["--lane", f"a={ONE}"], {}, None),
        (["--host", "0.0.0.0"], {}, None),
        (["--host", "0.0.0.0", "--own"], {}, set()),
        (["--host", "10.1.2.3", "--own"], {}, {"10.1.2.3"}),
        ([], {"GRADIO_SERVER_NAME": "0.0.0.0"}, None),
        ([], {"SPACE_ID": "a/b"}, None),
        ([], {"GRADIO_SHARE": "True"}, None),
    ],
    ids=str,
)
def test_whose_page_it_is(
    arguments: list[str], environment: dict[str, str], names: set[str] | None, monkeypatch
) -> None:
    """Visitors of a Space, of a shared link or behind a proxy of the operator's own could load models and reach servers
    of this network; or the owner could not."""
    program = runpy.run_path(APP)
    monkeypatch.setattr("socket.getaddrinfo", lambda host, *_: [(0, 0, 0, "", (host, 0))])
    monkeypatch.setattr("sys.argv", ["app.py", *arguments])
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert program["_own_names"](program["arguments"]()) == names
    if environment and "GRADIO_SERVER_NAME" not in environment:
        monkeypatch.setattr("sys.argv", ["app.py", "--own"])
        with pytest.raises(UsageError, match="only you can reach"):
            program["_own_names"](program["arguments"]())
