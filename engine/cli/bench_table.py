"""The printed report of a bench, from its JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..analysis.metrics import ratio
from ..analysis.roofline import Roofline
from ..recordings.words import clean, ran_on, ribbons
from .output import times

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    """The object as a table, with what it was measured on below."""
    from rich.text import Text

    console.print(_table(report))
    for line in _lines(report):
        console.print(Text(clean(line)))
    for note in report["notes"]:
        console.print(Text(f"note: {clean(note)}", "#e69f00"))
    console.print(Text(clean(_circumstances(report)), "dim"))
    synthetic = any(row["synthetic"] for row in report["rows"])
    for ribbon in ribbons({**report, "synthetic": synthetic}, recorded=False):
        console.print(Text(ribbon, "bold reverse"))


def _table(report: Mapping[str, Any]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text("tokens per second: median (quartiles) over prompts and repeats, prefill apart"),
        title_justify="left",
    )
    table.add_column(Text("kind and name"), overflow="fold")
    for column in ("tokens/s", "quartiles", "x plain", "identical"):
        table.add_column(Text(column), justify="right")
    before = None
    for row in report["rows"]:
        if row["kind"] != before:
            table.add_section()
            table.add_row(Text(row["kind"], "bold"))
        name = clean(row["name"]) + ("  SYNTHETIC" if row["synthetic"] else "")
        identical = {True: "yes", False: "NO", None: "-"}[row["identical"]]
        cells = (
            f"{row['tokens_per_s']:.1f}",
            f"{row['p25']:.1f} - {row['p75']:.1f}",
            times(row["speedup_vs_plain"]),
            identical,
        )
        table.add_row(Text(name), *map(Text, cells))
        before = row["kind"]
    return table


def _lines(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for lane, peer in dict.fromkeys((entry["name"], entry["peer"]) for entry in report["against_peers"]):
        entries = [entry for entry in report["against_peers"] if (entry["name"], entry["peer"]) == (lane, peer)]
        ratios = ", ".join(
            f"{entry['kind']} {entry['ratio']:.2f} ({entry['p25']:.2f} - {entry['p75']:.2f})" for entry in entries
        )
        best = ", the best peer without drafts" if lane == "plain" else ""
        lines.append(f"{lane} / {peer}{best}: {ratios}")
    lines += [
        f"{row['name']} at k auto, {row['kind']}: {100 * row['oracle_share']:.0f} % of the oracle's speed (median)"
        for row in report["rows"]
        if row["oracle_share"] is not None
    ]
    first = report["widths"].get("1")
    curve = ", ".join(
        f"{width}: {1000 * seconds:.1f} ms" + (f" ({seconds / first:.2f}x)" if first else "")
        for width, seconds in report["widths"].items()
    )
    lines.append(f"a bare step by width: {curve}")
    if common := [width for width in report["stock_widths"] if width in report["widths"]]:
        stock = ", ".join(
            f"{width}: {1000 * report['stock_widths'][width]:.1f} ms (ours "
            f"{ratio(report['widths'][width], report['stock_widths'][width]) or 0:.2f} of it)"
            for width in common
        )
        lines.append(f"transformers' own forward by width: {stock}")
    if (gap := report["host_gap"]) is not None:
        what = "sampling, acceptance and Python, beyond the bare forward run after each step"
        lines.append(
            f"host gap: {1000 * gap['gap_s']:.2f} ms of a plain step's {1000 * gap['step_s']:.1f} ms, "
            f"{100 * (gap['share'] or 0):.1f} %: {what}, medians of {gap['num_steps']} pairs"
        )
    if (roof := report["roofline"]) is not None:
        bound = Roofline(roof["step_s"], roof["bytes_per_step"], roof["bandwidth_bytes_per_s"])
        lines.append(f"{bound.sentence} Bandwidth: {roof['how']}.")
    return lines


def _ks(by_drafter: Mapping[str, int | str]) -> str:
    if len(set(by_drafter.values())) == 1:
        return str(next(iter(by_drafter.values())))
    return ", ".join(f"{k} ({drafter})" for drafter, k in by_drafter.items())


def _circumstances(report: Mapping[str, Any]) -> str:
    settings = report["settings"]
    parts = (
        f"{report['model']['name']} in {report['dtype']}",
        *ran_on(report),
        report["runs"]["sentence"],
        f"commit {report['commit']}" if report["commit"] else "",
        f"{settings['num_prompts']} prompts, {settings['repeats']} repeats, up to {settings['max_new_tokens']} "
        f"tokens each, k {_ks(settings['k'])}",
        f"temperature {settings['temperature']:g}, seed {settings['seed']}",
        f"{report['num_tokens']} tokens timed in {report['elapsed_s']:.0f} s",
    )
    return "; ".join(part for part in parts if part)
