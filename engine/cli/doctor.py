"""`python -m engine doctor`: why is it not faster with this drafter, or on these servers, and what to change first.
Arguments are checked before anything heavy is imported."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial

from ..core.errors import PhotofinishError
from ..core.spec import BASELINE, PLAIN, SamplingParams
from ..doctor import KINDS, NUM_PROMPTS, NUM_TOKENS, PROMPTS
from ..doctor.findings import Finding, about_servers, first, is_broken, is_faulty, report
from ..drafters import check as check_drafter
from ..loading.sources import DEFAULT_TARGET
from ..progress import Progress
from ..remote.endpoint import PREFIX
from ..studies.prompts.prompts import FilePrompt, choose
from .arguments import Command, integer, model, repeated, setting, switch, words
from .commands import read_prompts_file
from .lane_options import CACERT, MESSAGES, MODEL, given_lane, servers_of
from .options import JSON, MACHINE, SEED, TARGET, TEMPERATURE, set_threads
from .output import console, print_json, progress_line
from .run import load_ready

COULD_NOT_CHECK = 2
DEFAULT_DRAFTER = "eagle3"
MAX_LANES = 2
MARKS = {"ok": "ok        ", "doubt": "doubt     ", "fault": "FAULT     ", "untested": "not tested"}


def _doctor(options: Namespace) -> int:
    endpoints = servers_of(options.lane, options, ("model", "chat", "thorough"), MAX_LANES)
    endpoints.sort(key=lambda endpoint: endpoint.lane not in (PLAIN, BASELINE))  # the plain one first
    drafter = options.drafter or DEFAULT_DRAFTER
    check_drafter(drafter)
    params = SamplingParams(options.temperature, seed=options.seed, max_new_tokens=options.max_new_tokens)
    prompts = _prompts(options)
    set_threads(options.threads)
    try:
        with redirect_stdout(sys.stderr), progress_line() as progress:
            if endpoints:
                from ..doctor.servers import check_servers
                from ..studies.prompts.race_servers import question_of

                questions = [question_of(prompt, options.chat) for prompt in prompts]
                findings = list(check_servers(endpoints, questions, params, progress, options.thorough))
            else:
                findings = list(_findings(drafter, options, params, prompts, progress))
    except PhotofinishError as error:
        print(f"could not check: {error}", file=sys.stderr)
        return COULD_NOT_CHECK
    act = first(findings)
    if options.json:
        pair = {"target": options.target or DEFAULT_TARGET, "drafter": drafter}
        print_json(report(findings, about_servers(endpoints) if endpoints else pair))
    else:
        out = console()
        for finding in findings:
            out.print(f"{MARKS[finding.level]}  {finding.check}: {finding.says}", soft_wrap=True)
        out.print(f"\nChange first: {act.change}." if act else "\nNothing to change.", soft_wrap=True)
    return int(is_faulty(findings) or is_broken(findings))


def _findings(
    drafter: str, options: Namespace, params: SamplingParams, prompts: list[FilePrompt], progress: Progress
) -> Iterator[Finding]:
    from ..doctor.checkup import Checkup

    progress("reading the files", None)
    checkup = Checkup(options.target or DEFAULT_TARGET, drafter)
    findings = list(checkup.before_weights())
    yield from findings
    if options.files_only or is_faulty(findings):
        return
    yield from checkup.with_tokens(partial(load_ready, options, progress), prompts, params, progress)


def _prompts(options: Namespace) -> list[FilePrompt]:
    if options.prompts is None:
        return [FilePrompt(i, *prompt) for i, prompt in enumerate(zip(KINDS, PROMPTS, strict=True), 1)]
    return choose(read_prompts_file(options.prompts), options.limit)


DOCTOR = Command(
    (
        TARGET,
        setting("--drafter D", model, f"the drafter to examine, name or name:argument (default {DEFAULT_DRAFTER})"),
        repeated(
            f"--lane NAME={PREFIX}URL",
            given_lane,
            "instead of a pair on this machine: a server; give it twice, the plain server (or the one named plain or "
            "baseline) first, then the speculative one",
        ),
        MODEL,
        CACERT,
        MESSAGES,
        switch("--thorough", "servers: sample some 10,000 tokens of each as well, to see a small bias"),
        setting("--prompts F", words, "a file of your prompts, as for study-prompts (default: three short ones)"),
        setting("--limit N", integer(1, 20), f"take N prompts from the file (default {NUM_PROMPTS})", NUM_PROMPTS),
        switch("--files-only", "examine only configuration files and the shapes of tensors; loads no weights"),
        TEMPERATURE,
        SEED,
        setting("--max-new-tokens N", integer(8, 512), f"tokens of each prompt (default {NUM_TOKENS})", NUM_TOKENS),
        *MACHINE,
        JSON,
    ),
    _doctor,
    "Example: python -m engine doctor --target Qwen/Qwen3-8B --drafter eagle3:RedHatAI/Qwen3-8B-speculator.eagle3. "
    "First the files: format, sizes, tapped layers, vocabulary. Then races of a few prompts: how often each guess is "
    "right, and whether a head is right more often with one setting or table changed. At last whether it pays. "
    f"Servers: python -m engine doctor --lane plain={PREFIX}http://localhost:8000/v1 --lane "
    f"spec={PREFIX}http://localhost:8001/v1 --model NAME. Exit status: 0 no fault; 1 a fault, or a check failed; 2 it "
    "could not be checked, or the arguments cannot be used; 130 interrupted.",
)
