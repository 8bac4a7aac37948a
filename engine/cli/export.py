"""The command export: a recorded race as a web page, and its steps as a table. It needs neither torch nor gradio."""

import os
from argparse import Namespace
from pkgutil import resolve_name

from ..core.errors import UsageError
from ..recordings.recording import check_writable, read, write_bytes
from ..recordings.steps_csv import steps_csv
from .arguments import Command, not_empty, setting
from .options import FILE

# Makes the page from a recording. It consists of the page's own files, so this is the one place where the engine names
# the app: by a string, like every table of plug-ins.
PLAYER = "app.page.exported:exported"


def _export(options: Namespace) -> int:
    wanted = [path for path in (options.html, options.csv) if path is not None]
    if not wanted:
        raise UsageError("nothing to write: give --html OUT.html, --csv OUT.csv, or both")
    if len({os.path.realpath(path) for path in (options.file, *wanted)}) <= len(wanted):
        raise UsageError("the recording, --html and --csv must be different files")
    for path in wanted:
        check_writable(path)
    recording = read(options.file)
    if options.html is not None:
        _write(options.html, resolve_name(PLAYER)(recording))
    if options.csv is not None:
        _write(options.csv, steps_csv(recording))
    return 0


def _write(path: str, text: str) -> None:
    data = text.encode("utf-8")
    write_bytes(path, data)
    if os.path.isfile(path):  # a pipe's reader wants nothing else
        print(f"{path}: {len(data) / 1e6:.2f} MB")


EXPORT = Command(
    (
        FILE,
        setting("--html OUT.html", not_empty, "write one web page that plays the race in any browser, offline"),
        setting("--csv OUT.csv", not_empty, "write the steps of all lanes as a table"),
    ),
    _export,
    "Example: python -m engine export race.json --html race.html. The page contains the recording, and its button "
    "Save returns it. An existing file is replaced. Exit status: 0 written; 1 it could not be written; 2 "
    "the file or the arguments cannot be used; 130 interrupted.",
)
