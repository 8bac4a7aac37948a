"""ASGI middleware in front of Gradio. It lets through the routes that this page uses, with bodies no larger and no more
complex than the page's own, and refuses everything else before it is parsed.

A page that loads models and reaches servers for its owner is for programs and pages of this machine, under one of its
names. A page of another site, or one whose name was pointed at this machine (DNS rebinding), is refused."""

import asyncio
import ipaddress
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Send

from ..catalogue.limits import MAX_BODY_BYTES, MAX_CALL_BYTES
from ..catalogue.machine import bare, in_url
from .kept_files import KeptFiles

READ, WRITE = ("GET", "HEAD"), ("POST",)
# Not counted per address: Gradio's front end, some 40 files, which a browser behind an HTTP/2 proxy may request all at
# once; and whether the page works, since who asks may share an address with all visitors.
FREE = re.compile(r"/healthz|/(?:assets|static)(?:/[0-9A-Za-z_.@-]{1,100}){1,6}")
SMALL_BYTES = 4_000
YOURS, YOURS_BYTES = "/yours/", 16_000  # what the owner of the page names: see `doors.py`
FILES = "/recordings", "/prompts"  # files, not JSON of the page: read in a thread of its own, with limits of its own
HEALTH = "/healthz"  # for whoever runs the page: see `routes.py`
# Limits on a body's structure: its quotes, and the bytes outside its strings. The page sends everything long as one
# string, because json.loads keeps the interpreter lock: 0.1 s for 1 MB of brackets, 0.001 s for 1 MB of text.
MAX_QUOTES, MAX_OUTSIDE_BYTES = 10_000, 50_000
MAX_OPEN = 60  # unanswered requests per address, streams included, FREE ones excluded
MAX_INCOMING_BYTES = 3 * MAX_BODY_BYTES  # per address, of bodies that are still being received
BODY_S = 60.0  # a body must arrive within this time
# Key in a request's scope: whether a function raised gr.Error, which Gradio makes a 500.
REFUSED = "photofinish.refused"
OURS = (b"photofinish", b"1")  # a header of all answers
HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[0-9a-z.-]{1,253})(?::[0-9]{1,5})?")
PROXIES = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host")
FOREIGN = (
    "this page belongs to the owner of its machine: open it as localhost or 127.0.0.1 with its port. For a page behind "
    "a proxy, start app.py with --limits FILE"
)


class Refusal(Exception):
    """Answers the request with this status and sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Gate:
    """The middleware. own: of a page that only its owner may use, the names that it is served as (see
    `own.is_foreign`); None: anybody may, and nothing is the owner's."""

    def __init__(self, app: ASGIApp, own: Collection[str] | None = None) -> None:
        self._app, self._own, api = app, own, "/gradio_api"
        self._files, self._document = KeptFiles(app), GZipMiddleware(app, compresslevel=1)  # a megabyte, for each visit
        self._routes = [
            (READ, r"/|/config/?|/theme\.css|/favicon\.ico|/robots\.txt", 0),
            (READ, r"/recordings/[\w-]{1,64}\.(?:json|csv|html)|/code\.svg", 0),
            (WRITE, "|".join(FILES), MAX_BODY_BYTES),
            *([] if own is None else [(WRITE, rf"{YOURS}\w{{1,20}}", YOURS_BYTES)]),
            (WRITE, r"/tokens", MAX_CALL_BYTES),
            (WRITE, r"/stream", MAX_BODY_BYTES),
            (WRITE, r"/stop", SMALL_BYTES),
            (READ, rf"{api}/(?:info/?|app_id|startup-events|queue/data)", 0),
            (READ, rf"{api}/call/v2/race/[0-9a-f]{{32}}", 0),
            (WRITE, rf"{api}/(?:queue/join|run/predict|call/v2/race)", MAX_CALL_BYTES),
        ]
        self._open: Counter[str] = Counter()
        self._incoming: Counter[str] = Counter()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        send = _as_ours(scope, send)
        if self._is_refused(scope):
            if scope["type"] == "http":
                is_opened = any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
                await _answer(Refusal(403, FOREIGN), is_opened)(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http" or (scope["method"] in READ and FREE.fullmatch(_path(scope))):
            is_file = scope["type"] == "http" and _path(scope) != HEALTH
            await (self._files if is_file else self._app)(scope, receive, send)
            return
        link = (scope.get("raw_path") or b"").partition(b"/%23")  # as Outlook's Safe Links write a link's #
        if link[1] and scope["method"] in READ:
            await Response(None, 303, {"location": f"./#{link[2].decode('latin-1')}"})(scope, receive, send)
            return
        caller = network((scope.get("client") or ("",))[0])
        self._open[caller] += 1
        try:
            max_bytes = self._max_bytes(scope, caller)
            if max_bytes:
                body = await self._body(receive, caller, max_bytes)
                if _path(scope) not in FILES:
                    _check_structure(body)
                receive = _again(body, receive)
                del body
        except Refusal as refusal:
            await _answer(refusal)(scope, receive, send)
        except ConnectionResetError:
            pass
        else:
            await (self._document if _path(scope) == "/" else self._app)(scope, receive, send)
        finally:
            self._open[caller] -= 1
            self._open += Counter()  # drops zero counts

    def _is_refused(self, scope: Message) -> bool:
        """Whether this is the page's owner's alone, and somebody else's request."""
        if self._own is None or scope["type"] not in ("http", "websocket"):
            return False
        headers = scope["headers"]
        return is_foreign(headers, self._own) or (_path(scope).startswith(YOURS) and is_proxied(headers))

    def _max_bytes(self, scope: Message, caller: str) -> int:
        """The limit on this request's body; 0 for routes without one. Raises Refusal."""
        path = _path(scope)
        matching = [(methods, max_bytes) for methods, pattern, max_bytes in self._routes if re.fullmatch(pattern, path)]
        if not matching:
            raise Refusal(404, "no such page")
        max_bytes = next((most for methods, most in matching if scope["method"] in methods), None)
        if max_bytes is None:
            raise Refusal(405, f"{scope['method']} is not allowed here")
        if self._open[caller] > MAX_OPEN:
            raise Refusal(429, f"your address already has {MAX_OPEN} open requests, the limit; try again later")
        length = dict(scope["headers"]).get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > max_bytes > 0:
            raise _too_large(max_bytes)
        return max_bytes

    async def _body(self, receive: Receive, caller: str, max_bytes: int) -> bytes:
        """The whole body. Raises Refusal, or ConnectionResetError if the caller disconnects."""
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(BODY_S):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ConnectionResetError
                    part, more = message.get("body", b""), message.get("more_body", False)
                    parts.append(part)
                    size += len(part)
                    self._incoming[caller] += len(part)
                    if size > max_bytes:
                        raise _too_large(max_bytes)
                    if self._incoming[caller] > MAX_INCOMING_BYTES:
                        raise Refusal(429, f"your address is sending more than {MAX_INCOMING_BYTES} bytes at once")
            return b"".join(parts)
        except TimeoutError:
            raise Refusal(408, f"the body did not arrive within {BODY_S:g} seconds") from None
        finally:
            self._incoming[caller] -= size
            self._incoming += Counter()


def _answer(refusal: Refusal, is_opened: bool = False) -> Response:
    """Gradio's clients show `detail` if the request was to join the queue, `error` after a direct call. is_opened:
    whether a browser would show the answer to its visitor."""
    if is_opened:
        return PlainTextResponse(f"Photofinish: {refusal.sentence}.", refusal.status)
    return JSONResponse({"detail": refusal.sentence, "error": refusal.sentence}, refusal.status)


def network(host: str) -> str:
    """What limits per address go by: an IPv4 address, or the /64 network of an IPv6 one, since one household has all of
    it. uvicorn takes the host from X-Forwarded-For if the request came from a proxy in $FORWARDED_ALLOW_IPS."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))


def address_of(request: Any) -> str:
    """What limits per address go by, for a request of Starlette or Gradio."""
    return network(request.client.host if request.client else "")


def _path(scope: Message) -> str:
    """The path without the page's root path, which a proxy may or may not have removed."""
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def _check_structure(body: bytes) -> None:
    """Raise Refusal for a body that would be slow to parse."""
    if b"\0" in body:  # UTF-16 or UTF-32: json.loads would read it, but the counts below would be wrong
        raise Refusal(400, "the body must be JSON in UTF-8")
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > MAX_QUOTES or sum(map(len, bare.split(b'"')[::2])) > MAX_OUTSIDE_BYTES:
        raise Refusal(413, "the request has too many values")


def _too_large(max_bytes: int) -> Refusal:
    return Refusal(413, f"the body is larger than {max_bytes} bytes, the limit for this address")


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body first."""
    unseen = [body]

    async def once() -> Message:
        return {"type": "http.request", "body": unseen.pop(), "more_body": False} if unseen else await receive()

    return once


def _as_ours(scope: Message, send: Send) -> Send:
    """A `send` that tells answers from those of a proxy in front of the page, which the page itself cannot: see
    `fetchOurs` in dom.js. Turns Gradio's status 500 into 400 if the function refused its values."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            status = 400 if message["status"] == 500 and scope.get(REFUSED) else message["status"]
            message = {**message, "status": status, "headers": [*message.get("headers", ()), OURS]}
        await send(message)

    return sent


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
    try:
        return ipaddress.ip_address(bare(host)).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
