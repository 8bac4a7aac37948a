"""The report of a finished race: every number of every lane, the speed-up, the verdicts with their causes, and the
circumstances."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..analysis.metrics import LaneMetrics, is_noise, lane_metrics, race_speedups, ratio, ratio_noise
from ..analysis.roofline import roofline
from ..analysis.verdict_words import LOOPS, VERDICTS
from ..core.errors import UsageError
from ..core.events import Finished, Step, steps, text_of
from ..core.spec import BASELINE, MAX_AUTO_K, PLAIN
from ..drafters import DRAWN, GREEDY, RULES
from ..recordings.recording import Recording, failures
from ..recordings.words import circumstances, clean, ribbons
from ..what_if.judged import what_if_of
from ..what_if.tables import TREES
from .output import number, times
from .terminal import STYLES, is_live, legend, marked

CAUTION, GOOD = "bold #e69f00", "bold #009e73"
FAULTY, NEUTRAL = "bold reverse #d55e00", "bold #56b4e9"
# Unknown for a server that does not report its steps: it sends pieces.
OF_STEPS = ("guessed (drafted)", "kept (accepted)", "acceptance rate", "tokens a step")
COLUMNS_OF_LABELS, COLUMNS_OF_A_LANE = 26, 18  # lanes that exceed the width get a table of their own: no number is cut


def print_report(console: Console, recording: Recording, recorded: bool = False) -> None:
    """Print a checked recording's result. `recorded`: whether it is not from a run just now."""
    events, spec = recording.events, recording.spec
    metrics = {lane.name: lane_metrics(events, lane.name) for lane in spec.lanes}
    for ribbon in ribbons(recording, recorded):
        console.print(Text(ribbon, "bold reverse"))
    _print_headline(console, recording, metrics)
    _print_texts(console, recording)
    per_table = max(1, (console.width - COLUMNS_OF_LABELS) // COLUMNS_OF_A_LANE)
    for start in range(0, len(metrics), per_table):
        console.print(_table(dict(list(metrics.items())[start : start + per_table]), recording))
    for lane, message in failures(recording).items():
        console.print(Text(f"lane {clean(lane)} failed: {clean(message)}", "bold"))
    for name, numbers in metrics.items():
        for which, shares in (
            ("all drafts", numbers.acceptance_by_position),
            ("drafts that reached it", numbers.conditional_acceptance_by_position),
        ):
            if shares:
                said = " ".join("-" if share is None else f"{100 * share:.0f}%" for share in shares)
                console.print(Text(f"{clean(name)}, accepted by position, of {which}: {said}"))
    for name, oracle in recording.get("oracles", {}).items():
        console.print(Text(f"{clean(name)}: {100 * oracle['share']:.0f} % of the oracle's speed, the best choice of k"))
    for line in _at_every_k(recording, metrics):
        console.print(Text(line))
    plain = spec.first(PLAIN)
    if bound := roofline(recording, events, plain):
        console.print(Text(bound))
    for name, verdict in sorted(recording["verdicts"].items(), key=lambda item: item[0] == plain):
        words = clean(verdict["sentence"])
        console.print(Text(f"plain lane: {words}") if name == plain else Text(words, _style(verdict)))
    for name, promise in recording.get("promises", {}).items():
        console.print(Text(f"{clean(name)}: {clean(promise)}"))
    widths = recording["widths"]
    width = f"; plain at width {widths['plain_width']}" if widths["plain_width"] is not None else ""
    cache = f"; cache of {widths['cache_length']} tokens" if widths["cache_length"] else ""
    console.print(Text(f"widths: {clean(widths['note'])}{width}{cache}"))
    console.print(Text(circumstances(recording), "dim"))


def rates_at_every_k(recording: Recording) -> dict[str, dict[int, float]]:
    """Tokens a second that each drafter, or its table of trees, would write at each size of its drafts, computed, also
    by the rules of servers; {} of a race without tables, or with more than can be computed here."""
    with suppress(UsageError):
        if what_if := what_if_of(recording):
            num = len(what_if.text.token_ids)
            rates = {name.replace(GREEDY, RULES[GREEDY]): by_k for name, by_k in what_if.rates().items()}
            return rates | {
                name + RULES[DRAWN]: {int(k): num / one["seconds"] for k, one in by_k.items()}
                for name, by_k in what_if.drawn.items()
            }
    return {}


def _at_every_k(recording: Recording, metrics: Mapping[str, LaneMetrics]) -> Iterator[str]:
    """A line for each drafter with its gain at every k."""
    undrafted = [*recording.spec.named(PLAIN), *recording.spec.named(BASELINE)]
    plain = max((metrics[name].tokens_per_s or 0.0 for name in undrafted), default=0.0)
    for drafter, rates in rates_at_every_k(recording).items():
        gains = {k: ratio(rate, plain) for k, rate in rates.items() if k <= MAX_AUTO_K}
        said = ", ".join(f"{k}: {times(gain)}" for k, gain in gains.items())
        best = max(rates, key=rates.__getitem__)
        name = clean(drafter.removesuffix(f"@{TREES}")) + ", trees," * drafter.endswith(f"@{TREES}")
        yield f"{name} at every k, times as fast as plain, computed: {said}; best at {best}"


def _print_headline(console: Console, recording: Recording, metrics: Mapping[str, LaneMetrics]) -> None:
    """First the main question: how much faster, and are the texts the same; then what to know before quoting it."""
    events, spec = recording.events, recording.spec
    undrafted = [*spec.named(PLAIN), *spec.named(BASELINE)]
    plain = max(undrafted, key=lambda name: metrics[name].tokens_per_s or 0.0, default="")
    ratios = race_speedups(events, spec.lanes)
    for name, value in ratios.items():
        verdict = recording["verdicts"].get(name)
        words = VERDICTS[verdict["kind"]] if verdict is not None else None
        same = "" if words is None else words.head if verdict["complete"] else words.so_far or words.head
        which = f"{clean(name)}: " if len(ratios) > 1 else ""
        cautions = {note["kind"]: note["sentence"] for note in recording["cautions"] if note["lane"] == name}
        speed = _ratio(value, ratio_noise(steps(events, plain), steps(events, name)))
        if why := (words.no_result if words else "") or LOOPS * ("loop" in cautions):
            speed = f"no result: {why}" + (f" ({speed})" if value is not None else "")
        console.print(Text(f"{which}{speed}{same and f'; {same}'}", _style(verdict)))
        for sentence in cautions.values():
            console.print(Text(f"{which}{sentence}", CAUTION))
    for sentence in (note["sentence"] for note in recording["cautions"] if note["lane"] is None):
        console.print(Text(clean(sentence), CAUTION))


def _style(verdict: Mapping[str, Any] | None) -> str:
    """The style of a verdict, and of the lane it is about."""
    if verdict is None:
        return "bold"
    if verdict["kind"] in ("different", "same_distribution"):
        return FAULTY if verdict["kind"] == "different" else NEUTRAL
    return GOOD if VERDICTS[verdict["kind"]].is_same else CAUTION


def _print_texts(console: Console, recording: Recording) -> None:
    """The lanes' texts, those of several lanes once; on a terminal with the mark of every token."""
    events, together = recording.events, dict[tuple[tuple[str, str], ...], list[str]]()
    for name in (lane.name for lane in recording.spec.lanes):
        parts = [(clean(text_of(events, name, recording.spec.params.stop)), "own")]
        if is_live(console):
            parts = [part for step in steps(events, name) for part in marked(step)]
        together.setdefault(tuple(parts), []).append(name)
    for same, names in together.items():
        console.print(Text(f"--- {clean(', '.join(names))}", "bold"))
        console.print(Text.assemble(*((text, STYLES[mark]) for text, mark in same)))
    if is_live(console):
        console.print(legend(any(isinstance(e.event, Step) and e.event.parents for e in events)))


def _table(metrics: Mapping[str, LaneMetrics], recording: Recording) -> Table:
    table = Table(title=Text("what each lane did"), title_justify="left")
    table.add_column("")
    for name in metrics:
        table.add_column(Text(clean(name)), justify="right", overflow="fold")
    ends = {e.lane: e.event.reason for e in recording.events if isinstance(e.event, Finished)}
    ends |= dict.fromkeys(failures(recording), "failed")
    table.add_row(Text("ended by"), *(Text(clean(ends.get(name, "stopped"))) for name in metrics))
    untold = [name for name in metrics if recording.on_servers and not sum(metrics[name].per_step_drafted)]
    for title, value in _ROWS:
        cells = ("-" if name in untold and title in OF_STEPS else value(m) for name, m in metrics.items())
        table.add_row(Text(title), *map(Text, cells))
    return table


_ROWS: Sequence[tuple[str, Callable[[LaneMetrics], str]]] = (
    ("tokens", lambda m: str(m.num_tokens)),
    ("reading the prompt", lambda m: number(m.prefill_s, 3, " s")),
    ("computing (decode)", lambda m: number(m.decode_s, 3, " s")),
    ("tokens/s", lambda m: number(m.tokens_per_s, 1)),
    ("first token (TTFT)", lambda m: number(m.ttft_s, 3, " s")),
    ("per token (TPOT)", lambda m: number(m.tpot_s, 1, " ms", 1000)),
    ("usual step (p50)", lambda m: number(m.itl_p50_s, 1, " ms", 1000)),
    ("slow steps (p95)", lambda m: number(m.itl_p95_s, 1, " ms", 1000)),
    ("steps", lambda m: str(m.num_steps)),
    ("guessed (drafted)", lambda m: str(sum(m.per_step_drafted))),
    ("kept (accepted)", lambda m: str(sum(m.per_step_accepted))),
    ("acceptance rate", lambda m: number(m.acceptance_rate, 1, " %", 100)),
    ("tokens a step", lambda m: number(m.mean_acceptance_length, 2)),
)


def _ratio(value: float | None, noise: float | None) -> str:
    """Seconds per token of the fastest plain decoding over this lane's, same run, same number of tokens."""
    if value is None:
        return "no ratio without tokens in both, and without a lane that drafts nothing"
    if noise is not None and is_noise(value, noise):
        return f"{times(value)} as fast as plain: no difference, the noise is \u00b1{100 * noise:.0f} %"
    return f"{times(value)} as fast as plain" + (": slower" if value < 1 else "")
