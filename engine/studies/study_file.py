"""A study's file: JSON lines, first its definition, then its results as they come. Standard library only."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..core.errors import RaceError, UsageError, short
from ..recordings.recording import check_writable, write_bytes
from ..strict_json import OBJECT, fits, parse, read_quick

MAX_BYTES = 16 * 1024**2
Entry = TypeVar("Entry")


class StudyFile(Generic[Entry]):
    """A study in a file, from which it can be resumed.

    definition: what two runs must share to be parts of one study, as far as known before the study is ready.
    entry_of: makes an entry of a line's value, or raises UsageError.
    entries: an earlier run's, without the leftovers of an interrupted write. about: that run's notes.
    Raises UsageError for a file with anything else, naming what differs, and for one that cannot be written."""

    def __init__(self, path: str, definition: Mapping[str, Any], entry_of: Callable[[Any], Entry]) -> None:
        self._path, self._definition = Path(os.path.realpath(path)), json.loads(json.dumps(definition))
        self.entries: list[Entry] = []
        self.about: dict[str, Any] = {}
        self._was: dict[str, Any] | None = None
        check_writable(path)
        if not self._path.exists():
            return
        if not self._path.is_file():
            raise UsageError(f"cannot save to {short(path)}: a study goes on in a file, and that is none")
        try:
            data = read_quick(self._path, MAX_BYTES)
            if not data:
                return
            head, *lines = (data.rpartition(b"\n")[0] or data).split(b"\n")
            self._was = parse(head, MAX_BYTES)
            fits(self._was, {"about": OBJECT})
            self._check_same(self._definition)
            self.entries = [entry_of(parse(line, MAX_BYTES)) for line in lines]
        except UsageError as error:
            raise self._refused(error) from error
        self.about = self._was["about"]

    def begin(self, entries: Iterable[Any], more: Mapping[str, Any] | None = None, about: Any = None) -> None:
        """Write the definition and these entries, as JSON; call it before the first `append`. more: what defines the
        study too and is known only now; it must equal an earlier run's. about: notes, which need not. Raises
        UsageError, or RaceError if the file cannot be written."""
        more = more or {}
        if self._was is not None:
            try:
                self._check_same(more)
            except UsageError as error:
                raise self._refused(error) from error
        write_bytes(self._path, _lines([{**self._definition, **more, "about": about or {}}, *entries]))

    def append(self, *entries: Any) -> None:
        """Write entries, as JSON, behind the others. Raises RaceError if the file cannot be written."""
        try:
            with open(self._path, "ab") as file:
                file.write(_lines(entries))
        except OSError as error:
            raise RaceError(f"cannot write {str(self._path)!r}: {error.strerror or error}") from error

    def _refused(self, error: UsageError) -> UsageError:
        return UsageError(f"cannot go on with {short(str(self._path))}: {error}; choose another file to save to")

    def _check_same(self, wanted: Mapping[str, Any]) -> None:
        assert self._was is not None
        for name, value in wanted.items():
            if self._was.get(name) != value:
                raise UsageError(f"it is another study: its {name} is {_word(self._was.get(name))}, not {_word(value)}")


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else short(value)


def _lines(values: Iterable[Any]) -> bytes:
    return "".join(f"{json.dumps(value, allow_nan=False)}\n" for value in values).encode()
