"""A cable to a server of this machine, to be cut and mended: a browser's own "offline" leaves streams as they are."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Cable:
    """url: leads to the server on that port."""

    def __init__(self, port: int) -> None:
        self._port, self._flows, self._sockets = port, threading.Event(), list[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._flows.set()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self, silent: bool = False) -> None:
        """silent: nothing arrives any more, and nobody says so; else connections end and new ones are refused."""
        self._flows.clear()
        if not silent:
            self._listener.shutdown(socket.SHUT_RDWR)  # or the port stays in use until `accept` returns
            self._listener.close()
            self._end()

    def mend(self) -> None:
        self._end()
        if self._listener.fileno() < 0:
            self._listener = socket.create_server(("127.0.0.1", int(self.url.rsplit(":", 1)[1])))
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        self._flows.set()

    def _end(self) -> None:
        while self._sockets:
            with suppress(OSError):
                self._sockets.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                here = listener.accept()[0]
                there = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while part := one.recv(65536):
                self._flows.wait()
                other.sendall(part)
        for side in (one, other):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)


@contextmanager
def cable(url: str) -> Iterator[Cable]:
    made = Cable(int(url.rsplit(":", 1)[1]))
    try:
        yield made
    finally:
        made.cut()
