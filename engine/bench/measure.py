"""A bench: our lanes in races, transformers' `generate` between them, one after the other in alternating order, in one
run."""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..drafters import parse as parse_drafter
from ..errors import RaceError, UsageError
from ..events import Prompt
from ..progress import Progress
from ..spec import LaneSpec, SamplingParams
from .prompts import BenchPrompt, prompts
from .table import FORMAT, SCHEMA, against_peers, rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..models.loading import LoadedModel
    from .lanes import Raced, Sample
    from .peers import Peers

PASSES = 2


@dataclass(frozen=True)
class Size:
    """How much a bench measures: prompts of each kind, repeats, tokens of each completion, rounds of the step curve,
    and whether it compiles."""

    prompts: int
    repeats: int
    tokens: int
    rounds: int
    compiled: bool


FULL = Size(prompts=2, repeats=2, tokens=128, rounds=7, compiled=True)
QUICK = Size(prompts=1, repeats=2, tokens=64, rounds=3, compiled=False)


def measure(
    options: Namespace,
    drafters: Sequence[str],
    kinds: Sequence[str],
    size: Size,
    params: SamplingParams,
    notes: list[str],
    progress: Progress,
) -> tuple[dict[str, Any], list[str]]:
    """The report, and what went wrong in lanes."""
    began = time.perf_counter()
    progress("starting torch", None)
    from ..measure import environment
    from ..models.loading import DEFAULT_TARGET, load
    from ..session.threads import settle
    from .lanes import k_of, lane_specs
    from .stock import ready_with_stock

    loaded = load(options.target or DEFAULT_TARGET, dtype=options.dtype, device=options.device, progress=progress)
    stock = ready_with_stock(loaded, progress)
    if options.threads is None:
        settle(loaded.prepared, progress)
    chosen = _encoded(loaded, prompts(kinds, size.prompts), size.tokens, notes)
    peers = _peers(loaded, stock, drafters, size, params, chosen, notes, progress)
    samples, raced = rounds(loaded, peers, chosen, drafters, options.k, size.repeats, params, notes, progress)

    steps = _steps(loaded, peers, chosen, raced, lane_specs(drafters, options.k, False), params, size, progress)

    found = rows(samples)
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
    info = loaded.info
    report = {
        "format": FORMAT,
        "schema": SCHEMA,
        "device": loaded.prepared.kernels.about_device(),
        "dtype": info.dtype,
        "model": {"name": info.name, "revision": info.revision, "digest": info.digest, "licence": info.licence},
        "versions": environment.versions(loaded.prepared.kernels.describe(loaded.prepared.model)),
        "runs": loaded.prepared.kernels.runs(loaded.prepared.model),
        "commit": environment.commit(),
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
        "rows": found,
        "against_peers": against_peers(samples, _pairs(drafters)),
        **steps,
        "num_tokens": sum(row["num_tokens"] for row in found),
        "elapsed_s": time.perf_counter() - began,
        "notes": notes,
    }
    return report, [fault for race in raced for fault in race.faults]


def _steps(
    loaded: LoadedModel,
    peers: Peers,
    chosen: Sequence[tuple[BenchPrompt, Prompt]],
    raced: Sequence[Raced],
    lanes: Sequence[LaneSpec],
    params: SamplingParams,
    size: Size,
    progress: Progress,
) -> dict[str, Any]:
    """What single steps cost, in the report's words: by width, ours and the stock model's, beyond the forward, and
    against the memory's bandwidth."""
    from .lanes import host_gap, roofline, step_curve

    progress("measuring a bare step at every width", None)
    length = statistics.mode(race.cache_length for race in raced)
    position = round(statistics.median(len(prompt.token_ids) for _, prompt in chosen) + size.tokens / 2)
    curve: dict[int, float] = {}
    stock: dict[int, float] = {}
    for _ in range(PASSES):
        _keep_least(curve, step_curve(loaded.prepared, length, position, size.rounds))
        _keep_least(stock, peers.step_curve(position, size.rounds))
    progress("measuring what a step takes beyond its forward", None)
    longest = max(zip(raced, chosen, strict=False), key=lambda each: each[0].num_tokens)[1][1]
    gap = host_gap(loaded, lanes, params, longest)
    progress("measuring the memory's bandwidth", None)
    plain_s = [race.plain_step_s for race in raced if race.plain_step_s > 0]
    roof = roofline(loaded.prepared, position, statistics.median(plain_s)) if plain_s else None
    return {
        "widths": {str(width): seconds for width, seconds in curve.items()},
        "widths_at": {"cache_length": length, "position": position},
        "stock_widths": {str(width): seconds for width, seconds in stock.items()},
        "host_gap": gap,
        "bandwidth_share": roof["share"] if roof is not None and roof["share"] <= 1 else None,
        "roofline": roof,
    }


def rounds(
    loaded: LoadedModel,
    peers: Peers,
    chosen: Sequence[tuple[BenchPrompt, Prompt]],
    drafters: Sequence[str],
    k: int | str | None,
    repeats: int,
    params: SamplingParams,
    notes: list[str],
    progress: Progress,
) -> tuple[list[Sample], list[Raced]]:
    """Every prompt, `repeats` times: our race first, then each peer; in every second repeat the other way round. A peer
    writes as many tokens as our baseline did, whose seed is the same in every repeat."""
    from .lanes import hold, lane_specs, of_peer

    samples: list[Sample] = []
    raced: list[Raced] = []
    written: dict[str, int] = {}
    total = repeats * len(chosen)
    for repeat in range(repeats):
        backwards = repeat % 2 == 1
        lanes = lane_specs(drafters, k, backwards)
        for item, prompt in chosen:
            progress(f"round {len(raced) + 1} of {total}: {item.id}", len(raced) / total)
            about = (item.kind, item.id, repeat)
            race = None if backwards else hold(loaded, lanes, params, prompt, about)
            if race is not None:
                written[item.id] = race.num_tokens
            names = peers.names if written[item.id] else ()
            generated = {}
            for name in reversed(names) if backwards else names:
                try:
                    generated[name] = peers.run(name, prompt.token_ids, written[item.id])
                except RaceError as error:
                    notes.append(f"{name} failed on {item.id}: {error}")
            race = race or hold(loaded, lanes, params, prompt, about)
            raced.append(race)
            ours = {sample.name: sample for sample in race.samples}
            samples += [ours[name] for name in ("plain", "baseline", *drafters)]
            samples += [
                of_peer(name, about, generated[name], race.plain_tokens_per_s) for name in names if name in generated
            ]
    return samples, raced


def _keep_least(known: dict[int, float], measured: dict[int, float]) -> None:
    """A busy machine can only add."""
    known.update({width: min(seconds, known.get(width, seconds)) for width, seconds in measured.items()})


def _encoded(
    loaded: LoadedModel, items: Sequence[BenchPrompt], num_new: int, notes: list[str]
) -> list[tuple[BenchPrompt, Prompt]]:
    """The prompts that fit the model with their completions; the others are noted. Raises UsageError where none
    does."""
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


def _peers(
    loaded: LoadedModel,
    stock: PreTrainedModel,
    drafters: Sequence[str],
    size: Size,
    params: SamplingParams,
    chosen: Sequence[tuple[BenchPrompt, Prompt]],
    notes: list[str],
    progress: Progress,
) -> Peers:
    """transformers on `stock`, and on the stock copy of the draft model where a lane has one, warmed."""
    from .lanes import DRAFT_MODEL
    from .peers import COMPILED, NAMES, Peers
    from .stock import ready_with_stock

    names = [name for name in NAMES if name != COMPILED or size.compiled]
    if COMPILED in names and (why := loaded.prepared.kernels.reason_against_compiling()):
        names.remove(COMPILED)
        notes.append(f"{COMPILED} was left out: {why}")
    draft = next((argument for name, argument in map(parse_drafter, drafters) if name == DRAFT_MODEL), None)
    assistant = None
    if draft is not None:
        companion = loaded.companion(draft, progress)
        assistant = stock if companion is loaded else ready_with_stock(companion, progress)
    peers = Peers(stock, params, names, assistant)
    notes += peers.warm([prompt.token_ids for _, prompt in chosen], size.tokens, progress)
    return peers


def _pairs(drafters: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    """Which lane is held against which peers."""
    from .lanes import DRAFT_MODEL
    from .peers import ASSISTED, PLAIN_PEERS, PROMPT_LOOKUP

    pairs: list[tuple[str, Sequence[str]]] = [("plain", PLAIN_PEERS)]
    pairs += [(drafter, (PROMPT_LOOKUP,)) for drafter in drafters if parse_drafter(drafter)[0] == "ngram"]
    return pairs + [(drafter, (ASSISTED,)) for drafter in drafters if parse_drafter(drafter)[0] == DRAFT_MODEL][:1]
