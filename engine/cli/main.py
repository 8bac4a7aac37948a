"""The command line: `python -m engine COMMAND ...`. Standard library only; a command's module is imported on use.

Exit status: 0 finished; 1 ran and failed; 2 unusable arguments; 130 interrupted. Errors are one line on stderr;
tracebacks only with --debug."""

import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pkgutil import resolve_name
from types import FrameType

from ..core.errors import NO_MEMORY, PhotofinishError, UsageError, choices, in_a_line, is_out_of_memory
from .arguments import MAX_SHOWN, Command, Parser

COMMANDS = {
    "race": (
        "commands:RACE",
        "race one prompt through a plain and a speculative decoder and prove that the tokens are equal",
    ),
    "doctor": ("doctor:DOCTOR", "say why a drafter is not faster with a target, and what to change first"),
    "study-prompts": (
        "study_prompts:STUDY",
        "race a file of your prompts and say whether speculative decoding is worth it on them",
    ),
    "study": ("study_servers:STUDY", "measure one or two OpenAI-compatible servers under the load of 1 to 1,000 users"),
    "verify": ("verify:VERIFY", "run a recorded race again and say whether this machine gets the same tokens"),
    "replay": ("commands:REPLAY", "print the report of a recorded race; needs no torch"),
    "export": ("export:EXPORT", "write a recorded race as one web page that plays offline, or its steps as CSV"),
    "train": ("train:TRAIN", "train a draft head for a target"),
}  # name -> ("module:attribute" of a Command in this folder, its summary)
PROG = "python -m engine"
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}
MAX_LINE = 2000
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Never raises."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with _interrupts() as interrupts:
        try:
            for stream in (sys.stdout, sys.stderr):
                if hasattr(stream, "reconfigure"):
                    stream.reconfigure(errors="backslashreplace")
            status = _run(given)
            _flush()
            return status
        except BaseException as error:
            status, line = _explain(KeyboardInterrupt() if interrupts else error)
            with suppress(OSError, ValueError):
                if line and "--debug" in given:
                    traceback.print_exc()
                if line:
                    print(one_line(line), file=sys.stderr, flush=True)
            _close_stdout()
            return status


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    name = arguments[0]
    command = _command(name)
    options = _parser(name, command).parse(arguments[1:])
    with warnings.catch_warnings(), nullcontext() if options.debug else _without_tracebacks():
        if not options.debug:
            warnings.simplefilter("ignore")
            os.environ.update({key: os.environ.get(key, value) for key, value in QUIET.items()})
        return command.run(options)


def _explain(error: BaseException) -> tuple[int, str]:
    """Exit status and line for the error that ended a command; no line if there is nothing to say or no reader."""
    match error:
        case SystemExit():
            return (error.code if isinstance(error.code, int) else 0), ""
        case KeyboardInterrupt():
            return INTERRUPTED, "interrupted"
        case BrokenPipeError():
            return 1, ""
        case UsageError():
            return 2, f"error: {error}"
        case PhotofinishError():
            return 1, f"error: {error}"
        case ModuleNotFoundError() if (error.name or "").partition(".")[0] == "app":
            return 1, "error: this needs the folder app/ next to engine/, which is missing"
        case ModuleNotFoundError():
            missing = f"the package {error.name}, which is not installed; pip install -r requirements.txt"
            return 1, f"error: this needs {missing}"
        case _ if is_out_of_memory(error):
            return 1, f"error: {NO_MEMORY} ({in_a_line(error)})"
        case _:
            return 1, f"internal error: {type(error).__name__}: {error}; run again with --debug to see the traceback"


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Remember SIGINT too, since libraries turn a KeyboardInterrupt during their imports into other errors. SIGTERM is
    the same: a batch system gets what there is, and a container's first process ends (the system would ignore it)."""
    seen: list[int] = []

    def handle(signum: int, frame: FrameType | None) -> None:
        seen.append(signum)
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL} if is_main else {}
    taken = {number: handler for number, handler in usual.items() if signal.getsignal(number) == handler}
    for number in taken:
        signal.signal(number, handle)
    try:
        yield seen
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """The engine's warnings, without the tracebacks that it logs for what a command says in a line."""
    log, handler = logging.getLogger("engine"), logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(lambda record: not record.exc_info and "Traceback (" not in record.getMessage())
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _command(name: str) -> Command:
    if name not in COMMANDS:
        raise choices("command", name[:MAX_SHOWN], COMMANDS)
    return resolve_name(f"engine.cli.{COMMANDS[name][0]}")


def _parser(name: str, command: Command) -> Parser:
    parser = Parser(f"{PROG} {name}", COMMANDS[name][1], command.options, command.notes)
    parser.add_argument("--debug", action="store_true", help="show tracebacks and the warnings of libraries")
    return parser


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {description}" for name, (_, description) in COMMANDS.items()]
    last = f"{PROG} COMMAND --help lists a command's options."
    return "\n".join([f"usage: {PROG} COMMAND ...", "", *lines, "", last])


def one_line(text: str) -> str:
    """A message as one line without terminal codes."""
    shown = "".join(
        c if c.isprintable() else " " if c.isspace() else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in text[:MAX_LINE]
    )
    return " ".join(shown.split()) + ("..." if len(text) > MAX_LINE else "")


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _close_stdout() -> None:
    """Flush what can be flushed; if the reader is gone, the interpreter's flush at exit must not complain."""
    try:
        _flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
