"""One question to one server, streamed, with the time at which each event was read.

Uses httpx, which Gradio brings; its `aiter_raw` gives bytes as they arrive. Times are taken when bytes are read, before
they are parsed."""

import asyncio
import errno
import logging
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import httpx

from ..core.errors import RaceError, UsageError
from ..core.spec import SamplingParams
from .endpoint import Endpoint
from .fields import find, parsed, words_in
from .reply import Chunk, Events, Reader, Reply
from .request import LIMIT, NEW_LIMIT, OPTIONAL, RUNNING_USAGE, Question, optional, request_of

CONNECT_S = 10.0
DRAIN_S = 0.5  # for a complete answer's end, so that its connection can be reused; some never send it (vllm-mlx#101)
# httpcore's names for two moments: before it opens a connection, and before a request's first byte is written. Of 200
# simultaneous requests the last is written 50 ms after the first, which is not the server's time.
OPENING, SENDING = "connection.connect_tcp.started", "http11.send_request_headers.started"
GONE = "Server disconnected without sending a response"
CUT = "peer closed connection without sending complete message body"
MAX_ERROR_BYTES = 16_384
MAX_WORDS = 200
READ = ("", "identity", "gzip", "deflate", "br")  # encodings; the last by brotli, which Gradio brings
STREAM = rb"(\xef\xbb\xbf)?\s*(:|data:|event:|id:|retry:"
# Types of content that are usually no stream of events -> how a body begins that is one all the same.
NO_STREAM = {"json": STREAM + rb")", "html": STREAM + rb")", "plain": STREAM + rb"|\{|error:|[a-z]{0,5}$)"}
ELSEWHERE = (200, 404, 405, 501)  # answers after which the path is tried at an endpoint's other base
UNKNOWN = "got an unexpected keyword argument"  # Python's words, which some gateways answer with 500 (litellm#16993)
TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)
CA_FILE = "SSL_CERT_FILE"  # in the environment: certificates to be trusted, as OpenSSL calls it
NOT_TLS = "WRONG_VERSION_NUMBER"  # OpenSSL's word for an answer that is no TLS
AUTHORITY = "; --cacert FILE names the certificate of its authority"

Hear = Callable[[Chunk], None]

for _library in ("httpx", "httpcore"):
    logging.getLogger(_library).setLevel(logging.WARNING)  # below it they log URLs


class RemoteError(RaceError):
    """A server, or the way to it, failed. kind: `connect`, `certificate`, `timeout`, `status` (also of no stream),
    `broken` (the stream is not an answer) or `disconnected`. status: HTTP's, if it answered. named: the optional
    fields that its refusal names."""

    def __init__(self, message: str, kind: str, status: int | None = None, named: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.kind, self.status, self.named = kind, status, named


@dataclass(frozen=True)
class Patience:
    """How long a server may take, in seconds: silence_s between two pieces of an answer (and before the first), total_s
    for all of it."""

    silence_s: float = 60.0
    total_s: float = 600.0


def new_client(num_streams: int = 1) -> httpx.AsyncClient:
    """A client for that many simultaneous streams; the caller closes it. It follows no redirects, and reads no proxy
    or password from the environment: a request goes only where the operator said."""
    limits = httpx.Limits(max_connections=num_streams, max_keepalive_connections=num_streams)
    return httpx.AsyncClient(limits=limits, verify=_certificates(), follow_redirects=False, trust_env=False)


@cache
def _certificates() -> ssl.SSLContext:
    context = httpx.create_ssl_context(trust_env=False)
    if file := os.environ.get(CA_FILE):
        with suppress(OSError):  # OpenSSL ignores such a file as well
            context.load_verify_locations(file)
    return context


def trust(file: str) -> None:
    """Trust the servers whose certificates an authority of this PEM file has signed, for as long as this process runs.
    Raises UsageError."""
    try:
        _certificates().load_verify_locations(Path(file))
    except (OSError, ValueError) as error:
        why = "it holds no certificate (PEM)" if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
        raise UsageError(f"{file}: {why or 'it cannot be read'}") from error


async def ask(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    question: Question,
    params: SamplingParams,
    patience: Patience = Patience(),
    on_chunk: Hear = lambda chunk: None,
    with_extras: bool = True,
) -> Reply:
    """The server's answer.

    on_chunk: called with each chunk as it comes. Seconds count from when the first byte of the request was written.
    with_extras: whether to send fields that only some servers know. After a 400 or 422 the request is sent again
        without those that the refusal names, else without the next one of OPTIONAL, until it is answered.

    Raises RemoteError; its message names the lane, but neither URL nor key."""
    wanted = fields = optional(endpoint, question, params, with_extras)
    bases, first, refused = list(endpoint.bases), None, endpoint.memory.refused
    try:
        async with asyncio.timeout(patience.total_s):
            while True:
                try:
                    body, reader = request_of(endpoint, question, params, fields), Reader(params.max_new_tokens)
                    reply = await _ask(client, endpoint, bases[0] + question.path, body, patience, reader, on_chunk)
                    endpoint.memory.base = bases[0]
                    refused.update((question.path, name) for name in wanted if name not in fields)
                    return reply
                except RemoteError as error:
                    if error.status in ELSEWHERE:
                        first = first or error
                        if len(bases) == 1:
                            raise first from None
                        bases.pop(0)
                        continue
                    names_new = bool(question.messages) and error.status == 400 and NEW_LIMIT in str(error)
                    if names_new and (question.path, LIMIT) not in refused:  # completions ignore the new name
                        refused.add((question.path, LIMIT))
                        continue
                    if not fields or (error.status not in (400, 422) and UNKNOWN not in str(error)):
                        raise
                    named = set(error.named).intersection(fields)
                    is_quoted = len(named) > 1 and RUNNING_USAGE in named  # the whole request is
                    named = {fields[0]} if is_quoted or not named else named
                    fields = tuple(name for name in fields if name not in named)
    except TimeoutError as error:
        message = f"the server of lane {endpoint.lane} did not finish within {patience.total_s:g} s"
        raise RemoteError(message, "timeout") from error


async def _ask(
    client: httpx.AsyncClient, endpoint: Endpoint, url: str, body: Any, patience: Patience, reader: Reader, hear: Hear
) -> Reply:
    """The answer to one request, by its reader. hear: see `on_chunk` of `ask`."""
    timeout = httpx.Timeout(patience.silence_s, connect=min(CONNECT_S, patience.silence_s), pool=None)
    events, sent = Events(), _Sent()
    async with named_errors(endpoint, patience):
        request = client.build_request(
            *("POST", url), json=body, headers=endpoint.headers(), timeout=timeout, extensions={"trace": sent.note}
        )
        async with _answered(client, request, sent) as response:
            kind, parts = response.headers.get("Content-Type", ""), response.aiter_bytes()
            received = await anext(parts, b"")
            at_s = ended_s = time.perf_counter() - sent.at
            is_other = any(name in kind and not re.match(begins, received) for name, begins in NO_STREAM.items())
            if response.status_code != 200 or is_other:
                raise await refusal_of(endpoint, response, received, parts)
            if (encoding := response.headers.get("Content-Encoding", "")) not in READ:
                raise RaceError(f"the server's answer is compressed in a form that is not read here ({encoding})")
            try:
                async with asyncio.timeout(None) as drain:
                    while True:
                        said = [] if reader.done else events.feed(received) if received else events.end()
                        for data in said:
                            if (chunk := reader.take(data, at_s)) is not None:
                                hear(chunk)
                        ended_s = at_s if said or drain.when() is None else ended_s
                        if not received:
                            break
                        if reader.is_whole and drain.when() is None:
                            drain.reschedule(asyncio.get_running_loop().time() + DRAIN_S)
                        received = await anext(parts, b"")
                        at_s = time.perf_counter() - sent.at
            except (TimeoutError, httpx.HTTPError, httpx.StreamError):
                if not reader.is_whole:
                    raise
        return reader.end(ended_s)


class _Sent:
    """When a request's first byte was written (`time.perf_counter`), and whether a connection was opened for it."""

    def __init__(self) -> None:
        self.at, self.is_new = 0.0, False

    async def note(self, name: str, details: Any) -> None:
        if name == OPENING:
            self.is_new = True
        elif name == SENDING:
            self.at = time.perf_counter()


@asynccontextmanager
async def _answered(client: httpx.AsyncClient, request: httpx.Request, sent: _Sent) -> AsyncIterator[httpx.Response]:
    """The response. A server may close a kept-alive connection just when it is used again (llama.cpp: 1 of 20).
    A completion changes nothing there, so it is sent once more, on a new connection (RFC 9110, 9.2.2)."""
    try:
        response = await client.send(request, stream=True)
    except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
        if sent.is_new or (isinstance(error, httpx.RemoteProtocolError) and not str(error).startswith(GONE)):
            raise
        response = await client.send(request, stream=True)
    try:
        yield response
    finally:
        await response.aclose()


@asynccontextmanager
async def named_errors(endpoint: Endpoint, patience: Patience) -> Any:
    """Errors within become a RemoteError that names the lane."""
    lane = endpoint.lane
    try:
        yield
    except RemoteError:
        raise
    except RaceError as error:
        raise RemoteError(f"lane {lane}: {endpoint.redact(str(error))[:MAX_WORDS]}", "broken") from error
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        _, refused_it, why = str(error).partition("certificate verify failed: ")
        if refused_it:
            why = endpoint.redact(why.partition(" (_ssl")[0])
            help_ = AUTHORITY if "self-signed" in why or "issuer" in why else ""
            message = f"the certificate of the server of lane {lane} is not accepted: {why}{help_}"
            raise RemoteError(message, "certificate") from error
        raise RemoteError(f"the server of lane {lane} cannot be reached{_reason(error)}", "connect") from error
    except httpx.TimeoutException as error:
        message = f"the server of lane {lane} was silent for {patience.silence_s:g} s"
        raise RemoteError(message, "timeout") from error
    except httpx.DecodingError as error:
        raise RemoteError(f"the server of lane {lane} sent what is not compressed as it says", "broken") from error
    except (httpx.HTTPError, httpx.StreamError) as error:
        has_begun = str(error).startswith(CUT)
        may_be_https = not (has_begun or endpoint.memory.base) and endpoint.url.startswith("http:")
        hint = "; if it speaks https, its URL must begin with that" if may_be_https else ""
        raise RemoteError(f"the server of lane {lane} broke the connection off{hint}", "disconnected") from error


def _reason(error: BaseException) -> str:
    """Why no connection was made, to follow "cannot be reached"; "" where nobody listens, or nothing more is known."""
    if NOT_TLS in str(error):
        return ": what listens there speaks http, not https"
    cause: BaseException | None = error
    while cause is not None and (isinstance(cause, ssl.SSLError) or getattr(cause, "errno", None) is None):
        cause = cause.__cause__ or cause.__context__  # anyio suppresses it
    if isinstance(cause, socket.gaierror):
        return ": the name of its host cannot be looked up"
    number = getattr(cause, "errno", errno.ECONNREFUSED)
    return "" if number == errno.ECONNREFUSED else f": {os.strerror(number)}, says this machine"


async def body_of(parts: AsyncIterator[bytes], max_bytes: int, received: bytes = b"") -> bytes:
    """A response's body; b"" if it is longer. received: what was read of it before these parts."""
    async for part in parts:
        received += part
        if len(received) > max_bytes:
            return b""
    return received


async def refusal_of(
    endpoint: Endpoint, response: httpx.Response, begins: bytes = b"", parts: AsyncIterator[bytes] | None = None
) -> RemoteError:
    """A server's refusal, or an answer that is no stream, in a sentence. begins: of its body, before these parts."""
    received = await body_of(response.aiter_bytes() if parts is None else parts, MAX_ERROR_BYTES, begins)
    page = received.decode("utf-8", "replace")
    named = re.findall(rf"\b(?:{'|'.join(OPTIONAL)})\b", page)
    said, kind = parsed(received), endpoint.redact(response.headers.get("Content-Type", "")).partition(";")[0][:40]
    title = TITLE.search(page) if kind == "text/html" else None  # a proxy's page says there what is wrong
    words = words_in(page if said is None and kind == "text/plain" else unescape(title[1]) if title else said)
    words = endpoint.redact(words.removeprefix(f"{response.status_code} "))[:MAX_WORDS]
    details = f": {words}" if words else ""
    if response.status_code == 200:
        if find(list, said, "choices"):
            details = " (stream: true was ignored, by it or by what is in front of it)"
        message = f"the server of lane {endpoint.lane} answered with {kind}, which is no stream{details}"
        return RemoteError(message, "status", 200)
    status, after = response.status_code, endpoint.redact(response.headers.get("Retry-After", ""))[:40]
    after = after if after.isdecimal() else ""
    wait = f"; ask again in {after} s" if after else ""
    redirected = ", a redirect, which is not followed" if 300 <= status < 400 else ""
    message = f"the server of lane {endpoint.lane} answered {status}{redirected}{details}{wait}"
    return RemoteError(message, "status", status, named)
