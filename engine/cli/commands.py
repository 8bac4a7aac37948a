"""The commands race and replay. Arguments are checked here before anything heavy is imported."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..core.errors import RaceError, UsageError
from ..core.spec import MAX_WIDTH, RULES, TOP_K, RaceSpec, SamplingParams
from ..core.values import one_of
from ..progress import Progress
from ..recordings import recording as recordings
from ..remote.endpoint import Endpoint
from ..remote.request import Question
from ..strict_json import decoded
from ..studies.prompts.data_files import MAX_FILE_BYTES, text_of
from ..studies.prompts.prompts import FilePrompt, read_prompts
from ..text import check_prompt_text, encode_prompt, read_bytes
from ..what_if.ask import queries_of
from .arguments import Command, draft_size, not_empty, repeated, setting, shown, switch, typed, whole, words
from .lane_options import LANES, SERVERS, TIMEOUT_S, TOTAL, lanes_from, servers_from
from .options import FILE, JSON, LENGTH, MACHINE, PROMPT, SEED, TARGET, TEMPERATURE, TOP_P, set_threads
from .output import console, print_json
from .run import run, set_up

MAX_PROMPT_BYTES = 16 * 1024 * 1024


def read_prompt(options: Namespace) -> str:
    """The prompt from --prompt or --prompt-file, unchanged but for a byte order mark. Raises UsageError."""
    given = [*options.prompt, *options.prompt_file]
    if len(given) != 1:
        raise UsageError(f"give exactly one prompt, by --prompt TEXT or --prompt-file FILE, not {len(given) or 'none'}")
    if options.prompt:
        text = options.prompt[0]
    else:
        (path,), name = options.prompt_file, f"the prompt in {shown(options.prompt_file[0])}"
        text = decoded(read_bytes(path, MAX_PROMPT_BYTES, name), name)
    check_prompt_text(text)
    return text


def read_prompts_file(path: str, flatten: bool = False) -> list[FilePrompt]:
    """The prompts of a file; "-" is stdin. Says on stderr what was left out. Raises UsageError, naming the file."""
    try:
        file = read_prompts(text_of(read_bytes(path, MAX_FILE_BYTES), path, MAX_FILE_BYTES), path, flatten)
    except UsageError as error:
        raise UsageError(f"cannot use the prompts of {shown(path)}: {error}") from error
    if file.left_out:
        print(f"{shown(path)}: {file.left_out}", file=sys.stderr)
    return file.prompts


def _race(options: Namespace) -> int:
    params = SamplingParams(
        options.temperature, options.top_k, options.top_p, options.seed, options.max_new_tokens, tuple(options.stop)
    )
    servers = servers_from(options)
    spec = None if servers else RaceSpec(lanes_from(options), params, options.audit, options.solo)
    text = read_prompt(options)
    if spec is not None and options.tables:
        queries_of(spec)
    if options.save is not None:
        recordings.check_writable(options.save)
    if options.no_thinking and not options.chat:
        raise UsageError("--no-thinking is for chat templates: give it with --chat")
    set_threads(options.threads)

    def make(progress: Progress) -> Any:
        if spec is None:
            return _race_of_servers(servers, options, params, text)
        encode = partial(encode_prompt, text=text, chat=options.chat, thinking=False if options.no_thinking else None)
        return set_up(options, spec, encode, progress)

    recording = run(make, options.tables)
    try:
        if options.save is not None and (left_out := recordings.write(options.save, recording)):
            words = f"{options.save}: without {', '.join(left_out)}, with which it would be too large to be read again"
            print(words, file=sys.stderr)
    finally:
        _show_result(recording, options.json)
    check_outcome(recording)
    return 0


def _race_of_servers(servers: Sequence[Endpoint], options: Namespace, params: SamplingParams, text: str) -> Any:
    from ..remote.client import Patience
    from ..remote.server_race import RemoteRace

    timeout_s = options.timeout or TIMEOUT_S
    question = Question(messages=(("user", text),)) if options.chat else Question(text)
    patience = Patience(timeout_s, TOTAL * timeout_s)
    return RemoteRace(servers, question, params, patience, options.same_device or options.solo)


def check_outcome(recording: recordings.Recording) -> None:
    """Raises RaceError if a lane failed, a verdict is a fault, or nothing was compared."""
    if failed := recordings.failures(recording):
        raise RaceError("; ".join(f"lane {lane} failed: {message}" for lane, message in failed.items()))
    if faults := recordings.faults(recording):
        raise RaceError("; ".join(faults))


def _show_result(recording: recordings.Recording, as_json: bool, recorded: bool = False) -> None:
    from .report import print_report, rates_at_every_k

    if as_json:
        rates = rates_at_every_k(recording)
        print_json(recordings.summary(recording) | ({"at_every_k": rates} if rates else {}))
    else:
        print_report(console(), recording, recorded)


def _replay(options: Namespace) -> int:
    _show_result(recordings.read(options.file), options.json, recorded=True)
    return 0


_TABLES = "after the race, run every drafter at every position, to compute all other k and the oracle"
RACE = Command(
    (
        *PROMPT,
        TARGET,
        *LANES,
        *SERVERS,
        setting(
            "--rule R",
            typed(one_of(RULES)),
            "coupled: the baseline's own tokens; rejection: its distribution only (default coupled)",
            "coupled",
        ),
        setting(
            "--width W",
            draft_size(1, MAX_WIDTH, trees=False),
            "rows of every exact step: auto, or an integer above k (default auto)",
            "auto",
        ),
        TEMPERATURE,
        setting("--top-k N", typed(TOP_K, whole), "sample among the N likeliest; 0 is off (default 0)", 0),
        TOP_P,
        SEED,
        LENGTH,
        repeated("--stop S", words, "a string that ends the text; may be given again"),
        *MACHINE,
        switch("--solo", "run the lanes one after the other"),
        switch("--audit", "compare all bits of all rows of logits, not only the tokens"),
        switch("--tables", _TABLES),
        setting("--save FILE", not_empty, "write the recording here"),
        JSON,
    ),
    _race,
    'Example: python -m engine race --prompt "def fib(n):" --drafter hybrid:ngram+eagle3 --k auto. '
    "Exit status: 0 finished; 1 it ran and failed, a lane failed, or a verdict is 'different' (a fault) or 'not "
    "compared'; 2 the arguments cannot be used; 130 interrupted.",
)
REPLAY = Command((FILE, JSON), _replay, "With --json it prints what race --json did.")
