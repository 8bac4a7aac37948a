"""A real nginx in front of a page, which keeps and compresses all that it may."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.helpers.pageserver import free_port
from tools.servers.real import NGINX_HTTP

PROGRAM = Path("/usr/sbin/nginx")


@contextmanager
def nginx(locations: str) -> Iterator[str]:
    """Serves these locations until the block ends; its URL."""
    if not PROGRAM.exists():
        pytest.skip(f"no nginx at {PROGRAM}; install Debian's nginx-light")
    port = free_port()
    server = f"gzip on; proxy_buffering on; server {{ listen 127.0.0.1:{port}; {locations} }}"
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # its workers are another user's, if root runs this
        Path(folder, "conf").write_text(NGINX_HTTP.format(port=port, servers=server))
        process = subprocess.Popen([PROGRAM, "-p", ".", "-c", "conf", "-e", "stderr"], cwd=folder)
        try:
            while not Path(folder, f"{port}.pid").exists():  # it listens before it writes this
                assert process.poll() is None
                time.sleep(0.01)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)
