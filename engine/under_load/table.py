"""What a study of servers prints: each level, geometric means, improvement, where the curves cross."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..cli.terminal import clean
from .metrics import HIGHER

COLUMNS = {
    "output_tokens_per_s": ("output tok/s", 1, 1),
    "total_tokens_per_s": ("total tok/s", 1, 1),
    "ttft_p95_s": ("TTFT P95 s", 1, 3),
    "itl_p95_s": ("ITL P95 ms", 1000, 2),
    "tpot_p95_s": ("TPOT P95 ms", 1000, 2),
    "latency_median_s": ("latency s", 1, 2),
    "largest_gap_s": ("gap s", 1, 2),
    "mean_acceptance_length": ("accept length", 1, 2),
    "dollars_per_million": ("$ per 1M", 1, 2),
}
"""Metric -> (column, factor, decimals)."""


def print_report(console: Console, found: Mapping[str, Any], lanes: Sequence[str]) -> None:
    """found: what --json prints."""
    levels = found["levels"]
    metrics = [metric for metric in HIGHER if any(level[metric] is not None for level in levels)]
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column(Text("lane"), overflow="fold")
    for column in ("users", "errors", *(COLUMNS[metric][0] for metric in metrics)):
        table.add_column(Text(column), justify="right")
    for level in sorted(levels, key=lambda each: (each["concurrency"], lanes.index(each["lane"]))):
        errors = f"{level['num_errors']} of {level['num_requests']}"
        users = f"{level['concurrency']}{'*' if level['asked_before'] else ''}"
        _row(table, [level["lane"], users, errors, *(_told(m, level[m]) for m in metrics)])
    for lane, means in found["geomeans"].items():
        _row(table, [lane, "geomean", "", *(_told(metric, means[metric]) for metric in metrics)])
    if gains := found["improvement_percent"]:
        cells = ["-" if gains[metric] is None else f"{gains[metric]:+.1f} %" for metric in metrics]
        _row(table, [f"{lanes[1]} is better by", "", "", *cells])
    console.print(table)
    for note in _notes(found, lanes):
        console.print(Text(clean(note)))


def _notes(found: Mapping[str, Any], lanes: Sequence[str]) -> Iterator[str]:
    """Sentences below the table."""
    levels = found["levels"]
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
    _, factor, decimals = COLUMNS[metric]
    return "-" if value is None else f"{value * factor:.{decimals}f}"
