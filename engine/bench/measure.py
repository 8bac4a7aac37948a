"""A bench: our lanes in races, transformers' `generate` between them, in alternating order, in one run."""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from transformers import PreTrainedModel

from ..analysis.metrics import ratio
from ..core.errors import RaceError, UsageError
from ..core.events import Prompt
from ..core.spec import PLAIN, RaceSpec, SamplingParams
from ..drafters import parse as parse_drafter
from ..hardware import environment
from ..loading.loading import DEFAULT_TARGET, LoadedModel, load
from ..progress import RACING, Progress
from ..session.run_prompts import Entry, run_prompts
from ..session.threads import settle
from .bench_prompts import BenchPrompt, Size, prompts
from .our_lanes import (
    DRAFT_MODEL,
    OurRace,
    Sample,
    against_peers,
    figures_of,
    k_of,
    lane_specs,
    roofline,
    rows,
    step_curve,
)
from .peers import ASSISTED, COMPILED, NAMES, PLAIN_PEERS, PROMPT_LOOKUP, Peers, ready_with_stock

PASSES = 2
FORMAT, SCHEMA = "photofinish-bench", 1


@dataclass(frozen=True)
class Bench:
    """What one run measures: drafters, each at `k` (None: `k_of`), on prompts. notes: for readers of the report."""

    loaded: LoadedModel
    drafters: Sequence[str]
    k: int | str | None
    size: Size
    params: SamplingParams
    prompts: Sequence[tuple[BenchPrompt, Prompt]]
    notes: list[str]
    progress: Progress


def measure(
    options: Namespace,
    drafters: Sequence[str],
    kinds: Sequence[str],
    size: Size,
    params: SamplingParams,
    notes: list[str],
    progress: Progress,
) -> tuple[dict[str, Any], list[str]]:
    """The report, and faults of lanes."""
    began = time.perf_counter()
    loaded = load(options.target or DEFAULT_TARGET, dtype=options.dtype, device=options.device, progress=progress)
    stock = ready_with_stock(loaded, progress)
    if options.threads is None:
        settle(loaded.prepared, progress)
    chosen = _encoded(loaded, prompts(kinds, size.prompts), size.tokens, notes)
    bench = Bench(loaded, drafters, options.k, size, params, chosen, notes, progress)
    peers = _peers(bench, stock)
    samples, raced = rounds(bench, peers)
    steps = _steps(bench, peers, raced)
    table = rows(samples)
    if disturbed := sum(race.disturbed for race in raced):
        notes.append(
            f"the machine was disturbed in {disturbed} of {len(raced)} races (steps of one width took very unequal "
            "times): quote nothing from this run"
        )
    if inexact := sum(not race.exact for race in raced):
        notes.append(
            f"in {inexact} of {len(raced)} races no width was exact on this device, so equal tokens were compared "
            "and not promised"
        )
        notes += [difference for race in raced for difference in race.differences]
    model = loaded.info.about()
    report = {
        "format": FORMAT,
        "schema": SCHEMA,
        "dtype": model.pop("dtype"),
        "model": model,
        **environment.circumstances(loaded.prepared),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": {
            "quick": options.quick,
            "kinds": list(dict.fromkeys(item.kind for item, _ in chosen)),
            "num_prompts": len(chosen),
            "repeats": size.repeats,
            "max_new_tokens": size.tokens,
            "k": {drafter: k_of(drafter, options.k) for drafter in drafters},
            "temperature": params.temperature,
            "seed": params.seed,
            "drafters": list(drafters),
        },
        "rows": table,
        "against_peers": against_peers(samples, _pairs(drafters)),
        **steps,
        "num_tokens": sum(row["num_tokens"] for row in table),
        "elapsed_s": time.perf_counter() - began,
        "notes": notes,
    }
    return report, [fault for race in raced for fault in race.faults]


def _steps(bench: Bench, peers: Peers, raced: Sequence[OurRace]) -> dict[str, Any]:
    """Single steps' costs in the report's words: by width, ours, the stock model's, against memory's bandwidth."""
    loaded, size, progress = bench.loaded, bench.size, bench.progress
    progress("measuring a bare step at every width", None)
    length = statistics.mode(race.cache_length for race in raced)
    position = round(statistics.median(len(prompt.token_ids) for _, prompt in bench.prompts) + size.tokens / 2)
    curve: dict[int, float] = {}
    stock: dict[int, float] = {}
    for _ in range(PASSES):
        _keep_least(curve, step_curve(loaded.prepared, length, position, size.rounds))
        _keep_least(stock, peers.step_curve(position, size.rounds))
    progress("measuring the memory's bandwidth", None)
    plain_s = [race.plain_step_s for race in raced if race.plain_step_s > 0]
    roof = roofline(loaded.prepared, position, statistics.median(plain_s)) if plain_s else None
    return {
        "widths": {str(width): seconds for width, seconds in curve.items()},
        "widths_at": {"cache_length": length, "position": position},
        "stock_widths": {str(width): seconds for width, seconds in stock.items()},
        "bandwidth_share": roof["share"] if roof is not None and roof["share"] <= 1 else None,
        "roofline": roof,
    }


def rounds(bench: Bench, peers: Peers) -> tuple[list[Sample], list[OurRace]]:
    """Every prompt, `repeats` times, our race and then each peer, or the other way round (see `run_prompts`); with the
    same seed in every repeat. No progress is reported between two steps: peers do not pause between theirs either."""
    spec = RaceSpec(lane_specs(bench.drafters, bench.k), bench.params)
    entries = [Entry(item.id, item.kind, prompt, spec) for item, prompt in bench.prompts]
    samples: list[Sample] = []
    raced: list[OurRace] = []
    for race, written in run_prompts(
        bench.loaded,
        entries,
        figures_of,
        peers={name: partial(peers.run, name) for name in peers.names},
        repeats=bench.size.repeats,
        progress=lambda stage, share: None if stage.endswith(RACING) else bench.progress(stage, share),
    ):
        raced.append(race)
        samples += race.samples.values()
        plain = race.samples[PLAIN]
        for name in filter(written.__contains__, peers.names):
            if isinstance(done := written[name], RaceError):
                bench.notes.append(f"{name} failed on {plain.prompt}: {done}")
            else:
                gain = ratio(done.tokens_per_s, plain.tokens_per_s)
                about = name, plain.kind, plain.prompt, plain.repeat
                samples.append(Sample(*about, len(done.token_ids), done.tokens_per_s, gain))
    return samples, raced


def _keep_least(known: dict[int, float], measured: dict[int, float]) -> None:
    """Keep the least: a busy machine can only add."""
    known.update({width: min(seconds, known.get(width, seconds)) for width, seconds in measured.items()})


def _encoded(
    loaded: LoadedModel, items: Sequence[BenchPrompt], num_new: int, notes: list[str]
) -> list[tuple[BenchPrompt, Prompt]]:
    """The prompts that fit the model with their completions; the others are noted. Raises UsageError if none fits."""
    limit = loaded.prepared.shape.max_length
    encoded = [(item, item.encode(loaded.tokenizer)) for item in items]
    fitting = [(item, prompt) for item, prompt in encoded if len(prompt.token_ids) + num_new <= limit]
    if not fitting:
        raise UsageError(
            f"no prompt fits the model's {limit} positions with {num_new} new tokens; lower --max-new-tokens"
        )
    notes += [
        f"prompt {item.id} was left out: its {len(prompt.token_ids)} tokens and {num_new} new ones exceed the "
        f"model's {limit} positions"
        for item, prompt in encoded
        if (item, prompt) not in fitting
    ]
    return fitting


def _peers(bench: Bench, stock: PreTrainedModel) -> Peers:
    """transformers on `stock`, and on the stock copy of a lane's draft model, warmed."""
    names = [name for name in NAMES if name != COMPILED or bench.size.compiled]
    if COMPILED in names and (why := bench.loaded.prepared.kernels.reason_against_compiling()):
        names.remove(COMPILED)
        bench.notes.append(f"{COMPILED} was left out: {why}")
    draft = next((argument for name, argument in map(parse_drafter, bench.drafters) if name == DRAFT_MODEL), None)
    assistant = None
    if draft is not None:
        companion = bench.loaded.companion(draft, bench.progress)
        assistant = stock if companion is bench.loaded else ready_with_stock(companion, bench.progress)
    peers = Peers(stock, bench.params, names, assistant)
    bench.notes.extend(peers.warm([prompt.token_ids for _, prompt in bench.prompts], bench.size.tokens, bench.progress))
    return peers


def _pairs(drafters: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    """The peers that each lane is compared with."""
    pairs: list[tuple[str, Sequence[str]]] = [(PLAIN, PLAIN_PEERS)]
    pairs += [(drafter, (PROMPT_LOOKUP,)) for drafter in drafters if parse_drafter(drafter)[0] == "ngram"]
    return pairs + [(drafter, (ASSISTED,)) for drafter in drafters if parse_drafter(drafter)[0] == DRAFT_MODEL][:1]
