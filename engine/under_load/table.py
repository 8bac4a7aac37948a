"""What a study of servers prints: each level, geometric means, improvement, where the curves cross."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..cli.terminal import clean
from .metrics import HIGHER, crossing

COLUMNS = {
    "output_tokens_per_s": ("output tok/s", 1, 1),
    "total_tokens_per_s": ("total tok/s", 1, 1),
    "ttft_p95_s": ("TTFT P95 s", 1, 3),
    "itl_p95_s": ("ITL P95 ms", 1000, 2),
    "tpot_p95_s": ("TPOT P95 ms", 1000, 2),
    "latency_median_s": ("latency s", 1, 2),
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
        _row(table, [level["lane"], str(level["concurrency"]), errors, *(_told(m, level[m]) for m in metrics)])
    for lane, means in found["geomeans"].items():
        _row(table, [lane, "geomean", "", *(_told(metric, means[metric]) for metric in metrics)])
    if gains := found["improvement_percent"]:
        cells = ["-" if gains[metric] is None else f"{gains[metric]:+.1f} %" for metric in metrics]
        _row(table, [f"{lanes[1]} is better by", "", "", *cells])
    console.print(table)
    if len(lanes) == 2 and (between := crossing(levels, *lanes)):
        text = f"{lanes[1]} stops being better in output tokens/s between {between[0]} and {between[1]} users."
        console.print(Text(clean(text)))


def _row(table: Table, cells: Sequence[str]) -> None:
    table.add_row(*(Text(clean(cell)) for cell in cells))


def _told(metric: str, value: float | None) -> str:
    _, factor, decimals = COLUMNS[metric]
    return "-" if value is None else f"{value * factor:.{decimals}f}"
