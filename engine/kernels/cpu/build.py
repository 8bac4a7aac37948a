"""Compiles the C in this folder, once per processor and compiler, and loads it.

Nothing is downloaded. Without a C compiler, or on another processor, the engine does the same with torch, more slowly.
Threads are torch's own: these functions use its thread library, which is in the process already."""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ...cache import cache_dir, write_atomically
from ...core.errors import UsageError
from ..processor import cpu_info

log = logging.getLogger(__name__)
FOLDER = Path(__file__).resolve().parent
COMPILERS = ("cc", "gcc", "clang")
# Only explicit fused multiplications: the same expression compiled twice must give the same bits.
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-fopenmp", "-fno-math-errno", "-ffp-contract=off", "-c")
# Instruction sets, the best first; one suffices. `vectors.h` has every name for both; some files need the first.
NEEDED = {"AVX-512": ("avx512f", "avx512bw", "avx512vl", "avx512dq"), "AVX2 and FMA": ("avx2", "fma")}
OFF = "PHOTOFINISH_NATIVE"
COMPILE_S = 120.0
DIGEST_BYTES = 32
# Argument types: an address; a size or position; a small number.
POINTER, NUMBER, INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int


class NoKernels(Exception):
    """Why there are no compiled kernels here, in a sentence. level: for the log; a warning, unless it was chosen or
    cannot be changed."""

    def __init__(self, why: str, level: int = logging.WARNING) -> None:
        super().__init__(why)
        self.level = level


def fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    """Fields of a ctypes.Structure, all of that kind."""
    return [(name, kind) for name in names]


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled kernels. Raises NoKernels, at every call."""
    loaded = _found()
    if isinstance(loaded, str):
        raise NoKernels(loaded)
    return loaded[0]


def has_kernels() -> bool:
    """Whether there are compiled kernels here."""
    return not isinstance(_found(), str)


def has(name: str) -> bool:
    """Whether there are compiled kernels here that have this function: AVX2 has fewer."""
    return has_kernels() and hasattr(library(), name)


def has_tiles() -> bool:
    """Whether linears multiply by AMX here: the processor has it, and the system lets this process use it."""
    return has_kernels() and bool(library().photofinish_tiles())


def description() -> str:
    """What the kernels were made from, by what, and whether they use AMX; "" if there are none or none was needed, as
    on a GPU."""
    loaded = _found() if _found.cache_info().currsize else ""
    return "" if isinstance(loaded, str) else f"{loaded[1]}, with AMX" if has_tiles() else loaded[1]


@functools.cache
def _found() -> tuple[ctypes.CDLL, str] | str:
    """The kernels and their description, or why there are none, which is logged."""
    try:
        if os.environ.get(OFF) == "0":
            raise NoKernels(f"switched off by {OFF}=0", logging.INFO)
        import torch  # noqa: F401  its threads' library comes first

        path, description = _kept(_compiler())
        return ctypes.CDLL(str(path)), description
    except NoKernels as why:
        log.log(why.level, "steps run on torch's kernels: %s", why)
        return str(why)
    except (OSError, UsageError) as error:
        reason = f"the compiled ones cannot be kept or loaded: {error}"
        log.warning("steps run on torch's kernels: %s", reason)
        return reason


def processor_flags() -> frozenset[str]:
    """The processor's flags as Linux lists them; empty if unknown."""
    return frozenset(cpu_info("flags").split())


def reason_against_processor() -> str:
    """Why the kernels cannot run on this processor; "" if they can."""
    flags = processor_flags()
    missing = {name: ", ".join(sorted(set(needed) - flags)) for name, needed in NEEDED.items()}
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"the processor is {platform.machine()}, not an x86 with {' or '.join(NEEDED)}"
    if all(missing.values()):
        return f"the processor has neither {' nor '.join(f'{name} (without {what})' for name, what in missing.items())}"
    return ""


def _compiler() -> list[str]:
    if why := reason_against_processor():
        raise NoKernels(why, logging.INFO)
    if compiler := shlex.split(os.environ.get("CC", "")):
        return compiler
    for name in COMPILERS:
        if path := shutil.which(name):
            return [path]
    raise NoKernels(f"there is no C compiler ({', '.join(COMPILERS)}); install gcc, or name one in CC")


def _key(command: list[str]) -> tuple[str, str]:
    """A hash of everything the compiled file depends on, and the compiler's version."""
    try:
        version = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, errors="replace", timeout=COMPILE_S, check=True
        ).stdout.partition("\n")[0]
    except (OSError, subprocess.SubprocessError) as error:
        raise NoKernels(f"the C compiler {command[0]!r} does not run: {error}") from error
    parts = [
        *command,
        version,
        *FLAGS,
        *sorted(processor_flags()),
        *(path.read_text() for path in sorted([*FOLDER.glob("*.h"), *FOLDER.glob("*.c")])),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest(), version


def _kept(command: list[str]) -> tuple[Path, str]:
    """The library made by this compiler, compiled unless the cache has it intact, and its description."""
    key, version = _key(command)
    path = cache_dir() / "native" / f"kernels-{key[:24]}.so"
    if not _is_whole(path, key):
        log.info("compiling kernels for this processor, once: %s", path)
        _compile(command, key, path)
    return path, f"{key[:8]}, {version}"


def _is_whole(path: Path, key: str) -> bool:
    """Whether the file is what `_compile` wrote for this key: a missing page of a truncated one is a SIGBUS."""
    if not path.exists():
        return False
    data = path.read_bytes()
    whole = data[-DIGEST_BYTES:] == _digest(key, data[:-DIGEST_BYTES])
    if not whole:
        log.warning("%s is damaged, or from another version: it is compiled again", path)
    return whole


def _digest(key: str, library: bytes) -> bytes:
    return hashlib.sha256(key.encode() + library).digest()


def _compile(command: list[str], key: str, path: Path) -> None:
    """Two processes may do this at once: the file appears whole, its digest appended where no loader looks. It is
    linked without the compiler's own thread library, which would be a second one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        sources = sorted(FOLDER.glob("*.c"))
        parts, whole = [Path(folder, f"{source.stem}.o") for source in sources], Path(folder, path.name)
        with ThreadPoolExecutor(len(sources)) as pool:
            list(pool.map(lambda source: _run([*command, *FLAGS, str(source)], folder), sources))
        _run([*command, "-shared", *map(str, parts), "-o", str(whole), "-lm"], folder)
        library = whole.read_bytes()
    write_atomically(path, library + _digest(key, library))


def _run(call: list[str], folder: str) -> None:
    try:
        subprocess.run(
            call, cwd=folder, capture_output=True, text=True, errors="replace", timeout=COMPILE_S, check=True
        )
    except subprocess.CalledProcessError as error:
        log.warning("%s failed:\n%s", shlex.join(call), error.stderr)
        raise NoKernels(f"the C compiler {call[0]!r} failed; its messages are in the log") from error
    except subprocess.TimeoutExpired as error:
        log.warning("%s took more than %.0f s: until it succeeds, steps are slower", shlex.join(call), COMPILE_S)
        raise NoKernels(f"the C compiler {call[0]!r} took more than {COMPILE_S:.0f} s") from error
