"""Who may use a page that loads models and reaches servers for its owner: programs and pages of this machine, under one
of its names. A page of another site, or one whose name was pointed at this machine (DNS rebinding), is refused."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable

from ..catalogue.machine import bare, in_url

HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[0-9a-z.-]{1,253})(?::[0-9]{1,5})?")
PROXIES = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host")
FOREIGN = (
    "this page belongs to the owner of its machine: open it as localhost or 127.0.0.1 with its port. For a page behind "
    "a proxy, start app.py with --pairs loaded"
)


def is_foreign(headers: Iterable[tuple[bytes, bytes]], names: Collection[str]) -> bool:
    """Whether a request comes from another site, or for another host than this machine. names: what the page is served
    as, besides the names and addresses of the loopback interface.

    Through an SSH tunnel a browser sends the tunnel's own port; so a request's Origin is compared with its Host."""
    given: dict[bytes, list[str]] = {}
    for name, value in headers:
        given.setdefault(name.lower(), []).append(value.decode("latin-1").lower())
    match = HOST.fullmatch(given.get(b"host", [""])[0])
    if match is None or len(given[b"host"]) > 1 or not (in_url(bare(match[1])) in names or _is_loopback(match[1])):
        return True
    if any(origin not in (f"http://{match[0]}", f"https://{match[0]}") for origin in given.get(b"origin", [])):
        return True
    site, purpose = (given.get(name, [""])[0] for name in (b"sec-fetch-site", b"sec-fetch-dest"))
    return site not in ("", "none", "same-origin") and purpose != "document"  # a link from elsewhere may open the page


def is_proxied(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request says that a proxy passed it on: whose it is cannot be known then."""
    return any(name.lower() in PROXIES for name, _ in headers)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
