"""Server-sent events from the bytes of a stream, cut anywhere. Pure.

Reads what OpenAI's servers use of the format (https://html.spec.whatwg.org/multipage/server-sent-events.html): `data`,
and lines that end in LF or CR LF; comments and other fields are skipped."""

from __future__ import annotations

from ..errors import RaceError

MAX_EVENT_BYTES = 4 * 1024 * 1024


class Events:
    """`feed` takes bytes and returns the data of every complete event. Raises RaceError for an event of more than
    MAX_EVENT_BYTES and for one that is not UTF-8."""

    def __init__(self) -> None:
        self._rest, self._data, self._num_bytes = b"", list[bytes](), 0

    def feed(self, received: bytes) -> list[str]:
        found = []
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            if (data := self._line(line.removesuffix(b"\r"))) is not None:
                found.append(data)
        if self._num_bytes + len(self._rest) > MAX_EVENT_BYTES:
            raise RaceError(f"the server sent an event of more than {MAX_EVENT_BYTES // 1024**2} MB")
        return found

    def _line(self, line: bytes) -> str | None:
        if line.startswith(b"data:"):
            value = line[5:].removeprefix(b" ")
            self._data.append(value)
            self._num_bytes += len(value)
            return None
        if line or not self._data:
            return None
        data, self._data, self._num_bytes = b"\n".join(self._data), [], 0
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RaceError(f"the server sent an event that is not UTF-8 text (byte {error.start})") from error
