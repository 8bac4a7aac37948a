"""The printed report of a study of servers: each level, geometric means, improvement, where the curves cross.
docs/load.md defines the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..recordings.words import clean
from .output import number

COLUMNS = {
    "output_tokens_per_s": ("output tok/s", 1, 1),
    "total_tokens_per_s": ("total tok/s", 1, 1),
    "ttft_p95_s": ("TTFT s", 1, 3),
    "itl_p95_s": ("ITL ms", 1000, 2),
    "tpot_p95_s": ("TPOT ms", 1000, 2),
    "latency_median_s": ("latency s", 1, 2),
    "largest_gap_s": ("gap s", 1, 2),
    "mean_acceptance_length": ("accepted", 1, 2),
    "dollars_per_million": ("$ per 1M", 1, 2),
}
"""Metric -> (column, factor, decimals)."""


PARTS = (
    ("output_tokens_per_s", "total_tokens_per_s", "mean_acceptance_length", "dollars_per_million"),
    ("ttft_p95_s", "itl_p95_s", "tpot_p95_s", "latency_median_s", "largest_gap_s"),
)
"""Metrics of one table, which fits 80 columns."""


def print_report(console: Console, found: Mapping[str, Any], lanes: Sequence[str]) -> None:
    """found: the object of --json."""
    for part in PARTS:
        metrics = [metric for metric in part if any(level[metric] is not None for level in found["levels"])]
        if metrics:
            console.print(_table(found, lanes, metrics))
            console.print()
    for note in _notes(found, lanes):
        console.print(Text(clean(note)))


def _table(found: Mapping[str, Any], lanes: Sequence[str], metrics: Sequence[str]) -> Table:
    """Levels, geometric means and improvement, of these metrics."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column(Text("lane"), overflow="fold")
    for column in ("users", "failed", *(COLUMNS[metric][0] for metric in metrics)):
        table.add_column(Text(column), justify="right")
    for level in sorted(found["levels"], key=lambda each: (each["concurrency"], lanes.index(each["lane"]))):
        users = f"{level['concurrency']}{'*' if level['asked_before'] else ''}"
        failed = f"{level['num_errors']}/{level['num_requests']}"
        _row(table, [level["lane"], users, failed, *(_told(metric, level[metric]) for metric in metrics)])
    for lane, means in found["geomeans"].items():
        _row(table, [lane, "mean", "", *(_told(metric, means[metric]) for metric in metrics)])
    if gains := found["improvement_percent"]:
        cells = ["-" if gains[metric] is None else f"{gains[metric]:+.1f} %" for metric in metrics]
        _row(table, [f"{lanes[1]} better by", "", "", *cells])
    return table


def _notes(found: Mapping[str, Any], lanes: Sequence[str]) -> Iterator[str]:
    """Sentences below the tables."""
    levels = found["levels"]
    yield "TTFT, ITL and TPOT: 95th percentile of the requests; latency: median. mean: geometric, over all levels."
    if between := found["crossing"]:
        yield f"{lanes[1]} stops being better in output tokens/s between {between[0]} and {between[1]} users."
    if any(level["acceptance_from"] == "server" for level in levels):
        yield "The acceptance length is by the servers' own counters, which are over all their users."
    if any(level["asked_before"] for level in levels):
        yield "* asked again: a stopped run had sent these prompts already, and the server may have them in its cache."
    for level in levels:
        if level["num_errors"]:
            yield f"{level['lane']}, {level['concurrency']} users: {_counted(level['errors'])}. First: {level['fault']}"


def _counted(errors: Mapping[str, int]) -> str:
    return ", ".join(f"{num} x {kind}" for kind, num in errors.items())


def _row(table: Table, cells: Sequence[str]) -> None:
    table.add_row(*(Text(clean(cell)) for cell in cells))


def _told(metric: str, value: float | None) -> str:
    _, factor, digits = COLUMNS[metric]
    return number(value, digits, factor=factor)
