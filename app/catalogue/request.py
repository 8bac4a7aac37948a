"""Checks requests: the values of the page, or of the API, where they can be anything, become one frozen value."""

import hashlib
import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.core.errors import UsageError
from engine.core.spec import SERVER, SPECULATIVE, RaceSpec, SamplingParams, lanes_of
from engine.core.values import FLAG, integer, number
from engine.doctor import KINDS, NUM_PROMPTS, NUM_TOKENS, PROMPTS
from engine.recordings.recording import Recording
from engine.remote.endpoint import Endpoint
from engine.strict_json import parse
from engine.studies.load.data import SYNTHETIC, WARM_UP, dealt, name_of, questions_of, synthetic
from engine.studies.load.study import Plan
from engine.studies.prompts.data_files import text_of
from engine.studies.prompts.prompts import MAX_PROMPTS, FilePrompt, choose, digest, json_lines, read_prompts
from engine.studies.prompts.rows import Row, row_of
from engine.text import check_prompt_text

from .catalogue import Catalogue, Pair
from .limits import MAX_FILE_CHARS, MAX_FILE_LINES, MAX_MORE_LANES, MAX_NEW_TOKENS, MAX_PROMPT_CHARS, Limits, check_file

YOURS = "Your prompt"
KEPT = "the earlier study saved in this browser"
FLATTEN = "flatten the chats to plain text, or choose a chat model in Settings"
MAX_NAME = 100
NGRAM, NONE = "ngram", "none"
# An additional lane with the race's drafter: what it gains by drafting trees, or by choosing lengths, is seen next to
# it.
CHAINS, CHAIN_LENGTH = "chains of 7", 7
# Limits on the rows of an earlier study that a browser has kept.
MAX_ROWS, MAX_ROW_CHARS = MAX_PROMPTS * (MAX_MORE_LANES + 2), 5_000
# The settings that servers choose for themselves.
OF_SERVERS: dict[str, Any] = {"drafter": NONE, "k": 1, "width": "auto", "rule": "coupled", "more": [], "audit": False}
# Of a study under load: its limits, and the page's controls that it uses.
MAX_LEVELS, MAX_USERS, MAX_REQUESTS, MAX_WORDS, TIMEOUT_S = 8, 200, 500, 2000, 600.0
LOAD_SETTINGS = ("temperature", "seed", "chat")


@dataclass(frozen=True)
class RaceRequest:
    """A race that can run.

    name: the title of its prompt.
    chat: whether the prompt goes through the model's chat template."""

    name: str
    prompt: str
    chat: bool
    pair: Pair
    spec: RaceSpec
    recorded: Recording | None = None  # if a recorded race is run again


def read_request(catalogue: Catalogue, values: Mapping[str, Any]) -> RaceRequest:
    """Check every value, whatever its type. `values`: one for each control, by name. Raises UsageError with a sentence
    that names the value and the limits or choices."""
    pair = catalogue.pair(values["pair"])
    values = values if pair.lanes is None else {**values, **OF_SERVERS}
    drafter = catalogue.drafter(pair, values["drafter"])
    _check_prompt(values["prompt"])
    params = _params(values, catalogue.limits)
    k = _decimal(values["k"])
    more = [(extra, extra, k) for extra in _more(catalogue, pair, drafter, values["more"])]
    if CHAINS in values["more"] and drafter != NONE:
        more.append((CHAINS, drafter, CHAIN_LENGTH))
    lanes = lanes_of([(SPECULATIVE, drafter, k), *more], _decimal(values["width"]), values["rule"])
    spec = RaceSpec(lanes, params, audit=FLAG.check("audit", values["audit"]))
    prompt = str(values["prompt"])
    chat = FLAG.check("chat", values["chat"])
    if chat and pair.chat is False:
        raise UsageError(f"{pair.target} has no chat template; untick 'Chat template' or choose another model")
    preset = catalogue.preset_of(prompt)
    return RaceRequest(preset.name if preset else YOURS, prompt, chat, pair, spec)


def read_again(catalogue: Catalogue, recorded: Recording) -> RaceRequest:
    """The race of a recording, to run again. Raises UsageError if this page does not offer its target or one of its
    drafters, or if it is too long for this page."""
    target, prompt = recorded["model"]["name"], recorded["prompt"]
    pair = next((pair for pair in catalogue.runnable if pair.target == target and pair.lanes is None), None)
    if pair is None:
        raise UsageError(
            f"this race used the model {target[:MAX_NAME]!r}, which this page cannot run. It can run: "
            + ", ".join(dict.fromkeys(choice.target for choice in catalogue.runnable))
        )
    spec = recorded.spec
    for lane in spec.lanes:
        catalogue.drafter(pair, lane.drafter)
    if len(drafting := spec.named(SPECULATIVE)) > MAX_MORE_LANES + 1:
        raise UsageError(
            f"this race has {len(drafting)} lanes with guesses; at most {MAX_MORE_LANES + 1} can be raced on this page"
        )
    _check_prompt(prompt["text"])
    catalogue.limits.length.check("max_new_tokens", spec.params.max_new_tokens)
    preset = catalogue.preset_of(prompt["text"])
    return RaceRequest(
        preset.name if preset else YOURS, prompt["text"], prompt.get("chat", False), pair, spec, recorded
    )


@dataclass(frozen=True)
class StudyRequest:
    """A study that can run.

    key: hash of everything its rows depend on, except weights and machine.
    kept, kept_on: rows of an earlier run with that key, and what it ran on; see `engine.studies.prompts.study_file`.
    name: of the prompts' file."""

    prompts: tuple[FilePrompt, ...]
    pair: Pair
    drafters: tuple[str, ...]
    params: SamplingParams
    key: str
    kept: tuple[Row, ...] = ()
    kept_on: Mapping[str, object] | None = None
    name: str = ""


def read_study(catalogue: Catalogue, values: Mapping[str, object], asked: object) -> StudyRequest:
    """Check a study requested by a browser. Raises UsageError.

    values: the page's controls, by name.
    asked: the `name` of the file, and its `text` as `look_at` returns it; `limit` on its prompts; `max_new_tokens` for
        each; `flatten`, see `read_prompts`; `kept`, what the browser has kept of an earlier run with the same file, as
        a JSON string, or null."""
    asked = asked if isinstance(asked, dict) else {}
    pair, limit = catalogue.pair(values["pair"]), whole(asked.get("limit"))
    if type(limit) is not int or not 1 <= limit <= MAX_PROMPTS:
        raise UsageError(f"a study takes 1 to {MAX_PROMPTS} prompts, not {str(limit)[:40]}")
    prompts = _chosen(pair, asked, limit)
    params = _params({**values, "max_new_tokens": asked.get("max_new_tokens")}, catalogue.limits)
    if pair.lanes is None:
        first = catalogue.drafter(pair, values["drafter"])
        named: Sequence[str] = [NGRAM, first, *_more(catalogue, pair, first, values["more"])]
    else:
        named = pair.lanes
    drafters = [drafter for drafter in dict.fromkeys(named) if drafter != NONE]
    key = hashlib.sha256(json.dumps([pair.target, drafters, asdict(params), digest(prompts)]).encode()).hexdigest()
    kept, kept_on = _kept(asked.get("kept"), key, {prompt.line for prompt in prompts}, drafters)
    name = str(asked.get("name"))[:MAX_NAME]
    return StudyRequest(prompts, pair, tuple(drafters), params, key, kept, kept_on, name)


@dataclass(frozen=True)
class CheckUpRequest:
    """A check-up that can run. drafter: SERVER if it is of servers."""

    prompts: tuple[FilePrompt, ...]
    pair: Pair
    drafter: str
    params: SamplingParams

    @property
    def as_messages(self) -> bool:
        """Whether servers get all prompts as messages."""
        return self.pair.chat is True or any(prompt.messages for prompt in self.prompts)


def read_check_up(catalogue: Catalogue, values: Mapping[str, object], asked: object) -> CheckUpRequest:
    """Check a check-up requested by a browser. Raises UsageError.

    values: the page's controls, by name.
    asked: the visitor's own prompts, `text` and `flatten` as in `read_study`; without a text, the
        command's own prompts."""
    asked, pair = asked if isinstance(asked, dict) else {}, catalogue.pair(values["pair"])
    drafter = catalogue.drafter(pair, values["drafter"]) if pair.lanes is None else SERVER
    if drafter == NONE:
        raise UsageError("the drafter is none, so there is nothing to check; choose a drafter in Settings")
    prompts = tuple(FilePrompt(i, kind, text) for i, (kind, text) in enumerate(zip(KINDS, PROMPTS, strict=True), 1))
    if asked.get("text") is not None:
        prompts = _chosen(pair, asked, NUM_PROMPTS)
    length = min(NUM_TOKENS, catalogue.limits.max_new_tokens)
    params = _params({**values, "top_p": 1, "max_new_tokens": length}, catalogue.limits)
    return CheckUpRequest(prompts, pair, drafter, params)


def _chosen(pair: Pair, asked: Mapping[str, Any], limit: int) -> tuple[FilePrompt, ...]:
    """At most `limit` prompts of those that a browser sends. Raises UsageError."""
    prompts = choose(prompts_of(asked), limit)
    for prompt in prompts:
        if (num := len(prompt.text) + sum(len(content) for _, content in prompt.messages)) > MAX_PROMPT_CHARS:
            raise UsageError(f"line {prompt.line} has {num} characters; at most {MAX_PROMPT_CHARS} are allowed here")
    if pair.chat is False and any(prompt.messages and not prompt.is_turn for prompt in prompts):
        raise UsageError(f"the model {pair.target} has no chat template: {FLATTEN}")
    return tuple(prompts)


def look_at(data: bytes, name: str, whole: bool) -> dict[str, str]:
    """What this page understands of a file of prompts: `form`, `says` and `left_out`, see `PromptFile`, and `text`, its
    prompts as the JSON lines that orders bring. Raises UsageError. name, whole: see `entries_of`."""
    text = text_of(data, name, 4 * MAX_FILE_CHARS)
    file = read_prompts(_check_prompts(text, "the file of prompts"), name, whole=whole)
    text = _check_prompts(json_lines(file.prompts), "the file of prompts, as JSON lines,")
    return {"form": file.form, "says": file.says, "left_out": file.left_out, "text": text}


def prompts_of(asked: Mapping[str, Any]) -> list[FilePrompt]:
    """The prompts that an order brings. Raises UsageError if one of them cannot be read."""
    file = read_prompts(_check_prompts(asked.get("text"), "the file of prompts"), "", asked.get("flatten") is True)
    if file.left_out:
        raise UsageError(file.left_out)
    return file.prompts


def _check_prompts(text: object, what: str) -> str:
    """The text, if it is quick to read. Raises UsageError."""
    text = check_file(text, what)
    if (num := text.count("\n") + 1) > MAX_FILE_LINES:
        raise UsageError(f"{what} has {num} lines; at most {MAX_FILE_LINES} can be read here")
    return text


def _kept(
    given: object, key: str, lines: Container[int], drafters: Sequence[str]
) -> tuple[tuple[Row, ...], Mapping[str, object] | None]:
    """Rows of finished prompts from an earlier run of the same study, and what it ran on. given: a JSON string."""
    if given is None:
        return (), None
    try:
        given = parse(check_file(given, KEPT).encode("utf-8", "surrogatepass"), 4 * MAX_FILE_CHARS)
    except UsageError as error:
        raise UsageError(f"{KEPT} cannot be used: {error}") from error
    if not isinstance(given, dict) or given.get("key") != key or not isinstance(given.get("ran_on"), dict):
        return (), None
    rows = given["rows"] if isinstance(given.get("rows"), list) else []
    if not are_short(rows, MAX_ROWS):
        return (), None
    rows = [row_of(row) for row in rows]
    by_prompt = {(row.line, row.drafter): row for row in rows if row.line in lines}
    whole = [line for line in dict.fromkeys(row.line for row in rows) if all((line, d) in by_prompt for d in drafters)]
    return tuple(by_prompt[line, drafter] for line in whole for drafter in drafters), given["ran_on"]


def are_short(rows: Sequence[object], max_rows: int) -> bool:
    """Whether kept rows stay within the limits of a study on this page: frames send them back."""
    return len(rows) <= max_rows and all(len(json.dumps(row)) <= MAX_ROW_CHARS for row in rows)


def _params(values: Mapping[str, object], limits: Limits) -> SamplingParams:
    length = limits.length.check("max_new_tokens", whole(_given(values, "max_new_tokens")))
    temperature, top_p = (as_float(_given(values, name)) for name in ("temperature", "top_p"))
    return SamplingParams(temperature, top_p=top_p, seed=whole(_given(values, "seed")), max_new_tokens=length)


def _more(catalogue: Catalogue, pair: Pair, drafter: str, more: object) -> list[str]:
    """The other drafters of the additional lanes."""
    if not isinstance(more, list) or len(more) > MAX_MORE_LANES:
        raise UsageError(f"more must be a list of at most {MAX_MORE_LANES} drafters, not {str(more)[:60]!r}")
    given = [catalogue.drafter(pair, name) for name in more if name != CHAINS]
    return [name for name in dict.fromkeys(given) if name != drafter]


def _check_prompt(prompt: object) -> None:
    if isinstance(prompt, str) and len(prompt) > MAX_PROMPT_CHARS:
        raise UsageError(
            f"the prompt has {len(prompt)} characters; at most {MAX_PROMPT_CHARS} are allowed on this page"
        )
    check_prompt_text(prompt)  # type: ignore[arg-type]


def whole(value: object) -> Any:
    """Sliders and JSON may send 7 as 7.0. Anything that is not a whole number is left for the spec to check."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _given(values: Mapping[str, object], name: str) -> object:
    """The value of a number field, which a visitor may have cleared. Raises UsageError if it is empty."""
    if values[name] is None:
        raise UsageError(f"{name} is empty; enter a number")
    return values[name]


def as_float(value: object) -> Any:
    """JSON may send 1 for 1.0. An integer that no float holds exactly is left for the spec to refuse."""
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def _decimal(value: object) -> Any:
    """An integer chosen from a list arrives as text."""
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,3}", value) else whole(value)


def read_load(
    endpoints: Sequence[Endpoint], values: Mapping[str, Any], asked: object, max_new_tokens: int = MAX_NEW_TOKENS
) -> Plan:
    """The study that is asked for. Raises UsageError.

    values: the page's controls LOAD_SETTINGS.
    asked: `users`, such as 1,5,25; `requests` per level; `max_new_tokens` per answer; `dollars` per hour, or null; the
        prompts as `text`, see `look_at`, with the `name` of their file, or, if that is null, made up of `words` random
        words.
    max_new_tokens: the page's limit on an answer."""
    asked = asked if isinstance(asked, dict) else {}
    users = _users(asked.get("users"))
    requests = integer(1, MAX_REQUESTS).check("requests a level", whole(asked.get("requests")))
    if requests < users[-1]:
        raise UsageError(
            f"{users[-1]} users need {users[-1]} requests per level or more, not {requests}: with fewer, they would "
            "never all ask at once"
        )
    length = integer(1, max_new_tokens).check("tokens of each answer", whole(asked.get("max_new_tokens")))
    if (dollars := asked.get("dollars")) is not None:
        number(0, 1e6).check("dollars an hour", dollars)
    temperature, seed, chat = (values[name] for name in LOAD_SETTINGS)
    params = SamplingParams(as_float(temperature), seed=seed, max_new_tokens=length)
    num = len(users) * requests
    SamplingParams(seed=params.seed + num)
    text = asked.get("text")
    if text is None:
        words = integer(1, MAX_WORDS).check("words of each prompt", whole(asked.get("words")))
        data = f"{SYNTHETIC}{words},{length}"
        questions, _ = synthetic(data, chat is True, num + WARM_UP, params.seed)
    else:
        data = str(asked.get("name"))[:200]
        questions = questions_of(prompts_of(asked), chat is True)
    fields = (dealt(questions, num), tuple(users), requests, params, TIMEOUT_S, dollars, name_of(data))
    return Plan(tuple(endpoints), *fields)


def _users(given: object) -> list[int]:
    parts = [part.strip() for part in str(given).split(",")][: MAX_LEVELS + 1]
    users = [int(part) for part in parts if re.fullmatch("[0-9]{1,4}", part)]
    fine = users == sorted(set(users)) and len(users) == len(parts) <= MAX_LEVELS
    if not fine or not 1 <= users[0] <= users[-1] <= MAX_USERS:
        raise UsageError(
            f"users must be 1 to {MAX_LEVELS} ascending numbers from 1 to {MAX_USERS}, as 1,5,25, "
            f"not {str(given)[:40]!r}"
        )
    return users
