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
    """`repositories`: name -> its folder, or its config.json alone, as a value or as it stands, or None for no file; at
    COMMIT, which is main and v1. `gated`: those that want TOKEN; another token is refused with 403. `asked`:
    (repository, the rest of the path) of every request. `sent`: bytes of each file, by (repository, name). `fault`:
    what it does with files other than config.json: "drops" the connection in the middle, or "is silent" from there
    on."""

    repositories: Mapping[str, Any]
    gated: frozenset[str] = frozenset()
    asked: list[tuple[str, str]] = field(default_factory=list)
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    address: str = ""
    fault: str = ""

    def files(self, repository: str) -> dict[str, bytes]:
        content = self.repositories[repository]
        if isinstance(content, Path):
            paths = (path for path in sorted(content.rglob("*")) if path.is_file())
            return {path.relative_to(content).as_posix(): path.read_bytes() for path in paths}
        if content is None:
            return {}
        return {"config.json": content if isinstance(content, bytes) else json.dumps(content).encode()}


@contextmanager
def config_hub(
    monkeypatch: pytest.MonkeyPatch, repositories: Mapping[str, Any], gated: frozenset[str] = frozenset()
) -> Iterator[ConfigHub]:
    """The hub that huggingface_hub asks within this block."""
    hub = ConfigHub(repositories, gated)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            owner, name, *rest = self.path.partition("?")[0].removeprefix("/api/models").strip("/").split("/")
            repository = f"{owner}/{name}"
            hub.asked.append((repository, "/".join(rest)))
            if repository not in hub.repositories:
                self._answer(404, {"X-Error-Code": "RepoNotFound"})
            elif repository in hub.gated and (token := self.headers.get("Authorization")) != f"Bearer {TOKEN}":
                self._answer(403 if token else 401, {} if token else {"X-Error-Code": "GatedRepo"})
            else:
                self._from_repository(repository, *(rest or ["revision", "main"]))

        do_GET = do_HEAD

        def _from_repository(self, repository: str, kind: str, revision: str, *place: str) -> None:
            files, name = hub.files(repository), "/".join(place)
            if revision not in (COMMIT, "main", "v1"):
                self._answer(404, {"X-Error-Code": "RevisionNotFound"})
            elif kind == "resolve" and name not in files:
                self._answer(404, {"X-Error-Code": "EntryNotFound"})
            elif kind == "resolve":
                self._file(repository, name, files[name])
            elif kind == "tree":
                entries = [{"type": "file", "path": n, "size": len(f), "oid": _tag(f)} for n, f in files.items()]
                self._answer(200, {}, json.dumps(entries).encode())
            else:
                info = {"id": "", "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
                self._answer(200, {}, json.dumps(info).encode())

        def _file(self, repository: str, name: str, body: bytes) -> None:
            status, headers = 200, {"ETag": f'"{_tag(body)}"', "X-Repo-Commit": COMMIT}
            if part := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
                start, end = int(part[1]), min(int(part[2]) + 1, len(body))
                status, headers["Content-Range"] = 206, f"bytes {start}-{end - 1}/{len(body)}"
                body = body[start:end]
            if self.command == "GET":
                hub.sent[repository, name] += len(body)
            is_whole = self.command == "HEAD" or not hub.fault or name == "config.json"
            self._answer(status, headers, body, len(body) if is_whole else len(body) // 2)
            if is_whole:
                return
            self.close_connection = True
            if hub.fault == "is silent":
                time.sleep(SILENT_S)

        def _answer(self, status: int, headers: dict[str, str], body: bytes = b"", num_sent: int | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body[:num_sent])

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
