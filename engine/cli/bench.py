"""`python -m engine bench`: our lanes in races, transformers' `generate` between them, in alternating order, in one
run."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace

from ..bench.bench_prompts import FULL, KINDS, QUICK, check_kinds
from ..core.errors import RaceError, UsageError
from ..core.spec import MAX_K, SamplingParams
from ..drafters import check as check_drafter
from ..drafters import parse as parse_drafter
from .arguments import Command, draft_size, integer, one_of, setting, shown, switch, words
from .options import JSON, MACHINE, SEED, TARGET, TEMPERATURE, set_threads
from .output import console, first_of, print_json, progress_line

MIN_NEW_TOKENS, MAX_NEW_TOKENS = 2, 4096


def bench(options: Namespace) -> int:
    """Run the command; returns the exit status. Raises UsageError, or RaceError once the result is printed, if a lane
    failed or wrote other tokens than the baseline although its widths are exact."""
    drafters = _drafters(options.drafter)
    kinds, note = check_kinds(options.kinds)
    default = QUICK if options.quick else FULL
    given = {"prompts": options.prompts, "repeats": options.repeats, "tokens": options.max_new_tokens}
    size = replace(default, **{name: value for name, value in given.items() if value})
    params = SamplingParams(temperature=options.temperature, seed=options.seed, max_new_tokens=size.tokens)
    set_threads(options.threads)
    with redirect_stdout(sys.stderr), progress_line() as progress:
        progress("starting torch", None)
        from ..bench.measure import measure

        report, faults = measure(options, drafters, kinds, size, params, [note] if note else [], progress)
    if options.json:
        print_json(report)
    else:
        from .report_tables import print_bench

        print_bench(console(), report)
    if faults:
        raise RaceError(first_of(faults))
    return 0


def _drafters(given: Sequence[str] | None) -> tuple[str, ...]:
    drafters = tuple(given or ("ngram",))
    for drafter in drafters:
        check_drafter(drafter)
        if parse_drafter(drafter)[0] == "none":
            raise UsageError("drafter 'none' is the baseline, which every bench has; leave it out")
    if len(set(drafters)) != len(drafters):
        raise UsageError(f"each drafter can be given once, not {', '.join(map(shown, drafters))}")
    return drafters


_QUICK = "a prompt of each kind, two repeats, 64 tokens, nothing compiled: under 5 minutes on 2 cores"
BENCH = Command(
    (
        TARGET,
        setting(
            "--drafter D",
            words,
            "drafters, name or name:argument, a lane each (default ngram)",
            nargs="+",
            action="extend",
        ),
        setting(
            "--kinds K",
            one_of(KINDS),
            f"kinds of prompts: {', '.join(KINDS)} (default: all; {KINDS[0]} where its package is installed)",
            nargs="+",
            action="extend",
        ),
        setting("--k K", draft_size(1, MAX_K), "draft tokens a step, or auto (default 7; of draft models auto)"),
        switch("--quick", _QUICK),
        setting(
            "--prompts N",
            integer(1, 164),
            f"prompts of each kind, as far as there are so many (default {FULL.prompts})",
        ),
        setting("--repeats N", integer(1, 1000), f"rounds over all prompts (default {FULL.repeats})"),
        setting(
            "--max-new-tokens N",
            integer(MIN_NEW_TOKENS, MAX_NEW_TOKENS),
            f"maximum length of every completion (default {FULL.tokens})",
        ),
        TEMPERATURE,
        SEED,
        *MACHINE,
        JSON,
    ),
    bench,
    "Rows: plain (the fastest plain decoding of this engine), baseline (exact, without drafts), each drafter, and "
    "transformers' generate: hf_eager, hf_compiled (static cache, compiled; not with --quick), "
    "hf_prompt_lookup, hf_assisted (if a drafter is draft_model:X). It took ten minutes on 2 cores with the "
    "default model (--quick two). No figure includes prefill. "
    "Exit status: 0 finished; 1 it failed, or a lane wrote other tokens than the baseline; 2 the arguments cannot "
    "be used; 130 interrupted.",
)
