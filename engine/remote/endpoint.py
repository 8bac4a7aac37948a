"""A server as its operator names it, and its secrets, which no reader may see: its key, its URL, its host's names.
Pure; standard library only."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ..core.errors import UsageError

PREFIX = "openai:"
KEY = "OPENAI_API_KEY"
KEY_OF_LANE = "PHOTOFINISH_KEY_"
MAX_URL, MAX_KEY = 2000, 4000
HIDDEN = "[hidden]"
_PATHS = re.compile("/(chat/completions|completions|models)$")  # of a URL, which may have been copied with one
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass
class Memory:
    """What a server's answers have shown. refused: the optional fields without which it answered, each after its path.
    base: where it answered, see `Endpoint.bases`; "" before."""

    refused: set[tuple[str, str]] = field(default_factory=set)
    base: str = ""


@dataclass(frozen=True)
class Endpoint:
    """A server that decodes a lane. lane: its name in the race. model: the server's name for it. `url` and `key` stay
    out of `repr`, and of everything that reaches a visitor, a log or a recording: see `redact`.

    memory: shared by copies, and added to by the client."""

    lane: str
    model: str
    url: str = field(repr=False)
    key: str = field(default="", repr=False)
    memory: Memory = field(default_factory=Memory, repr=False, compare=False, kw_only=True)

    def headers(self) -> dict[str, str]:
        """For every request. Nothing is compressed, so that each token arrives when it is sent."""
        return {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}

    def redact(self, text: str) -> str:
        """A text from the server, or from a library about it, without the key, the URL or the host's names."""
        parts = urlsplit(self.url)
        return hide(text, self.secrets | {parts.netloc, parts.hostname or ""} - {""})

    @property
    def secrets(self) -> frozenset[str]:
        """What no text written by a model may contain: the key and the server's address. The plain name of this
        machine, like localhost:8000, is no secret: models write it."""
        parts = urlsplit(self.url)
        host = set() if parts.hostname in LOOPBACK else {parts.netloc}
        return frozenset({self.key, parts.password or "", f"{parts.scheme}://{parts.netloc}"} | host) - {""}

    @property
    def bases(self) -> list[str]:
        """Where its paths may begin: /v1 is tried before a URL without a path, and after one with another path."""
        if self.memory.base:
            return [self.memory.base]
        if self.url.endswith("/v1"):
            return [self.url]
        both = [self.url, f"{self.url}/v1"]
        return both if urlsplit(self.url).path else both[::-1]


def endpoint_of(lane: str, spec: str, model: str, environ: Mapping[str, str]) -> Endpoint:
    """The endpoint of `openai:URL`, with its key from the environment: PHOTOFINISH_KEY_<LANE> (the lane's name in
    capitals, with _ for anything but letters and digits), else OPENAI_API_KEY. Raises UsageError, without the URL."""
    url = check_url(f"lane {lane!r}", spec.removeprefix(PREFIX), PREFIX)
    if not model:
        raise UsageError(f"lane {lane!r} is a server: give --model NAME, as the server calls it")
    name = KEY_OF_LANE + re.sub("[^A-Z0-9]", "_", lane.upper())
    where = name if environ.get(name) else KEY
    return Endpoint(lane, model, url, check_key(environ.get(where, ""), f"${where}"))


def check_url(whose: str, url: str, prefix: str = "") -> str:
    """A server's URL in the form that requests need. Raises UsageError, without the URL. prefix: what came before it
    where it was given."""
    url = _PATHS.sub("", url.rstrip("/"))
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError(f"{whose} needs {prefix}http://HOST:PORT/v1 or the same with https")
    if parts.query or parts.fragment:
        raise UsageError(f"the URL of {whose} must end in its path, as /v1, without ? and #")
    return url


def check_key(key: str, where: str) -> str:
    """A key without the blanks around it. Raises UsageError, without the key."""
    key = key.strip()
    if len(key) > MAX_KEY or not key.isascii() or not key.isprintable():
        raise UsageError(f"the key in {where} must be at most {MAX_KEY} visible ASCII characters")
    return key


def endpoints_of(lanes: Sequence[tuple[str, str]], models: Sequence[str], environ: Mapping[str, str]) -> list[Endpoint]:
    """The endpoints of lanes (name, openai:URL); models: NAME for all, or LANE=NAME. Raises UsageError."""
    names = [name for name, _ in lanes]
    own: dict[str, str] = {}
    for model in models:
        lane, equals, name = model.partition("=")
        key, value = (lane, name) if equals and lane in names else ("", model)
        if key in own:
            raise UsageError(f"--model is given twice for {f'lane {key!r}' if key else 'all lanes'}")
        own[key] = value
    return [endpoint_of(name, spec, own.get(name) or own.get("", ""), environ) for name, spec in lanes]


def hide(text: str, secrets: Collection[str]) -> str:
    """The text with every secret, in upper or lower case, replaced by HIDDEN."""
    return _pattern(secrets).sub(HIDDEN, text) if secrets else text


class Hiding:
    """`hide` for a text that comes in parts: what may begin a secret is kept back until more comes, or `flush`."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets, self._held = secrets, ""

    def feed(self, part: str) -> str:
        text = self._held + part
        done = max((match.end() for match in _pattern(self._secrets).finditer(text)), default=0) if self._secrets else 0
        starts = range(max(done, len(text) - max(map(len, self._secrets), default=0) + 1), len(text))
        secrets = tuple(secret.lower() for secret in self._secrets)
        end = next((i for i in starts if any(secret.startswith(text[i:].lower()) for secret in secrets)), len(text))
        self._held = text[end:]
        return hide(text[:end], self._secrets)

    def flush(self) -> str:
        rest, self._held = self._held, ""
        return rest


def _pattern(secrets: Collection[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(secrets, key=len, reverse=True))), re.IGNORECASE)
