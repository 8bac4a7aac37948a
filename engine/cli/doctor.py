"""`python -m engine doctor`: why is it not faster with this drafter, and what to change first. Arguments are checked
before anything heavy is imported."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import redirect_stdout

from ..doctor.defaults import NUM_PROMPTS, NUM_TOKENS, PROMPTS
from ..doctor.findings import Finding, first, is_faulty, report
from ..drafters import check as check_drafter
from ..errors import PhotofinishError, UsageError
from ..loading.sources import DEFAULT_TARGET
from ..progress import Progress
from ..spec import SamplingParams
from ..studies.prompts.prompts import NO_KIND, FilePrompt, choose, read_prompts
from .arguments import Command, integer, setting, shown, switch, words
from .commands import read_prompts_file
from .options import DEVICE, DTYPE, JSON, SEED, TARGET, TEMPERATURE, THREADS, set_threads
from .output import console, print_json, progress_line
from .run import load_ready

COULD_NOT_CHECK = 2
MARKS = {"ok": "ok   ", "doubt": "doubt", "fault": "FAULT"}


def _doctor(options: Namespace) -> int:
    check_drafter(options.drafter)
    params = SamplingParams(options.temperature, seed=options.seed, max_new_tokens=options.max_new_tokens)
    prompts = _prompts(options)
    set_threads(options.threads)
    findings: list[Finding] = []
    try:
        with redirect_stdout(sys.stderr), progress_line() as progress:
            for finding in _findings(options, params, prompts, progress):
                findings.append(finding)
    except PhotofinishError as error:
        print(f"could not check: {error}", file=sys.stderr)
        return COULD_NOT_CHECK
    act = first(findings)
    if options.json:
        print_json(report(findings, {"target": options.target or DEFAULT_TARGET, "drafter": options.drafter}))
    else:
        out = console()
        for each in findings:
            out.print(f"{MARKS[each.level]}  {each.check}: {each.says}", soft_wrap=True)
        out.print(f"\nChange first: {act.change}." if act else "\nNothing to change.", soft_wrap=True)
    return int(is_faulty(findings))


def _findings(
    options: Namespace, params: SamplingParams, prompts: list[FilePrompt], progress: Progress
) -> Iterator[Finding]:
    from ..doctor.checkup import Checkup

    progress("reading the files", None)
    target = options.target or DEFAULT_TARGET
    checkup = Checkup(target, options.drafter)
    found = list(checkup.before_weights())
    yield from found
    if options.files_only or is_faulty(found):
        return

    def load():
        return load_ready(options.target, options.dtype, options.device, progress, options.threads is None)

    yield from checkup.with_tokens(load, prompts, params, progress)


def _prompts(options: Namespace) -> list[FilePrompt]:
    if options.prompts is None:
        return [FilePrompt(i, NO_KIND, text) for i, text in enumerate(PROMPTS, 1)]
    try:
        return choose(read_prompts(read_prompts_file(options.prompts), options.prompts), options.limit)
    except UsageError as error:
        raise UsageError(f"cannot use the prompts of {shown(options.prompts)}: {error}") from error


DOCTOR = Command(
    (
        TARGET,
        setting("--drafter D", words, "the drafter to examine, name or name:argument (default eagle3)", "eagle3"),
        setting("--prompts F", words, "a file of your prompts, as for study-prompts (default: three short ones)"),
        setting("--limit N", integer(1, 20), f"take N prompts from the file (default {NUM_PROMPTS})", NUM_PROMPTS),
        switch("--files-only", "examine only configuration files and the shapes of tensors; loads no weights"),
        TEMPERATURE,
        SEED,
        setting("--max-new-tokens N", integer(8, 512), f"tokens of each prompt (default {NUM_TOKENS})", NUM_TOKENS),
        DTYPE,
        DEVICE,
        THREADS,
        JSON,
    ),
    _doctor,
    "Example: python -m engine doctor --target Qwen/Qwen3-8B --drafter eagle3:RedHatAI/Qwen3-8B-speculator.eagle3. "
    "First the files: format, sizes, tapped layers, vocabulary. Then races of a few prompts: how often each guess is "
    "right, and whether a head is right more often with one of its settings changed. At last whether it pays. "
    "Exit status: 0 no fault; 1 a fault; 2 it could not be checked, or the arguments cannot be used; 130 interrupted.",
)
