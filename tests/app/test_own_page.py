"""A page that loads models and reaches servers for its owner answers no other site or name pointed at this machine."""

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.page.gate import FOREIGN, Gate, is_foreign
from tests.helpers.gated import USED, Inside

OWN = ("localhost:7860", "127.0.0.1:7860", "127.1.2.3", "[::1]:8000", "a.localhost", "my.name:7860", "[fd00:0::5]:7860")
OTHERS = (
    *("evil.example:7860", "localhost.evil.example", "127.0.0.1.nip.io:7860", "192.168.1.2", "[::2]", "0.0.0.0:7860"),
    *("localhost@evil.example", "evil.example@localhost", "", "local host", "169.254.169.254"),
)


def headers(**values: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in values.items()]


@pytest.mark.parametrize("host", OWN)
def test_its_owner_is_let_in(host: str) -> None:
    """The owner could not use the page, directly, from a program, or by a tunnel to another port."""
    fetched = (("same-origin", "empty"), ("cross-site", "document"))
    for more in (
        {}, {"origin": f"http://{host}"}, {"origin": f"https://{host.upper()}"},
        *({"sec_fetch_site": site, "sec_fetch_dest": purpose} for site, purpose in fetched),
    ):  # fmt: skip
        assert not is_foreign(headers(host=host, **more), {"my.name", "[fd00::5]"})


@pytest.mark.parametrize("host", OTHERS)
def test_another_name_is_not(host: str) -> None:
    """A site whose name was pointed at this machine would be the page's own origin."""
    for more in ({}, {"origin": f"http://{host}"}):
        assert is_foreign(headers(host=host, **more), {"my.name", "[fd00::5]"})


@given(st.text(st.characters(max_codepoint=255), max_size=40))
def test_no_other_text_is_a_name_of_this_machine(host: str) -> None:
    """A host that a browser reads otherwise than this check does."""
    name = host.lower().rpartition(":")[0] or host.lower()
    if not is_foreign(headers(host=host), ()):
        assert name == "localhost" or name.endswith(".localhost") or name.startswith("127.") or "::1" in name


@pytest.mark.parametrize(
    "origin", ["null", "http://evil.example", "http://localhost:1", "http://127.0.0.1", "file://", ""]
)
def test_another_site_is_not(origin: str) -> None:
    """A site in another tab could load a model, or read this network through the page."""
    for host in OWN[:3]:
        assert is_foreign(headers(host=host, origin=origin), ())
        for purpose in ("iframe", "script", "empty"):
            assert is_foreign(headers(host=host, sec_fetch_site="cross-site", sec_fetch_dest=purpose), ())
        assert is_foreign([*headers(host=host), (b"Host", b"evil.example")], ())
        assert is_foreign([*headers(host=host, origin=f"http://{host}"), (b"Origin", origin.encode())], ())
    assert is_foreign(headers(origin=origin), ())


def test_every_route_is_the_owners() -> None:
    """One route of Gradio's would be open to a rebound name; or the page of a proxy's visitors to name servers."""

    async def ask(method: str, path: str, **more: str) -> httpx.Response:
        transport = httpx.ASGITransport(gate, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:7860") as client:
            return await client.request(method, path, headers={k.replace("_", "-"): v for k, v in more.items()})

    inside = Inside()
    gate = Gate(inside, frozenset())
    yours = ["/yours/model", "/yours/servers"]
    for method, paths in (*((method, paths.split()) for method, paths in USED.items()), ("POST", yours)):
        for path in paths:
            num = len(inside.bodies)
            for more in ({"host": "evil.example:7860"}, {"origin": "http://evil.example"}, {"origin": "null"}):
                answer = asyncio.run(ask(method, path, **more))
                assert (answer.status_code, answer.json()["detail"]) == (403, FOREIGN), (path, more)
            shown = asyncio.run(ask(method, path, host="my-laptop:7860", accept="text/html,*/*")).text
            assert shown == f"Photofinish: {FOREIGN}.", "braces, where a person reads"
            proxied = asyncio.run(ask(method, path, x_forwarded_for="203.0.113.7"))
            assert proxied.status_code == (403 if path in yours else 200)
            assert len(inside.bodies) == num + (path not in yours)
            assert asyncio.run(ask(method, path)).text == "inside"
    gate = Gate(inside)
    assert asyncio.run(ask("POST", yours[0])).status_code == 404
    assert asyncio.run(ask("GET", "/", host="a.public.page", origin="null")).text == "inside"


def test_a_web_socket_is_refused_too() -> None:
    """Browsers let any site open one."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/x", "headers": headers(host="localhost:1", origin="http://evil.example")}
    asyncio.run(Gate(None, frozenset())(scope, None, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]
