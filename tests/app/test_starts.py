"""Every documented way to start the page and to stand in front of it: a race ends well through it."""

import os
import re
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
import torch

from engine.kernels.usable import GPU_TOOL
from tests.helpers import ROOT
from tests.helpers.nginx import nginx
from tests.helpers.pageserver import ORDER, TARGET, Visitor, served

RACES = "--target", TARGET, "--dtype", "float32"
# Of a `script` of `served`: host and port by the environment alone, and what the command begins with.
PORT = "import os, sys; os.environ.update(GRADIO_SERVER_PORT=sys.argv[2], ALL_PROXY='socks5h://127.0.0.1:9'); "
BY_ENVIRONMENT = PORT + "words = [*{}, sys.executable, 'app.py', *sys.argv[3:]]; os.execvp(words[0], words)"
# A user without a name, as OpenShift makes one up. It may read the interpreter, wherever that is.
AS_NOBODY = "setpriv --reuid=12345 --regid=0 --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search"
NOBODY = [*AS_NOBODY.split(), "env", "-u", "PHOTOFINISH_CACHE", "HOME=/"]


def races(url: str, k: int = 4) -> None:
    assert Visitor(url, "starts").race(max_new_tokens=16, k=k)[-1]["state"] == "finished"


@pytest.mark.parametrize(
    ("host", "asked"), [("0:0:0:0:0:0:0:1", "[::1]"), ("0", "127.0.0.1"), ("localhost", "localhost")]
)
def test_every_form_of_an_address_races(host, asked, page_cache) -> None:
    """An IPv6 address passed all checks of ours, and then Gradio ended with a traceback, or found no port."""
    if ":" in asked and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with served(page_cache, "--host", host, *RACES, host=asked) as page:
        races(page.url)
        assert "Traceback" not in page.log.read_text()


def test_the_page_is_up_while_it_checks_and_stays(page_cache, monkeypatch) -> None:
    """A machine with a GPU that torch cannot use, and that reaches no hub: nobody waits for either, and the log says
    why. The bar for a page is 6 s on a machine with nothing else to do. An IPv6 address that Gradio takes from the
    environment, which it reads when it is imported. And, where a test may change its user, a made-up one who may write
    to the temporary folder alone, as in a container with a read-only disk: the page would not start."""
    any_address, asked = ("[::]", "[::1]") if socket.has_dualstack_ipv6() else ("0.0.0.0", "127.0.0.1")
    monkeypatch.setenv("GRADIO_SERVER_NAME", any_address)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        tool = Path(folder, GPU_TOOL)
        tool.write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 470.82.01, 9.0'\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        may = not subprocess.run([*NOBODY, "true"], capture_output=True).returncode
        script = BY_ENVIRONMENT.format([*NOBODY, f"TMPDIR={folder}"] if may else [])
        with served(page_cache, script=("-c", script), host=asked) as page:
            assert page.up_s < 30
            assert "is still being checked" in httpx.get(f"{page.url}/config").text
            races(page.url, k=1)
            ends, said = time.monotonic() + 60, "NVIDIA H100 80GB HBM3 is not used: "
            while not torch.cuda.is_available() and said not in page.log.read_text():
                assert time.monotonic() < ends
                time.sleep(0.1)
            assert httpx.get(page.url).status_code == 200 and page.process.poll() is None
            assert "Traceback" not in page.log.read_text()


def test_a_start_in_which_no_race_could_run_is_refused() -> None:
    """`gradio app.py` runs the program again, in a thread, and replaced the page before its model was loaded."""
    command = [sys.executable, "-c", "from gradio.cli import cli; cli()", "app.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr == "app.py: `gradio app.py` would run this program twice; start it with `python app.py`\n"


def test_without_a_share_link_the_page_is_there(page_cache, monkeypatch) -> None:
    """Where Gradio's server cannot be reached, the page would wait for it, or end."""
    monkeypatch.setenv("GRADIO_SHARE", "True")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing leaves this machine
    with served(page_cache) as page:
        races(page.url)
        assert "Could not create share link" in page.log.read_text()


def pictures(url: str) -> tuple[int, float]:
    """How often something of a race's steps arrives: in all, and per second from the first to the last."""
    visitor, packed = Visitor(url, "proxied"), []
    visitor.client.event_hooks["response"].append(lambda answer: packed.append(answer.headers.get("content-encoding")))
    frames = visitor.frames(settings={**ORDER, "max_new_tokens": 200})
    times = [time.monotonic() for frame in frames if frame["state"] == "running"]
    assert packed == ["gzip"], "nginx compresses nothing: this test has seen nothing"
    num = sum(later - before > 0.02 for before, later in pairwise(times))
    return num, num / (times[-1] - times[0])


def test_behind_nginx_a_race_is_seen_as_it_goes(page_cache, monkeypatch) -> None:
    """A proxy that collects and compresses would show one picture of a race; or docs/operate.md would be wrong."""
    monkeypatch.setenv("GRADIO_ROOT_PATH", "/sub")
    with served(page_cache) as page:
        races(page.url)
        to = f"proxy_pass {page.url}"
        collects = f"location / {{ {to}; proxy_ignore_headers X-Accel-Buffering; }}"
        with nginx(f"location /sub/ {{ {to}/; }} {collects}") as url:
            num, per_second = pictures(f"{url}/sub")
            assert per_second > 10
            assert pictures(url)[0] < num / 2, "nginx collects nothing: this test has seen nothing"
        (documented,) = re.findall(r"(?s)```nginx\n(.+?)```", (ROOT / "docs" / "operate.md").read_text())
        with nginx(documented.replace("http://127.0.0.1:7860", page.url)) as url:
            assert pictures(url)[1] > 10
