"""A model hub on this machine that has config.json files, or whole folders, and remembers what it was asked for."""

import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_a_token_that_may"
SILENT_S = 0.6


def _tag(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:40]


@dataclass
class ConfigHub:
    """`repositories`: name -> its config.json, as a value or as it stands. `gated`: those that want TOKEN; another
    token is refused with 403. `folders`: name -> all files of a repository, at COMMIT, which is main and v1. `asked`:
    (repository, the rest of the path) of every request. `sent`: bytes of each file of a folder, by (repository,
    name). `fault`: what it does with files of a folder other than config.json: "drops" the connection in the middle, or
    "is silent" from there on."""

    repositories: Mapping[str, Any]
    gated: frozenset[str] = frozenset()
    folders: Mapping[str, Path] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    address: str = ""
    fault: str = ""


@contextmanager
def config_hub(
    monkeypatch: pytest.MonkeyPatch, repositories: Mapping[str, Any], gated: frozenset[str] = frozenset(), **more: Any
) -> Iterator[ConfigHub]:
    """The hub that huggingface_hub asks within this block; more: as of ConfigHub."""
    hub = ConfigHub(repositories, gated, **more)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            owner, name, *rest = self.path.partition("?")[0].removeprefix("/api/models").strip("/").split("/")
            repository, path = f"{owner}/{name}", "/".join(rest)
            hub.asked.append((repository, path))
            if repository not in (hub.repositories.keys() | hub.folders.keys()):
                return self._answer(b"", 404, {"X-Error-Code": "RepoNotFound"})
            if repository in hub.gated and (token := self.headers.get("Authorization")) != f"Bearer {TOKEN}":
                return self._answer(b"", 403, {}) if token else self._answer(b"", 401, {"X-Error-Code": "GatedRepo"})
            if repository in hub.folders:
                return self._from_folder(repository, *rest)
            if path != "resolve/main/config.json" or hub.repositories[repository] is None:
                return self._answer(b"", 404, {"X-Error-Code": "EntryNotFound"})
            value = hub.repositories[repository]
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self._answer(body, 200, {"ETag": f'"{_tag(body)}"', "X-Repo-Commit": COMMIT})
            return None

        do_GET = do_HEAD

        def _from_folder(self, repository: str, kind: str, revision: str, *place: str) -> None:
            folder, name = hub.folders[repository], "/".join(place)
            contents = ((path, path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file())
            files = {path.relative_to(folder).as_posix(): (body, _tag(body)) for path, body in contents}
            value: Any = {"id": "", "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
            if kind == "tree":
                value = [{"type": "file", "path": n, "size": len(f[0]), "oid": f[1]} for n, f in files.items()]
            if revision not in (COMMIT, "main", "v1"):
                return self._answer(b"", 404, {"X-Error-Code": "RevisionNotFound"})
            if kind == "resolve" and name not in files:
                return self._answer(b"", 404, {"X-Error-Code": "EntryNotFound"})
            body, tag = files[name] if kind == "resolve" else (json.dumps(value).encode(), COMMIT)
            status, more = 200, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}
            if part := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
                start, end = int(part[1]), min(int(part[2]) + 1, len(body))
                status, more["Content-Range"] = 206, f"bytes {start}-{end - 1}/{len(body)}"
                body = body[start:end]
            if self.command == "GET" and kind == "resolve":
                hub.sent[repository, name] += len(body)
                if hub.fault and name != "config.json":
                    return self._fail(body, status, more)
            self._answer(body, status, more)
            return None

        def _fail(self, body: bytes, status: int, headers: dict[str, str]) -> None:
            """Send half of it."""
            self._begin(body, status, headers)
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            if hub.fault == "is silent":
                time.sleep(SILENT_S)

        def _begin(self, body: bytes, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def _answer(self, body: bytes, status: int, headers: dict[str, str]) -> None:
            self._begin(body, status, headers)
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    ask_at(monkeypatch, hub.address)
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask_at(monkeypatch: pytest.MonkeyPatch, address: str, cache: Path | None = None) -> None:
    """From now on huggingface_hub asks there."""
    values = {
        "ENDPOINT": address,
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HUGGINGFACE_CO_URL_TEMPLATE": address + "/{repo_id}/resolve/{revision}/{filename}",
        **({"HF_HUB_CACHE": str(cache)} if cache else {}),
    }
    for name, value in values.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
