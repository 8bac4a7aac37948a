"""The printed reports of study and study-prompts: tables, and sentences around them."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..core.spec import AUTO
from ..recordings.words import clean
from ..studies.prompts.rows import Row, gain_at, outcome
from .output import number, times
from .report import CAUTION

MOST_LOSERS = 10
ALL = "all"
TABLES: Sequence[Mapping[str, tuple[str, int, int]]] = (
    {
        "output_tokens_per_s": ("output tok/s", 1, 1),
        "total_tokens_per_s": ("total tok/s", 1, 1),
        "mean_acceptance_length": ("accepted", 1, 2),
        "dollars_per_million": ("$ per 1M", 1, 2),
    },
    {
        "ttft_p95_s": ("TTFT s", 1, 3),
        "itl_p95_s": ("ITL ms", 1000, 2),
        "tpot_p95_s": ("TPOT ms", 1000, 2),
        "latency_median_s": ("latency s", 1, 2),
    },
)  # of a study of servers, each within 80 columns: metric -> (column, factor, decimals)
CENTRES = "TTFT, ITL and TPOT: 95th percentile of the requests; latency: median."


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(clean(text), style))


def _table(names: Sequence[str], numbers: Sequence[str], title: str = "") -> Table:
    """A table without rules."""
    table = Table(title=Text(title) if title else None, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in names:
        table.add_column(Text(column), overflow="fold")
    for column in numbers:
        table.add_column(Text(column), justify="right")
    return table


def _row(table: Table, cells: Sequence[str]) -> None:
    table.add_row(*(Text(clean(cell)) for cell in cells))


def print_prompts(console: Console, report: Mapping[str, Any], rows: Sequence[Row], num_prompts: int) -> None:
    """Print a study of prompts: the verdict, its reason, a table by kind and drafter, prompts that lose. report:
    the object of --json. num_prompts: the number requested."""
    best = report["best"]
    _say(console, report["said"].get("scope", report["target"]))
    words = report["says"]
    _say(console, f"{words['verdict']['']}.", "bold")
    for line in (words["then"], report["reason"], words["here"], words["texts"], words["causes"]):
        if line:
            _say(console, line)
    for peer in report["peers"]:
        _say(console, peer["says"])
    for row in rows:
        if row.ways:
            before, plain, own = (" ".join(way.split()) for way in row.ways)
            _say(console, f"line {row.line} goes on after \u201c{before}\u201d: plain {plain!r}, {row.drafter} {own!r}")
    if best and best["k"] is not None:
        _say(console, "Commands to serve it: open what --save or --json wrote on the page, in Try it on yours")
    num_done = len({row.line for row in rows})
    if num_done < num_prompts:
        _say(console, f"{num_done} of {num_prompts} prompts are finished; this is what they say", CAUTION)
    if disturbed := len({row.line for row in rows if row.disturbed}):
        _say(console, f"The machine was disturbed in {disturbed} of {num_done} races.", CAUTION)
    console.print(_by_kind(report["summary"]))
    k = best["k"] if best else AUTO
    losers = [row for row in rows if best and row.drafter == best["drafter"] and outcome(row, k) == "loses"]
    for row in sorted(losers, key=lambda row: gain_at(row, k) or 0.0)[:MOST_LOSERS]:
        _say(console, f"loses: {times(gain_at(row, k))}, {row.kind}, line {row.line}: {row.prompt}")
    if len(losers) > MOST_LOSERS:
        _say(console, f"and {len(losers) - MOST_LOSERS} more that lose")
    _say(console, report["said"].get("circumstances", ""), "dim")
    for ribbon in report["said"].get("ribbons", ()):
        _say(console, ribbon, "bold reverse")


def _by_kind(summary: Mapping[str, Any]) -> Table:
    """What each drafter does on each kind of prompt."""
    columns = ("prompts", "median", "quartiles", "kept", "a step", "gain", "lose")
    table = _table(("kind", "drafter"), columns, "speed-up over plain, guesses kept, tokens a step")
    for column in table.columns[2:]:
        column.no_wrap = True
    kinds = list(next(iter(summary.values()))["by_kind"])
    for kind in [*kinds, ALL] if len(kinds) > 1 else kinds:
        for drafter, numbers in summary.items():
            row = numbers if kind == ALL else numbers["by_kind"][kind]
            cells = [kind, drafter, str(row["num_prompts"]), times(row["median_speedup"])]
            cells += [f"{number(row['p25'], 2)}-{times(row['p75'])}", number(row["acceptance_rate"], 0, " %", 100)]
            cells += [number(row["mean_acceptance_length"], 2), str(row["num_gain"]), str(row["num_lose"])]
            _row(table, cells)
    return table


def print_load(console: Console, report: Mapping[str, Any], lanes: Sequence[str]) -> None:
    """Print a study of servers: each level with its improvement, the verdict; docs/servers.md defines the numbers.
    report: the object of --json."""
    for table in TABLES:
        known = {name: how for name, how in table.items() if any(row[name] is not None for row in report["levels"])}
        if known:
            console.print(_levels(report, lanes, known))
            console.print()
    for i, sentence in enumerate(report["says"]):
        _say(console, sentence, "" if i else "bold")
    said = (report["differ"], report["causes"], report["rough"], report["said"]["repeats"], CENTRES, *report["notes"])
    for note in filter(None, said):
        _say(console, note)
    _say(console, report["said"]["circumstances"], "dim")


def _levels(report: Mapping[str, Any], lanes: Sequence[str], metrics: Mapping[str, tuple[str, int, int]]) -> Table:
    def shown(values: Mapping[str, float | None]) -> list[str]:
        return [number(values[metric], digits, factor=factor) for metric, (_, factor, digits) in metrics.items()]

    table = _table(["lane"], ["users", "failed", *(column for column, _, _ in metrics.values())])
    for level in sorted(report["levels"], key=lambda entry: (entry["concurrency"], lanes.index(entry["lane"]))):
        num = str(level["concurrency"])
        _row(table, [level["lane"], num, f"{level['num_errors']}/{level['num_requests']}", *shown(level)])
        gains = report["improvement_by_users"].get(num)
        if gains and level["lane"] == lanes[1]:
            cells = ["-" if gains[metric] is None else f"{gains[metric]:+.1f} %" for metric in metrics]
            _row(table, [f"{lanes[1]} better by", num, "", *cells])
    return table
