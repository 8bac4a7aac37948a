"""What a bench found: one JSON object, and the table that shows it. Everything printed comes from the object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..measure.roofline import Roofline
from ..metrics import percentile, ratio
from ..models.random_targets import PREFIX
from .prompts import KINDS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from .lanes import Sample

SCHEMA = 1
FORMAT = "photofinish-bench"


def rows(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """One row for every name and kind, kinds in the order of KINDS and names as they came: medians and quartiles over
    prompts and repeats. What could never be timed has no row."""
    found = []
    for kind in KINDS:
        for name in dict.fromkeys(s.name for s in samples):
            group = [s for s in samples if s.name == name and s.kind == kind]
            rates = [s.tokens_per_s for s in group if s.tokens_per_s is not None]
            if not rates:
                continue
            gains = [s.speedup_vs_plain for s in group if s.speedup_vs_plain is not None]
            judged = [s.identical for s in group if s.identical is not None]
            shares = [s.oracle_share for s in group if s.oracle_share is not None]
            found.append(
                {
                    "name": name,
                    "kind": kind,
                    **_spread(rates, "tokens_per_s"),
                    "speedup_vs_plain": percentile(gains, 0.5),
                    "identical": all(judged) if judged else None,
                    "synthetic": any(s.synthetic for s in group),
                    "num_runs": len(rates),
                    "num_tokens": sum(s.num_tokens for s in group),
                    "oracle_share": percentile(shares, 0.5),
                }
            )
    return found


def against_peers(samples: Sequence[Sample], pairs: Iterable[tuple[str, Sequence[str]]]) -> list[dict[str, Any]]:
    """Tokens per second of a lane over those of a peer on the same prompt in the same round, medians and quartiles by
    kind. pairs: a lane, and the peers of which the best counts, the one with the highest median over everything."""
    rates = {(s.name, s.prompt, s.repeat): s.tokens_per_s for s in samples}
    found = []
    for lane, peers in pairs:
        medians = {
            peer: percentile([s.tokens_per_s for s in samples if s.name == peer and s.tokens_per_s is not None], 0.5)
            for peer in peers
        }
        known = {peer: value for peer, value in medians.items() if value is not None}
        if not known:
            continue
        best = max(known, key=lambda peer: known[peer])
        for kind in KINDS:
            own = [s for s in samples if s.name == lane and s.kind == kind]
            ratios = [r for s in own if (r := ratio(s.tokens_per_s, rates.get((best, s.prompt, s.repeat)))) is not None]
            if ratios:
                found.append({"name": lane, "peer": best, "kind": kind, **_spread(ratios, "ratio")})
    return found


def _spread(values: Sequence[float], name: str) -> dict[str, float | None]:
    return {name: percentile(values, 0.5), "p25": percentile(values, 0.25), "p75": percentile(values, 0.75)}


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    """The object as a table, with what it was measured on beneath."""
    from rich.text import Text

    from ..cli.terminal import clean

    console.print(_table(report))
    for line in _lines(report):
        console.print(Text(clean(line)))
    for note in report["notes"]:
        console.print(Text(f"note: {clean(note)}", "#e69f00"))
    console.print(Text(clean(_circumstances(report)), "dim"))
    for ribbon in _ribbons(report):
        console.print(Text(ribbon, "bold reverse"))


def _table(report: Mapping[str, Any]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from ..cli.terminal import clean

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
            _times(row["speedup_vs_plain"]),
            identical,
        )
        table.add_row(Text(name), *map(Text, cells))
        before = row["kind"]
    return table


def _lines(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for lane, peer in dict.fromkeys((entry["name"], entry["peer"]) for entry in report["against_peers"]):
        entries = [entry for entry in report["against_peers"] if (entry["name"], entry["peer"]) == (lane, peer)]
        told = ", ".join(
            f"{entry['kind']} {entry['ratio']:.2f} ({entry['p25']:.2f} - {entry['p75']:.2f})" for entry in entries
        )
        best = ", the best peer without drafts" if lane == "plain" else ""
        lines.append(f"{lane} / {peer}{best}: {told}")
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
        what = "sampling, acceptance and Python, beyond a bare forward beside each step"
        lines.append(
            f"host gap: {1000 * gap['gap_s']:.2f} ms of a plain step's {1000 * gap['step_s']:.1f} ms, "
            f"{100 * (gap['share'] or 0):.1f} %: {what}, medians of {gap['num_steps']} pairs"
        )
    if (roof := report["roofline"]) is not None:
        bound = Roofline(roof["step_s"], roof["bytes_per_step"], roof["bandwidth_bytes_per_s"])
        lines.append(f"{bound.sentence} Bandwidth: {roof['how']}.")
    return lines


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _ks(by_drafter: Mapping[str, int | str]) -> str:
    if len(set(by_drafter.values())) == 1:
        return str(next(iter(by_drafter.values())))
    return ", ".join(f"{k} ({drafter})" for drafter, k in by_drafter.items())


def _circumstances(report: Mapping[str, Any]) -> str:
    from ..cli.report import ran_on

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


def _ribbons(report: Mapping[str, Any]) -> list[str]:
    ribbons = (
        [" RANDOM WEIGHTS: step times are this shape's, the text and what is accepted mean nothing "]
        if report["model"]["name"].startswith(PREFIX)
        else []
    )
    if any(row["synthetic"] for row in report["rows"]):
        ribbons.append(" SYNTHETIC drafts: they study the hardware, not a drafter ")
    return ribbons
