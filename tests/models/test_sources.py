"""Where models come from: what is a path is never looked up elsewhere, and a hub repository is recorded with its
commit."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.errors import UsageError
from engine.models.loading import load
from engine.models.sources import find
from tests.helpers.tiny import TRAINED

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def folder(tmp_path) -> Path:
    """A copy of the trained target."""
    return Path(shutil.copytree(TRAINED, tmp_path / "model"))


@pytest.mark.parametrize(
    "target",
    [
        "/no/such",
        "./no",
        "../no",
        "~/no-such-model",
        ".",
        "",
        "\0",
        "a",
        "a/b/c",
        "a//b",
        "-a/b",
        "a/b@",
        "C:\\x",
        "a b/c",
        "http://a/b",
        "é/b",
    ],
)
def test_what_is_no_repository_name_never_reaches_the_hub(target, monkeypatch, tmp_path):
    """A private path would be sent to a stranger's server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **k: pytest.fail(f"the hub was asked for {a}"))
    with pytest.raises(UsageError, match=r"no model at|unknown model|is no model"):
        load(target)


def test_what_exists_on_disk_never_reaches_the_hub(folder, monkeypatch):
    """A folder of the same name as a repository would be replaced by it; a file or another folder would be
    looked up."""
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **k: pytest.fail(f"the hub was asked for {a}"))
    monkeypatch.chdir(folder.parent.parent)
    target = f"{folder.parent.name}/{folder.name}"
    assert load(target, "float32").info.name == target
    for other in ("empty", "file"):
        (folder.parent / "empty").mkdir(exist_ok=True)
        (folder.parent / "file").write_text("")
        with pytest.raises(UsageError, match=r"config\.json|it is a file"):
            load(f"{folder.parent.name}/{other}")


def test_the_licence_is_the_model_cards(folder):
    """A licensed model would be shown without its terms."""
    for card, licence in (
        (None, "not stated"),
        ("# x", "not stated"),
        ("---\ntags: a\nlicense: apache-2.0\n---\n", "apache-2.0"),
        ("---\nlicense: 'mit'\n---\nlicense: no", "mit"),
    ):
        if card is not None:
            (folder / "README.md").write_text(card)
        assert find(str(folder)).licence == licence


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's protocol as fetching one repository, `owner/tiny`, takes."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        files = {file.name: file for file in TRAINED.iterdir()}
        if path.startswith("/api/models/owner/tiny/revision/") and path.endswith(("/main", "/v1")):
            self._answer(
                json.dumps(
                    {"id": "owner/tiny", "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
                ).encode()
            )
        elif path.startswith("/api/models/owner/tiny/tree/"):
            self._answer(
                json.dumps(
                    [
                        {"type": "file", "path": name, "size": file.stat().st_size, "oid": sha256(file)[:40]}
                        for name, file in files.items()
                    ]
                ).encode()
            )
        elif (
            path.startswith(tuple(f"/owner/tiny/resolve/{at}/" for at in (COMMIT, "main", "v1")))
            and (name := path.rsplit("/", 1)[1]) in files
        ):
            self._answer(files[name].read_bytes(), {"ETag": f'"{sha256(files[name])[:40]}"', "X-Repo-Commit": COMMIT})
        else:
            self._answer(b"{}", {"X-Error-Code": "RepoNotFound" if "tiny" not in path else "RevisionNotFound"}, 404)

    def _answer(self, body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Length": str(len(body)),
            "Content-Type": "application/json",
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub on this machine, and an empty cache of it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    for name, value in {
        "ENDPOINT": address,
        "HF_HUB_OFFLINE": False,
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HUB_DISABLE_XET": True,
    }.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("target", ["owner/tiny", "owner/tiny@v1"])
def test_a_hub_repository_loads_with_its_commit(hub, target, capfd, monkeypatch):
    """A record would not say which version of a model ran; progress would be the hub client's own bars."""
    said = []
    loaded = load(target, "float32", progress=lambda stage, share: said.append((stage, share)))
    assert capfd.readouterr() == ("", "")
    assert (loaded.info.name, loaded.info.revision, loaded.info.digest) == (
        target,
        COMMIT,
        sha256(TRAINED / "model.safetensors"),
    )
    expected = AutoModelForCausalLM.from_pretrained(TRAINED, dtype=torch.float32)
    assert all(torch.equal(loaded.model.get_parameter(name), value) for name, value in expected.named_parameters())
    assert any("fetching" in stage and share is not None for stage, share in said)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # without a network, what was fetched serves
    assert load(target, "float32").info == loaded.info


@pytest.mark.parametrize("target", ["owner/nonesuch", "owner/tiny@nonesuch"])
def test_a_hub_repository_that_is_not_there_is_one_clear_line(hub, target):
    """The visitor would see the client's traceback and advice for its programmers."""
    with pytest.raises(UsageError, match=f"cannot fetch '{target}'") as caught:
        load(target)
    assert "\n" not in str(caught.value)


def test_without_a_network_a_hub_name_is_one_clear_line(tmp_path, monkeypatch):
    """As above, on a machine like this one."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match=r"cannot fetch 'owner/tiny' from the hub: .*choose gemma-3-270m"):
        load("owner/tiny")
