"""Races, studies and loads that hang, whose thread ends, or whose page ends: every visitor reads a sentence, and the
next race of the same process runs where one can. Faults of the engine under the page are in
test_injected_engine_faults.py."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from app.jobs import races, recorded, studies, worker
from app.jobs.loader import QUIET_S, Loader
from app.jobs.queue import HANGS, RESTARTS, RaceQueue
from app.jobs.races import Stage
from app.jobs.studies import Studies, Study
from app.page import ending
from engine.core.errors import PhotofinishError, RaceError, UsageError, sentence
from engine.progress import silent
from engine.recordings.recording import Recording
from tests.helpers import ROOT
from tests.helpers.races import fixed_race
from tests.helpers.staged import StagedBackend, in_loop, until, watch

RACE = fixed_race()
SECRET = "a secret of the machine"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of a test: what hangs does so within a moment."""
    monkeypatch.setattr(worker, "QUIET_S", 0.3)
    monkeypatch.setattr(worker, "STEP_S", 0.3)
    monkeypatch.setattr(studies, "QUIET_S", 0.3)
    monkeypatch.setattr(races, "END_S", 0.2)


class Faulty(StagedBackend):
    """Does `fault()` once, in one place: "set-up", "step", "result" or "extras"."""

    def __init__(self, where: str, fault: Any, **more: Any) -> None:
        super().__init__(RACE, **more)
        self.where, self.fault = where, fault
        self.fail = lambda: self.at("step")

    def at(self, where: str) -> None:
        if where == self.where:
            self.where = ""
            self.fault()

    def prepare(self, order: Any, progress: Any) -> Any:
        race = super().prepare(order, progress)
        self.at("set-up")
        right = race.result
        race.result = lambda: (self.at("result"), right())[1]
        return race

    def extras(self, race: Any, progress: Any) -> Any:
        self.at("extras")
        return super().extras(race, progress)


class Work(Study):
    """A study of one prompt, which does `fault()`."""

    def __init__(self, fault: Any) -> None:
        super().__init__(())
        self.fault = fault

    def work(self) -> None:
        self._progress("racing", None)
        self.fault()
        self.is_complete = True

    def frame(self) -> dict[str, Any]:
        return {}


async def studied(studies: Studies, visitor: str, fault: Any) -> str:
    """How a study ends for its visitor, in words."""
    try:
        async with aclosing(studies.frames(visitor, f"at {visitor}", Work(fault))) as frames:
            return str(json.loads([text async for text in frames][-1])["text"])
    except PhotofinishError as error:
        return str(error)


BUG, NO_MEMORY = "a bug in Photofinish", "there is not enough memory for this; choose a smaller model"
ENDS: dict[str, tuple[BaseException, str]] = {
    "exit": (SystemExit(3), BUG),
    "interrupt": (KeyboardInterrupt(), BUG),
    "memory": (MemoryError(SECRET), NO_MEMORY),
    "GPU memory": (RuntimeError(f"CUDA out of memory; {SECRET}"), NO_MEMORY),
    "bug": (ValueError(SECRET), BUG),
    "refusal": (UsageError("the prompt is too long"), "the prompt is too long"),
    "failure": (RaceError("out of luck"), "out of luck"),
}
PLACES = ["set-up", "step", "result", "extras"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("where", [*PLACES, "study", "load"])
@in_loop
async def test_whatever_ends_a_thread_its_visitor_reads_why(where: str, end: str) -> None:
    """A traceback, a stream or a study without end, a device or model lost for ever; a race spoilt by its extras."""
    error, words = ENDS[end]
    fault = Mock(side_effect=error)
    if where == "load":
        loader = Loader(Mock(side_effect=[error, "loaded"]))
        with pytest.raises(PhotofinishError, match=words) as said:
            loader.get("a model", silent)
        assert SECRET not in str(said.value) and loader.get("a model", silent) == "loaded"
    elif where == "study":
        queue = RaceQueue()
        studies = Studies(queue)
        text = await studied(studies, "a", fault)
        assert words in text and SECRET not in text
        assert queue.is_empty and await studied(studies, "a", lambda: None) == "Finished."
    else:
        stage = Stage(Faulty(where, fault))
        frames = await watch(stage, "a")
        assert frames[-1]["complete"] and SECRET not in json.dumps(frames)
        state = "finished" if where == "extras" else "failed"
        if where == "extras":
            assert [json.loads(frame["recording"]) for frame in frames if frame["recording"]] == [RACE]
            words = ""
        text = frames[-1]["status"]["text"]
        assert frames[-1]["state"] == state and words[1:] in text and text == sentence(text)
        assert (await watch(stage, "b"))[-1]["state"] == "finished"


# What hangs


def test_a_load_that_hangs_is_said_until_it_goes_on() -> None:
    """Every race would show "loading" and wait for ever, and whoever watches over the process wait with it."""
    goes_on, clock = threading.Event(), [0.0]

    def load(target: str, progress: Any) -> str:
        progress("reading", None)
        goes_on.wait()
        return "loaded"

    loader = Loader(load, clock=lambda: clock[0])
    loader.start("a model")
    while loader.status.text != "reading":
        time.sleep(0.001)
    clock[0] = QUIET_S
    assert loader.status.state == "loading"
    clock[0] += 1
    assert loader.status.state == "failed" and loader.status.hangs
    for target in ("a model", "another"):
        with pytest.raises(RaceError, match="a model could not be loaded: nothing has been heard"):
            loader.get(target, silent)
    goes_on.set()
    while loader.status.state != "ready":
        time.sleep(0.001)
    assert loader.get("a model", silent) == "loaded"


@pytest.mark.parametrize("where", [*PLACES, "study"])
@in_loop
async def test_what_hangs_is_said_to_everybody(where: str) -> None:
    """All visitors would wait, without a word, for a thread that nobody can end; and whoever watches over the process
    would take it for well. What goes on after all opens the page again."""
    goes_on = threading.Event()
    backend = Faulty(where, goes_on.wait)
    stage = Stage(backend)
    studies = Studies(stage.queue)
    try:
        first: Any = asyncio.create_task(studied(studies, "a", goes_on.wait) if where == "study" else watch(stage, "a"))
        # It has begun: extras that have not are dropped for whoever waits.
        await until(lambda: not stage.queue.is_empty and backend.where not in PLACES)
        waiting = asyncio.create_task(watch(stage, "b"))
        last = await first if where == "study" else (await first)[-1]
        if where == "extras":
            assert last["complete"] and last["state"] == "finished"
        else:
            assert last == HANGS or (last["state"], last["status"]["text"]) == ("failed", sentence(HANGS))
        assert (await waiting)[-1]["status"]["text"] == sentence(HANGS) and stage.queue.is_stalled
        with pytest.raises(UsageError, match="a race hangs"):
            await watch(stage, "c")
    finally:
        goes_on.set()
    await until(lambda: stage.queue.is_empty)
    assert not stage.queue.is_stalled and (await watch(stage, "d"))[-1]["state"] == "finished"
    assert await studied(studies, "a", lambda: None) == "Finished."


@in_loop
async def test_what_is_slow_does_not_hang() -> None:
    """A long download, or a long race, would be ended for taking its time."""
    backend = StagedBackend(RACE, prepare_s=0.5, step_s=0.03)
    backend.num_positions, backend.position_s = 5, 0.1
    stage = Stage(backend)
    frames = await watch(stage, "a")
    assert frames[-1]["state"] == "finished" and backend.asked == 5


# The end of the page


@pytest.mark.parametrize("where", ["step", "set-up that reports", "a step that hangs"])
@in_loop
async def test_the_end_of_the_page_is_an_end_for_everybody(where: str, monkeypatch: Any) -> None:
    """Streams would break off without a word, or a hanging step keep the process; a race that ran would be lost."""
    monkeypatch.setattr(worker, "STEP_S", 60.0)
    goes_on = threading.Event()
    backend = Faulty("step" if "hangs" in where else "", goes_on.wait, step_s=0.05)
    backend.prepare_s = 60.0 if "set-up" in where else 0.0
    stage = Stage(backend)
    studies = Studies(stage.queue)
    racing = asyncio.create_task(watch(stage, "a"))
    await until(lambda: backend.running or (backend.prepare_s and backend.orders))
    waiting, study_of = asyncio.create_task(watch(stage, "b")), asyncio.create_task(studied(studies, "c", print))
    await asyncio.sleep(0.05)
    assert stage.is_watched and studies.is_watched
    began = time.monotonic()
    stage.queue.is_closed = True
    last = (await racing)[-1]
    assert (await waiting)[-1]["status"]["text"] == sentence(RESTARTS) == last["status"]["text"]
    assert await study_of == RESTARTS and time.monotonic() - began < 2
    assert last["state"] == ("failed" if "hangs" in where else "stopped")
    assert (last["recording"] is not None) == (where == "step")
    assert len(backend.orders) == 1 and not (stage.is_watched or studies.is_watched)
    with pytest.raises(UsageError, match="being restarted"):
        await watch(stage, "d")
    goes_on.set()


ENDING = """
import signal, sys, threading, time
from app.jobs.logs import set_up
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
from app.page import ending
ending.CLOSE_S = 0.5
set_up()
class Page:
    is_watched, closes_in_s = True, float(sys.argv[1])
    def close(self):
        print("closed")
        threading.Timer(self.closes_in_s, lambda: setattr(self, "is_watched", False)).start()
threading.Thread(target=time.sleep, args=(60,)).start()  # a step that hangs
print("up", flush=True)
ending.serve_until_signal(Page())
"""


@pytest.mark.parametrize(("closes_in_s", "number"), [(0.1, "INT"), (0.1, "HUP"), (60.0, "TERM")])
def test_the_process_ends_whatever_hangs(closes_in_s: float, number: str) -> None:
    """A supervisor would have to kill it, or take the end for a failure; so would a terminal that is closed."""
    command = [sys.executable, "-c", ENDING, str(closes_in_s)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    if number == "HUP":
        process.stdout.close()
    time.sleep(0.1)
    began = time.monotonic()
    os.kill(process.pid, signal.Signals[f"SIG{number}"])
    assert process.wait(10) == 0 and time.monotonic() - began < 5 and ending.CLOSE_S + ending.SENT_S < 4.5
    assert number == "HUP" or process.stdout.read() == "closed\n"


def test_a_signal_ends_a_page_that_is_not_up_yet() -> None:
    """As the first process of a container it would never get what it left to the system, and run until it is killed."""
    process = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    catches = re.compile(r"SigCgt:\s*[0-9a-f]+400[23]\n")  # TERM, INT, and HUP unless these tests run under nohup
    while not catches.search(Path(f"/proc/{process.pid}/status").read_text()):
        time.sleep(0.001)
    process.terminate()
    assert (process.wait(10), process.communicate()[1]) == (0, "")


def test_a_page_without_any_output_starts() -> None:
    """A service's manager may close all three, and Python then has no file for them: the server's log could not be."""
    prints = "from app.jobs.logs import set_up; set_up(); import os, sys; sys.stderr.write('words'); os._exit(7)"
    command = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, prints]
    assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == 7


# What is full


@in_loop
async def test_a_full_shelf_says_which_race_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A race too many would end the page's memory, or take the next race with it."""
    monkeypatch.setattr(recorded, "MAX_BYTES", 4000)
    stage = Stage(StagedBackend(RACE))
    names = [(await watch(stage, "a"))[-1]["race"] for _ in range(5)]
    with pytest.raises(UsageError, match="no longer on the server; open it from its file, or race again"):
        stage.shelf.get(names[0])
    assert stage.shelf.get(names[-1]) == Recording.of(RACE)
    monkeypatch.setattr(recorded, "MAX_BYTES", 10)
    assert (await watch(stage, "a"))[-1]["state"] == "finished", "not even one fits"
