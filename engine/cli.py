"""The command line: `python -m engine COMMAND ...`. Standard library only; a command's module is imported when it is chosen.

Exit status: 0 finished; 1 ran and failed; 2 unusable arguments; 130 interrupted. Errors are one line on stderr; tracebacks come with --debug only.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from .arguments import Command, Parser
from .errors import PhotofinishError, UsageError, choices

COMMANDS = {
    "race": ("engine.commands:RACE", "race one prompt through a plain and a speculative decoder and prove that the tokens are equal"),
    "verify": ("engine.verify:VERIFY", "run a recorded race again and say whether this machine gets the same tokens"),
    "replay": ("engine.commands:REPLAY", "play a recorded race at its own pace; needs no torch"),
    "load": ("engine.commands:LOAD", "load a model, converting it the first time, and say what is ready"),
}
"""Name -> ("module:attribute" of a Command, what it does)."""
PROG = "python -m engine"
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}
MAX_LINE = 2000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Never raises."""
    debug = False
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        command, parser, rest = _choose(sys.argv[1:] if arguments is None else list(arguments))
        if command is None:
            print(_overview())
            status = 0
        else:
            options = parser.parse(rest)
            debug = options.debug
            with warnings.catch_warnings():
                if not debug:
                    warnings.simplefilter("ignore")
                    os.environ.update({key: os.environ.get(key, value) for key, value in QUIET.items()})
                status = command.run(options)
        _flush()
        return status
    except SystemExit as done:
        with suppress(OSError):
            _flush()
        return done.code if isinstance(done.code, int) else 0
    except KeyboardInterrupt:
        return _fail("interrupted", 130, debug)
    except BrokenPipeError:
        _close_stdout()
        return 1
    except UsageError as error:
        return _fail(f"error: {error}", 2, debug)
    except PhotofinishError as error:
        return _fail(f"error: {error}", 1, debug)
    except Exception as error:
        return _fail(f"internal error: {type(error).__name__}: {error}; run again with --debug to see the traceback", 1, debug)


def _choose(arguments: list[str]) -> tuple[Command, Parser, list[str]] | tuple[None, None, list[str]]:
    if not arguments or arguments[0] in ("-h", "--help"):
        return None, None, []
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        raise choices("command", name[:80], COMMANDS)
    place, description = COMMANDS[name]
    module, _, attribute = place.partition(":")
    command: Command = getattr(import_module(module), attribute)
    parser = Parser(f"{PROG} {name}", command, description)
    parser.add_argument("--debug", action="store_true", help="show tracebacks and the warnings of libraries")
    return command, parser, rest


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {description}" for name, (_, description) in COMMANDS.items()]
    return "\n".join([f"usage: {PROG} COMMAND ...", "", *lines, "", f"{PROG} COMMAND --help lists a command's options."])


def _fail(message: str, status: int, debug: bool) -> int:
    with suppress(OSError, ValueError):
        if debug:
            traceback.print_exc()
        print(one_line(message), file=sys.stderr, flush=True)
    _close_stdout()
    return status


def one_line(text: str) -> str:
    """A message as one line that a terminal shows and does not obey."""
    shown = "".join(c if c.isprintable() else " " if c.isspace() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text[:MAX_LINE])
    return " ".join(shown.split()) + ("..." if len(text) > MAX_LINE else "")


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _close_stdout() -> None:
    """Flush what can be flushed; if the reader is gone, let the interpreter's own flush at exit go nowhere instead of complaining."""
    try:
        _flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
