"""Measure how long the page takes to answer recordings that were made to keep it busy, refusals included.

    python -m tools.hostile_recordings [FAMILY]... [--chars N]

Each family of tests/helpers/hostile_recordings.py is doubled until its file exceeds the page's limit (--chars). Times
above AIM_S are measured three times, and the least counts. Exit status 1 if a file takes longer than BAR_S.
"""

from __future__ import annotations

import argparse
import sys

from app.catalogue.limits import MAX_RECORDING_CHARS
from tests.helpers.hostile_recordings import FAMILIES, Family, Taken, take

BAR_S, AIM_S = 1.0, 0.3
SMALLEST = 32
MAX_DOUBLINGS = 24
REPEATS = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="names (default: all)")
    parser.add_argument(
        "--chars", type=int, default=MAX_RECORDING_CHARS, help="length of the longest file (default: %(default)s)"
    )
    options = parser.parse_args()
    take(FAMILIES["many steps"].text(SMALLEST))  # imports
    above = {BAR_S: 0, AIM_S: 0}
    for name in options.families or FAMILIES:
        size, chars, slowest, last = worst(FAMILIES[name], options.chars)
        for limit in above:
            above[limit] += slowest.wall_s > limit
        mark = "!!" if slowest.wall_s > BAR_S else "! " if slowest.wall_s > AIM_S else "  "
        times = f"{slowest.wall_s:6.3f} s ({slowest.cpu_s:6.3f} s of the processor)"
        print(f"{mark} {times} {name:28} {size:9} {chars:9} chars  {last.refused[:80]}", flush=True)
    print(f"{above[BAR_S]} families above {BAR_S} s, {above[AIM_S]} above {AIM_S} s")
    return 1 if above[BAR_S] else 0


def worst(family: Family, max_chars: int) -> tuple[int, int, Taken, Taken]:
    """Size, characters and result of the slowest file, and the result of the longest. Stops at a file above the bar,
    or when the family stops growing."""
    found, length = (0, 0, Taken("", 0.0, 0.0)), 0
    for doubling in range(MAX_DOUBLINGS):
        text = family.text(size := SMALLEST * 2**doubling)
        if len(text) == length or len(text) > max_chars:
            break
        length, taken = len(text), measured(text)
        found = max(found, (size, length, taken), key=lambda each: each[2].wall_s)
        if taken.wall_s > BAR_S:
            break
    return *found, taken


def measured(text: str) -> Taken:
    taken = take(text)
    again = [take(text) for _ in range(REPEATS - 1)] if taken.wall_s > AIM_S else []
    return min((taken, *again), key=lambda each: each.wall_s)


if __name__ == "__main__":
    sys.exit(main())
