"""For gpu_session.py: what the parts found, in a few lines. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def summary(result: Mapping[str, Any]) -> str:
    """The table that ends a session. Says of every part what became of it, whatever it holds."""
    lines = ["=== summary"]
    for name, part in result["parts"].items():
        state = part.get("state", "?")
        lines.append(
            f"{name}: {state}"
            + "".join(f", {key} {part[key]}" for key in ("why", "signal", "exit_code") if part.get(key))
        )
        try:
            lines += [f"    {line}" for line in _of(part)]
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # a part that ended in the middle
            lines.append(f"    (incomplete: {type(error).__name__} {error})")
    return "\n".join(lines)


def _of(part: Mapping[str, Any]) -> Iterator[str]:
    if "runs" in part:
        for sentence in (
            [part["runs"]["sentence"]]
            if "sentence" in part["runs"]
            else [each["sentence"] for each in part["runs"].values()]
        ):
            yield f"{part['model']}: {sentence}"
    if "GB_per_s" in part:
        yield f"bandwidth {part['GB_per_s']} GB/s"
    if "checks" in part:
        checks = part["checks"]
        yield (
            f"{sum(check['ok'] for check in checks)} of {len(checks)} kernels right; worst error "
            f"{max(check['error'] for check in checks):.2g}; wrong: {[c['name'] for c in checks if not c['ok']]}"
        )
    for row in part.get("lengths", ()):
        yield f"S {row['length']}: {steps(row)}"
    if "classes" in part:
        yield f"exact classes {part['classes']}, unstable {part['unstable']}"
    for row in part.get("races", ()):
        if "speedup" in row:
            lanes = ", ".join(
                f"{name} {row[name]['tokens_per_s']:.1f}" for name in ("plain", "baseline", "speculative")
            )
            yield (
                f"{row['what']}: {lanes} tok/s: {row['speedup']:.2f}x at {row['speculative']['tokens_a_step']:.2f} "
                f"tokens a step, {row['verdict']}"
            )
        else:
            yield f"{row['what']}: FAILED: {row.get('failed') or row.get('failed_lanes')}"
    for row in part.get("models", ()):
        yield f"tuned {len(row['entries'])} shapes of {row['model']} in {row['seconds']:.0f} s"
    for row in part.get("widths", ()):
        yield f"width {row['width']}: {row['us_a_step'] / 1e3:.3f} ms in {row['launches_a_step']:.0f} kernels a step"
    if "total" in part:
        yield f"{part['total']}, golden {part.get('golden')}"
    if "turns" in part:
        unequal = [row["lane"] for row in part["turns"] if not row["equal"]]
        yield (
            f"tokens a step in turns and one after the other: {len(part['turns']) - len(unequal)} of "
            f"{len(part['turns'])} equal; unequal: {unequal}"
        )
    for row in part.get("variants", ()):
        yield f"{row['what']}: {steps(row) if 'seconds' in row else 'FAILED'}; {row.get('bits', '')}"
    for row in part.get("products", ()):
        yield (
            f"{row['num_in']} x {row['num_out']}: classes {row['classes']}, unstable {row['unstable']}, us "
            f"{ ({w: round(us, 1) for w, us in row['us'].items()}) }"
        )
    for name in ("random", "trained"):
        if name in part:
            report = part[name]
            pairs = "; ".join(
                f"{e['name'].partition(':')[0]} / {e['peer']} ({e['kind']}) {e['ratio']:.2f}"
                for e in report["against_peers"]
            )
            yield (
                f"bench {name}: bandwidth share {report['bandwidth_share']}, host gap "
                f"{(report['host_gap'] or {}).get('share')}; {pairs}"
            )
    for left in part.get("left_out", ()):
        yield f"left out: {left}"


def steps(row: Mapping[str, Any]) -> str:
    """Milliseconds at each width, over those at width 1, and the share of the bandwidth."""
    first = row["seconds"].get("1") or row["seconds"].get(1)
    return ", ".join(
        f"{w}: {1e3 * s:.3f} ms ({s / first:.2f}x, {100 * row['bandwidth_share'][w]:.0f} %)"
        for w, s in row["seconds"].items()
    )
