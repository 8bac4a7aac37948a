"""The command sweep: one prompt, drafters at several k, and the oracle. Arguments are checked before anything heavy is
imported."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from ..analysis.metrics import lane_metrics, ratio, speedup
from ..analysis.same import are_same
from ..core.errors import UsageError
from ..core.events import LaneEvent
from ..core.spec import (
    AUTO,
    BASELINE,
    MAX_AUTO_K,
    MAX_K,
    MAX_LANES,
    PLAIN,
    TREE,
    LaneSpec,
    RaceSpec,
    SamplingParams,
    lanes_of,
    tree_size,
)
from ..drafters import check as check_drafter
from ..drafters import most_drafts, serves_every_k
from ..progress import Progress, collected
from ..recordings import recording as recordings
from ..what_if.ask import Query, what_if
from ..what_if.judged import WhatIf
from ..what_if.simulate_auto import auto_steps
from ..what_if.survey import SurveyDrafter
from .arguments import Command, draft_size, list_of, setting, switch
from .commands import check_outcome, read_prompt
from .options import DEVICE, DTYPE, JSON, LENGTH, PROMPT, SEED, TARGET, TEMPERATURE, THREADS, set_threads
from .output import console, print_json, progress_line
from .run import set_up_as

if TYPE_CHECKING:
    from ..session import TorchRace

MOST_ROWS = MAX_LANES - 2
Row = dict[str, Any]


def _ks(text: str) -> list[int | str]:
    return [draft_size(1, MAX_K)(k) for k in list_of(text)]


def check_queries(drafters: Sequence[str], ks: Sequence[int | str], measured: bool) -> Sequence[Query]:
    """The rows to compute or to race. Raises UsageError for impossible ones."""
    queries: Sequence[Query] = [(drafter, k) for drafter in drafters for k in ks]
    for drafter in drafters:
        check_drafter(drafter)
        serves_every_k(drafter)
    if measured and len(queries) > MOST_ROWS:
        raise UsageError(f"--measure races every row with plain and baseline: at most {MOST_ROWS}, not {len(queries)}")
    return queries


def lanes_for(queries: Sequence[Query], measured: bool) -> tuple[LaneSpec, ...]:
    """The lanes of a sweep's race: if measured, one for each row; otherwise just those that show the costs of steps and
    drafts: for each drafter one for its chains (one for each k if it depends on k), and one for its trees."""
    if measured:
        return lanes_of((f"{drafter}@{k}", drafter, k) for drafter, k in queries)
    most = max([MAX_AUTO_K, *(k for _, k in queries if isinstance(k, int))])
    costs = set[Query]()
    for drafter, k in queries:
        size = max(tree_size(asked) for name, asked in queries if name == drafter)
        if isinstance(k, str):
            costs.add((drafter, f"{TREE}{max(size, MAX_AUTO_K)}" if size else AUTO))
        else:
            costs.add((drafter, most if serves_every_k(drafter) else k))
    return lanes_of((f"the costs of {drafter} at {k}", drafter, k) for drafter, k in sorted(costs, key=str))


def allowed(race: TorchRace, queries: Sequence[Query], progress: Progress) -> dict[Query, str]:
    """The queries with the nearest k that their drafters can draft, each with the name of its measured lane; without
    the drafters that cannot draft here at all."""
    specs = [lane.spec for lane in race.lanes.values() if not lane.failure]
    able, branching = {spec.drafter for spec in specs}, {spec.drafter for spec in specs if isinstance(spec.k, str)}
    lanes: dict[Query, str] = {}
    for drafter, k in queries:
        if drafter in able:
            most = most_drafts(drafter, race.loaded, progress)
            size = k if isinstance(k, int) else 0 if drafter in branching else tree_size(k)
            lanes.setdefault((drafter, min(size, most) or k), f"{drafter}@{k}")
    return lanes


def rows_of(
    race: TorchRace, events: Sequence[LaneEvent], computed: WhatIf, queries: Mapping[Query, str], measured: bool
) -> list[Row]:
    """A row for each drafter and k, as in --json. queries: from `allowed`."""
    undrafted = [race.lanes[name].steps for name in (PLAIN, BASELINE) if name in race.lanes]
    verdicts = race.result()["verdicts"]
    rows = []
    for (drafter, k), name in queries.items():
        if measured:
            steps = race.lanes[name].steps
        else:
            steps = auto_steps(computed, drafter) if k == AUTO else computed.steps(drafter, k)
        numbers = lane_metrics([LaneEvent(name, 0.0, step) for step in steps], name)
        gains = [gain for plain in undrafted if (gain := speedup(plain, steps)) is not None]
        rows.append(
            {
                "drafter": drafter,
                "k": k,
                "tokens_per_s": numbers.tokens_per_s,
                "speedup": min(gains, default=None),
                "acceptance_rate": numbers.acceptance_rate,
                "mean_acceptance_length": numbers.mean_acceptance_length,
                "num_steps": numbers.num_steps if measured or k != AUTO else None,
                "identical": are_same(verdicts[name]["kind"]) if measured else None,
                "measured": measured,
            }
        )
    return rows


def _sweep(options: Namespace) -> int:
    queries = check_queries(options.drafter, options.k, options.measure)
    params = SamplingParams(options.temperature, seed=options.seed, max_new_tokens=options.max_new_tokens)
    spec = RaceSpec(lanes_for(queries, options.measure), params)
    text = read_prompt(options)
    set_threads(options.threads)
    with redirect_stdout(sys.stderr), progress_line() as progress:
        race = set_up_as(options, spec, text, progress)
        if not options.measure:
            for lane in race.lanes.values():
                if lane.spec.name not in (PLAIN, BASELINE) and lane.spec.k != AUTO:
                    lane.drafter = SurveyDrafter(lane.drafter)
        events = collected(race.events(), progress)
        recording = recordings.build(race.header(), events, race.result())
        if not (rows_for := allowed(race, queries, progress)) or recordings.faults(recording):
            check_outcome(recording)
        computed = what_if(race, [*rows_for], progress)
    rows = rows_of(race, events, computed, rows_for, options.measure)
    best = max(rows, key=lambda row: row["tokens_per_s"] or 0.0)
    best_s = min(computed.oracle(drafter, k) for drafter, k in rows_for)
    report = {
        "schema": recordings.OUTPUT_SCHEMA,
        "rows": rows,
        "best": {"drafter": best["drafter"], "k": best["k"]},
        "oracle": {"tokens_per_s": ratio(len(computed.text.token_ids), best_s)},
    }
    if options.json:
        print_json(report)
    else:
        from .report_tables import print_sweep

        print_sweep(console(), report, best, recording)
    check_outcome(recording)
    return 0


SWEEP = Command(
    (
        *PROMPT,
        TARGET,
        setting(
            "--drafter D[,D]",
            list_of,
            "drafters, name or name:argument, with commas between them (default ngram)",
            ["ngram"],
        ),
        setting(
            "--k K[,K]",
            _ks,
            "draft tokens a step, integers, tree:N or auto, with commas between them (default 1,3,5,7,auto)",
            [1, 3, 5, 7, AUTO],
        ),
        switch("--measure", "race every row, instead of computing it from one pass"),
        TEMPERATURE,
        SEED,
        LENGTH,
        DTYPE,
        DEVICE,
        THREADS,
        JSON,
    ),
    _sweep,
    "Example: python -m engine sweep --prompt-file assets/prompts/csv_to_json.txt --drafter ngram,eagle3 --k "
    "1,3,5,7,auto. One race shows what plain steps, wider steps and drafts cost, one pass over its text what each "
    "drafter proposes at every position; so every row's steps are those of its real race, and its time is computed. "
    "k auto is simulated at these costs. With --measure every row is a lane of one race on the fair clock. "
    "Exit status: 0 finished; 1 it failed, or a lane wrote other tokens than the baseline; 2 the arguments cannot be "
    "used; 130 interrupted.",
)
