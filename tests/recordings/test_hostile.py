"""Recordings that strangers made to keep the page busy: each is drawn, or refused in a sentence, in a moment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.recordings.recording import MAX_BYTES
from engine.strict_json import QUOTES
from tests.helpers import ROOT
from tests.helpers.hostile_recordings import FAMILIES, take

# Of the processor; generous, since a busy machine takes three times as long. What these sizes are to catch, quadratic
# work, takes minutes. docs/measurements.md has the times at all sizes.
CPU_S = 3.0


@pytest.mark.parametrize("name", FAMILIES)
def test_no_recording_keeps_the_page_busy(name) -> None:
    """One anonymous request would take a processor for minutes, and a few dozen the page from everybody."""
    family = FAMILIES[name]
    taken = take(family.text(family.size))
    assert taken.cpu_s < CPU_S
    assert family.refused in taken.refused and bool(family.refused) == bool(taken.refused), taken.refused
    assert len(taken.refused) < 400


READ = """
import sys, time, pathlib
from engine.cli.main import main
from engine.core.errors import UsageError
from engine.studies.prompts.study_file import StudyFile

def study(path):
    try:
        StudyFile(path, {})
    except UsageError as error:
        print(error, file=sys.stderr)

verify = lambda path: main(["verify", path])
for read, path in ((study, sys.argv[1]), *((verify, path) for path in sys.argv[1:])):
    began = time.process_time()
    read(path)
    print(time.process_time() - began)
print(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


def test_no_file_keeps_the_command_line_busy(tmp_path: Path) -> None:
    """A stranger's file, here as large as a file can be, would take seconds and a gigabyte before it is refused."""
    files = {
        "a": "[" + "[]," * (MAX_BYTES // 4) + "1]",
        "b": json.dumps(dict.fromkeys(range(MAX_BYTES // QUOTES // 2), 0)),  # the slowest that is not refused unread
        "c": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    os.truncate(tmp_path / "c", 70_000_000)
    command = [sys.executable, "-c", READ, *(str(tmp_path / name) for name in files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    *times_s, memory_kb = map(float, done.stdout.split())
    assert len(times_s) == 1 + len(files), done.stderr
    whys = "brackets", "brackets", "its format is", "larger than 16 MB"
    for words, said in zip(whys, done.stderr.splitlines(), strict=True):
        assert words in said, done.stderr
    assert max(times_s) < CPU_S and memory_kb < 600_000
