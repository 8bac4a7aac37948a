"""One part of gpu_session.py, in its process: python tools/gpu_part.py MODULE:FUNCTION --out FILE --seconds S [--small]
[--pretend]

FUNCTION gets a `Part`, and leaves in it what it measures, as it goes.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent
FIXTURES = ROOT / "tests" / "fixtures"
sys.path[:0] = [str(ROOT), str(TOOLS)]

from gpu_shapes import SHAPES, SMALL, shrink  # noqa: E402

Item = TypeVar("Item")


class Part:
    """What a part works with. out: its file. seconds: how long it may take. small: tiny shapes. earlier: what the parts
    before it have found."""

    def __init__(self, out: Path, seconds: float, small: bool, earlier: dict[str, Any] | None = None) -> None:
        self.out, self.small, self.earlier = out, small, earlier or {}
        self._ends_at = time.monotonic() + seconds
        self.found: dict[str, Any] = {}

    @property
    def left_s(self) -> float:
        return self._ends_at - time.monotonic()

    def put(self, **found: Any) -> None:
        """Keep this; it is on the disk when this returns."""
        self.found |= found
        self._write()
        print(*(f"{key}: {str(value)[:300]}" for key, value in found.items()), sep="\n", flush=True)

    def row(self, rows: str, **row: Any) -> None:
        """Keep one more row of the list of that name."""
        self.found.setdefault(rows, []).append(row)
        self._write()
        print(f"{rows}: {str(row)[:400]}", flush=True)

    def _write(self) -> None:
        new = self.out.with_suffix(".new")
        new.write_text(json.dumps(self.found, indent=1, default=str) + "\n")
        os.replace(new, self.out)

    def each(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, as long as there is time for one more that takes as long as the last; those left out are named in
        `left_out`."""
        items, took = list(items), 0.0
        for place, item in enumerate(items):
            if self.left_s < took:
                self.put(
                    left_out=[
                        *self.found.get("left_out", []),
                        *(f"{str(each)[:120]}: {self.left_s:.0f} s were left" for each in items[place:]),
                    ]
                )
                return
            started = time.monotonic()
            yield item
            took = time.monotonic() - started

    @cached_property
    def device(self) -> str:
        """Also keeps what this machine is."""
        import torch

        from engine.kernels.choose import choose
        from engine.measure import environment

        name = "cuda" if torch.cuda.is_available() else "cpu"
        kernels = choose(torch.device(name), torch.bfloat16)
        self.put(
            device=kernels.about_device(),
            versions=environment.versions(kernels.describe()),
            commit=environment.commit(),
        )
        return name

    def model(self, name: str, default_tiles: bool = True) -> Any:
        """A loaded model with random weights of that published shape, or of a tiny one like it, ready; and keeps what
        runs its steps."""
        from gpu_tiles import linears_of, put_tiles

        from engine.models.loading import load

        device = self.device
        started = time.monotonic()
        loaded = load(f"random:{self.shape(name)}", "bfloat16", device)
        prepared = loaded.prepared
        if default_tiles:
            put_tiles(linears_of(prepared.model), [])
        self.put(
            model=loaded.info.name,
            weights=loaded.info.licence,
            runs=prepared.kernels.runs(prepared.model),
            loading_s=round(time.monotonic() - started, 1),
        )
        print(self.found["runs"]["sentence"], flush=True)
        return loaded

    def shape(self, name: str) -> str:
        """What follows `random:` for one of SHAPES."""
        config = SMALL[name] if self.small else SHAPES[name]
        if isinstance(config, str):
            return config
        folder = self.out.parent / f"shape_{name.replace('/', '--')}"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)


def run(function: str, part: Part) -> None:
    """Call `module:function` with the part."""
    module, _, name = function.partition(":")
    getattr(import_module(module), name)(part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("function")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--pretend", action="store_true")
    options = parser.parse_args()
    faulthandler.enable()
    faulthandler.dump_traceback_later(
        options.seconds, exit=False
    )  # it will be killed soon after, and this says where it hung
    session = options.out.parent / "session.json"
    earlier = json.loads(session.read_text())["parts"] if session.exists() else {}
    part = Part(options.out, options.seconds, options.small, earlier)
    if options.small:
        shrink()
    pretended: Any = nullcontext()
    if options.pretend:
        from gpu_pretended import pretended as on_the_stand_in

        pretended = on_the_stand_in(options.function)
    with pretended:
        run(options.function, part)


if __name__ == "__main__":
    main()
