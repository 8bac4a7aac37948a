"""The printed report of a study: the verdict, its reason, a table by kind and drafter, prompts that lose, the
circumstances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..recordings.words import circumstances, clean, ribbons
from ..studies.prompts.rows import Row
from ..studies.prompts.verdict import outcome
from .output import number, times
from .report import CAUTION

MOST_LOSERS = 10
ALL = "all"


def print_report(
    console: Console, report: Mapping[str, Any], rows: Sequence[Row], num_prompts: int, about: Mapping[str, Any]
) -> None:
    """report: the object of --json. num_prompts: the number requested. about: from `Study.about`."""
    best = report["best"]
    how = "measured" if best["measured"] else "computed"
    gain = "" if best["median_speedup"] is None else f", {times(best['median_speedup'])} at the median ({how})"
    headline = f"{report['verdict'].upper()}: {best['drafter']} at k = {best['k']}{gain}"
    console.print(Text(clean(headline), "bold"))
    console.print(Text(clean(report["reason"])))
    num_done = len({row.line for row in rows})
    if num_done < num_prompts:
        console.print(Text(f"{num_done} of {num_prompts} prompts are finished; this is what they say", CAUTION))
    if disturbed := len({row.line for row in rows if row.disturbed}):
        console.print(Text(f"The machine was disturbed in {disturbed} of {num_done} races.", CAUTION))
    console.print(_table(report["summary"]))
    losers = sorted(
        (row for row in rows if row.drafter == best["drafter"] and outcome(row) == "loses"),
        key=lambda row: row.speedup or 0.0,
    )
    for row in losers[:MOST_LOSERS]:
        console.print(Text(clean(f"loses: {times(row.speedup)}, {row.kind}, line {row.line}: {row.prompt}")))
    if len(losers) > MOST_LOSERS:
        console.print(Text(f"and {len(losers) - MOST_LOSERS} more that lose"))
    console.print(Text(circumstances(about), "dim"))
    for ribbon in ribbons(about, False):
        console.print(Text(ribbon, "bold reverse"))


def _table(summary: Mapping[str, Any]) -> Table:
    table = Table(title=Text("speed-up over plain"), title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("kind", "drafter"):
        table.add_column(Text(column), overflow="fold")
    for column in ("prompts", "median", "quartiles", "above 1.3x", "gain", "lose"):
        table.add_column(Text(column), justify="right", no_wrap=True)
    kinds = list(next(iter(summary.values()))["by_kind"])
    for kind in [*kinds, ALL] if len(kinds) > 1 else kinds:
        for drafter, numbers in summary.items():
            its = numbers if kind == ALL else numbers["by_kind"][kind]
            cells = (
                kind,
                drafter,
                str(its["num_prompts"]),
                times(its["median_speedup"]),
                f"{times(its['p25'])} - {times(its['p75'])}",
                number(its["share_above_1_3"], 0, " %", 100),
                str(its["num_gain"]),
                str(its["num_lose"]),
            )
            table.add_row(*(Text(clean(cell)) for cell in cells))
    return table
