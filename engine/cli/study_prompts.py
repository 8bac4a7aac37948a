"""`python -m engine study-prompts`: is speculative decoding worth it on these prompts? Arguments and the file are
checked before anything heavy is imported."""

import asyncio
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing, redirect_stdout

from ..analysis.verdict_words import THRESHOLD
from ..core.errors import RaceError
from ..core.spec import AUTO, BASELINE, PLAIN, RaceSpec, SamplingParams, lanes_of
from ..drafters import check as check_drafter
from ..drafters import serves_every_k
from ..loading.sources import DEFAULT_TARGET
from ..progress import Progress
from ..remote.endpoint import Endpoint
from ..remote.look import kinds_of
from ..studies.load.data import name_of
from ..studies.prompts.pays import DO_NOT_SHIP, SHIP
from ..studies.prompts.prompts import MAX_PROMPTS, FilePrompt, choose, digest
from ..studies.prompts.race_prompts import Study
from ..studies.prompts.race_servers import ServersStudy, drafting_lanes
from ..studies.prompts.study_file import StudyFile, dated, finished, result
from .arguments import Command, integer, list_of, not_empty, repeated, setting, switch
from .commands import read_prompts_file
from .lane_options import CACERT, MESSAGES, MODEL, SAME_DEVICE, given_lane, servers_of
from .options import JSON, LENGTH, MACHINE, SEED, TARGET, TEMPERATURE, TOP_P, set_threads
from .output import console, first_of, print_json, progress_line
from .run import load_ready

NGRAM = "ngram"
# Default drafters for the default target, whose head is bundled; any other target gets n-gram alone.
WITH_ITS_HEAD = (NGRAM, "hybrid:ngram+eagle3")
RACED_WITH = ("temperature", "top_p", "seed", "max_new_tokens", "dtype", "device")  # options that a saved file is for


def _study(options: Namespace) -> int:
    endpoints = servers_of(options.lane, options, ("model", "chat", "same_device"), with_plain=True, one_model=True)
    target = endpoints[0].model if endpoints else options.target or DEFAULT_TARGET
    seed, length = options.seed, options.max_new_tokens
    params = SamplingParams(options.temperature, top_p=options.top_p, seed=seed, max_new_tokens=length)
    if endpoints:
        drafters = list(drafting_lanes(endpoints).values())
    else:
        drafters = options.drafter or (list(WITH_ITS_HEAD) if target == DEFAULT_TARGET else [NGRAM])
        for drafter in drafters:
            check_drafter(drafter)
            serves_every_k(drafter)
        RaceSpec(lanes_of((drafter, drafter, AUTO) for drafter in drafters), params)
    prompts = choose(read_prompts_file(options.prompts, options.flatten), options.limit)
    as_given = {name: getattr(options, name) for name in RACED_WITH}
    settings = {"target": target, "drafters": drafters, **as_given, "prompts": digest(prompts)}
    settings |= {"generate": True} if options.generate else {}
    saved = StudyFile(options.save, settings) if options.save is not None else None
    rows, about = (finished(saved.rows, len(drafters)), saved.about) if saved else ([], {})
    done, interrupted = {row.line for row in rows}, False
    try:
        if len(done) < len(prompts):
            set_threads(options.threads)
            with redirect_stdout(sys.stderr), progress_line() as progress:
                study, weights = _ready(options, endpoints, prompts, drafters, params, progress)
                about = study.about()
                about["said"] = dated(about["said"], len(prompts), name_of(options.prompts))
                if saved:
                    more = {"weights": weights, "machine": about["device"]["name"]}
                    saved.begin(rows, more, about)
                with closing(study.races(done, progress)) as races:  # type: ignore[type-var]
                    for raced in races:
                        rows += raced
                        if saved:
                            saved.append(raced)
    except KeyboardInterrupt:
        if not rows:
            raise
        interrupted = True
    summary = result(rows, target, about.get("said", {}), params.temperature)
    if options.json:
        print_json(summary)
    else:
        from .report_tables import print_prompts

        print_prompts(console(), summary, rows, len(prompts))
    if interrupted:
        raise KeyboardInterrupt  # the command line says so and ends with its status
    if faults := [row.fault for row in rows if row.fault]:
        raise RaceError(first_of(faults))
    return 0


def _ready(
    options: Namespace,
    endpoints: Sequence[Endpoint],
    prompts: Sequence[FilePrompt],
    drafters: Sequence[str],
    params: SamplingParams,
    progress: Progress,
) -> tuple[Study | ServersStudy, str | None]:
    """The study, ready to race, and the digest or the name of what it races."""
    if endpoints:
        kinds = asyncio.run(kinds_of(endpoints))
        return ServersStudy(endpoints, prompts, params, options.same_device, options.chat, kinds), endpoints[0].model
    generate = None
    if options.generate:
        from ..studies.prompts.generate import Generate

        generate = Generate(params)
    loaded = load_ready(options, progress, generate.make_ready if generate else None)
    return Study(loaded, prompts, drafters, params, generate), loaded.info.digest


_GENERATE = (
    "after each race, let transformers' own generate write as many tokens, plainly and with its prompt lookup, and "
    "compare speed and, at temperature 0, tokens with the plain lane's"
)
_LIMIT = f"take N prompts, spread over the kinds; needed for more than {MAX_PROMPTS}"
STUDY = Command(
    (
        setting(
            "--prompts FILE",
            not_empty,
            "the prompts: JSON as published (Spec-Bench, MT-Bench, ShareGPT, HumanEval, chats), CSV, or one a line "
            "(docs/yours.md); - is stdin",
            required=True,
        ),
        TARGET,
        repeated(
            "--lane NAME=openai:URL",
            given_lane,
            f"instead of a model here, a server, two or more of them: one lane is called {PLAIN} or {BASELINE}, the "
            "others draft as their servers like",
        ),
        MODEL,
        CACERT,
        MESSAGES,
        SAME_DEVICE,
        setting(
            "--drafter D[,D]",
            list_of,
            f"drafters, each at k auto, with commas between them (default {','.join(WITH_ITS_HEAD)}; for another "
            f"target {NGRAM})",
        ),
        setting("--limit N", integer(1, MAX_PROMPTS), _LIMIT),
        switch("--generate", _GENERATE),
        switch("--flatten", "turn chats into plain text, for a model without a chat template (docs/yours.md)"),
        setting("--save FILE", not_empty, "write each finished prompt here; the same command continues where it ended"),
        TEMPERATURE,
        TOP_P,
        SEED,
        LENGTH,
        *MACHINE,
        JSON,
    ),
    _study,
    "Example: python -m engine study-prompts --prompts mine.jsonl --limit 50 --save study.jsonl. Each prompt has one "
    "race on the fair clock: plain, baseline and every drafter. The verdict is about the best drafter that a "
    f"server can run, at its best fixed k: '{SHIP}' if the 95 % interval of its median speed-up is above {THRESHOLD}, "
    f"'{DO_NOT_SHIP}' if it is below, else 'unclear'. Exit status: 0 finished, whatever the verdict; 1 it failed, or a "
    "lane wrote other tokens than the baseline; 2 the arguments or the file cannot be used; 130 interrupted, after "
    "printing what it had.",
)
