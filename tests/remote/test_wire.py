"""What real servers sent (tests/fixtures/wire, recorded by `python -m tools.servers`): the same commands again, what is
read of each answer, cut anywhere, and damaged."""

import asyncio
import gzip
import json
import random
import re
import shlex
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.cli.main import main
from engine.core.errors import RaceError
from engine.remote.endpoint import Endpoint
from engine.remote.look import look
from engine.remote.reply import Events, Reply
from engine.remote.steps import Written
from tests.helpers.wire import FOLDER, body_parts, places, read_parts, recorded, replayed
from tools.servers.__main__ import COMMANDS, LANES, PROMPTS, RECORDED

NAMES = sorted({path.name.rpartition("-")[0] for path in FOLDER.glob("*.json.gz")})
SPEED = 20.0
# What is said of each in a race: how its tokens are counted, and what it reports of drafts.
SAYS = {
    "vllm": ("steps by its own lists", ()),
    "vllm-thinking": ("steps by its own lists", ("it thinks first", " a second; its answer begins after ")),
    **dict.fromkeys(("llama_cpp", "nginx", "nginx-buffering"), ("steps by its own lists", ("does not name them",))),
    "litellm": ("steps by its own lists", ()),
    **dict.fromkeys(("mlx", "transformers"), ("says nothing of drafts", ("only at an answer's end",))),
    "sglang": ("it says that it accepted", ()),
}
PROGRAMS = {"vllm": "vLLM", "vllm-thinking": "vLLM", "litellm": "LiteLLM", "sglang": "SGLang",
            **dict.fromkeys(("llama_cpp", "nginx", "nginx-buffering"), "llama.cpp")}  # fmt: skip


def both(stack: ExitStack, name: str) -> list[str]:
    """The URLs of a server's plain and its speculative instance; one that cannot speculate is both."""
    kinds = [kind for kind in LANES.values() if (FOLDER / f"{name}-{kind}.json.gz").exists()]
    return [stack.enter_context(replayed(f"{name}-{kind}", SPEED)).url for kind in (kinds * 2)[:2]]


@pytest.mark.parametrize("kind", RECORDED)
@pytest.mark.parametrize("name", NAMES)
def test_a_real_server_does_what_the_docs_say(name: str, kind: str, tmp_path: Any, capsys: Any) -> None:
    """A server that engineers use could not be raced or studied, or something false would be said of it."""
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")
    with ExitStack() as stack:
        lanes = zip(LANES, both(stack, name), strict=True)
        words = shlex.split(COMMANDS[kind].format(prompts=tmp_path / "prompts.txt"))
        assert main([*words, *(f"--lane={lane}=openai:{url}" for lane, url in lanes), "--model", "trained"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    if kind == "race --chat":
        drafts, others = SAYS[name]
        assert drafts in said and all(words in said for words in others), said


@pytest.mark.parametrize("name", NAMES)
def test_a_real_server_is_recognised(name: str) -> None:
    """A plain server would be said to speculate, or a speculative one not to; or a proxy be called what it is not."""
    with ExitStack() as stack:
        plain, speculative = (asyncio.run(look(Endpoint("a", "trained", url))) for url in both(stack, name))
    assert plain.endpoint and plain.chat_reply and plain.dialect.name == PROGRAMS.get(name, "")
    assert not plain.speculates and (speculative.speculates or name not in PROGRAMS or name == "litellm")
    assert plain.speculates is not None or name not in ("vllm", "llama_cpp")


@dataclass(frozen=True)
class Stream:
    """A recorded answer. data: its body. asked: the request's."""

    name: str
    data: bytes
    asked: dict[str, Any]

    @property
    def events(self) -> list[Any]:
        lines = self.data.decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def streams() -> Iterator[Stream]:
    for path in sorted(FOLDER.glob("*.json.gz")):
        for exchange in recorded(path.name.removesuffix(".json.gz"))["exchanges"]:
            asked = exchange["asked"]["body"] or {}
            if exchange["status"] == 200 and asked.get("max_tokens", 0) > 1:
                data = b"".join(part for _, part in body_parts(exchange))
                packed = exchange["headers"].get("content-encoding") == "gzip"
                yield Stream(path.name.partition(".")[0], gzip.decompress(data) if packed else data, asked)


STREAMS = list(streams())


def read(stream: Stream, data: bytes, cuts: list[int] | tuple[int, ...] = ()) -> tuple[Reply, Written]:
    return read_parts(data, stream.asked["max_tokens"], cuts)


def texts(events: list[Any], *fields: str) -> str:
    choices = [choice for event in events for choice in event["choices"]]
    return "".join((choice.get("delta") or choice).get(field) or "" for choice in choices for field in fields)


def check(stream: Stream, cuts: list[int]) -> None:
    reply, written = read(stream, stream.data, cuts)
    events = stream.events
    usage = [event["usage"] for event in events if event.get("usage")][-1]
    assert (reply.num_tokens, reply.num_prompt_tokens) == (usage["completion_tokens"], usage["prompt_tokens"])
    assert len(written.token_ids) == reply.num_tokens == len(written.pieces)
    assert "".join(written.pieces) == reply.text == texts(events, "text", "reasoning", "reasoning_content", "content")
    assert reply.thinking == texts(events, "reasoning", "reasoning_content")
    lists = next((e["metrics"]["speculative_decoding"] for e in events if e.get("metrics")), {})
    sums = [e["timings"] for e in events if "draft_n" in e.get("timings", {})]
    own = written.steps(reply.drafted) if reply.drafted and not written.uncounted else None
    own = [step for step in own or [] if step.num_drafted]
    if own and "per_step_drafted" in lists:
        assert [step.num_drafted for step in own] == lists["per_step_drafted"]
        assert [step.num_accepted for step in own][:-1] == lists["per_step_accepted"][:-1]
    if sums and reply.drafted:
        assert (reply.drafted.num_drafted, reply.drafted.num_accepted) == (
            sums[-1]["draft_n"],
            sums[-1]["draft_n_accepted"],
        )
        assert sum(step.num_drafted for step in own) == (sums[-1]["draft_n"] if len(sums) > 1 else 0)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
@given(cuts=st.lists(st.integers(0, 10**6), max_size=12))
@example([])
@settings(max_examples=2)
def test_what_is_read_is_what_it_sent_wherever_a_read_ends(stream: Stream, cuts: list[int]) -> None:
    """Another count than the server's own, other text or drafts; a token, or half a character, lost at a cut."""
    check(stream, cuts)


# What gateways do to a stream: wave-agent#1326, openai-node#2725, mlx-vlm (pi#2326), vespa#33327, qwen-code#9884,
# opencode#27365, llm-gateway#2053.
HABITS = {
    "mark": lambda data: BOM_UTF8 + data,
    "keeps alive": lambda data: data.replace(b"\n\n", b"\n\ndata: \n\ndata: : PROCESSING\n\nid: 7\nretry: 9\n\n"),
    "loses its end": lambda data: data.removesuffix(b"data: [DONE]\n\n").rstrip(b"\n"),
    "its own names": lambda data: data.replace(b'"completion_to', b'"output_to').replace(b'"prompt_to', b'"input_to'),
    "of JavaScript": lambda data: re.sub(rb'(_tokens": ?\d+)([,}])', rb"\1.0\2", data),
    "no blank lines": lambda data: data.replace(b"\n\n", b"\n"),
    "Groq's": lambda data: re.sub(rb'"usage": ?({([^{}]|{[^{}]*})*})', rb'"x_groq": {"usage": \1}', data),
    "Protobuf's": lambda data: re.sub(rb'(_tokens": ?)(\d+)([,}])', rb'\1"\2"\3', data),
    "CR": lambda data: data.replace(b"\n", b"\r").replace(b"[DONE]", b"[done]"),
    "CR LF": lambda data: data.replace(b"\n", b"\r\n"),
    "shouts": lambda data: data.replace(b'"length"', b'"MAX_TOKENS"'),
    "counts again": lambda data: data.replace(b"data: [DONE]", NOTHING + b"data: [DONE]"),
}  # fmt: skip
NOTHING = b'data: {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}\n\n'


@cache
def sent(number: int) -> tuple[Reply, Written]:
    """What is read of a stream as it is."""
    return read(STREAMS[number], STREAMS[number].data)


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_on_the_way_changes_nothing(habit: str) -> None:
    """A gateway's form would end a race, lose a token, or pass for another count."""
    for number, stream in enumerate(STREAMS):
        (reply, written), (own, as_sent) = read(stream, HABITS[habit](stream.data), [*range(0, 9999, 61)]), sent(number)
        assert (written.pieces, written.ends, reply.thinking) == (as_sent.pieces, as_sent.ends, own.thinking)
        assert (reply.num_prompt_tokens, reply.finish_reason) == (own.num_prompt_tokens, own.finish_reason)
    assert Events().feed(b"data: {}\n") == ["{}"], "an event is read when it is there, not with the next one"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["text", "id", "index"]), inner),
    max_leaves=4,
)  # what a server may have in the place of any value
DAMAGES = ("drop", "retype", "swap", "repeat", "cut")


def damaged(stream: Stream, rng: random.Random, value: Any) -> bytes:
    """Its data after one accident on the way."""
    lines = stream.data.split(b"\n\n")
    i, j = (rng.randrange(len(lines)) for _ in range(2))
    match rng.choice(DAMAGES):
        case "drop":
            del lines[i]
        case "swap":
            lines[i], lines[j] = lines[j], lines[i]
        case "repeat":
            lines.insert(i, lines[j])
        case "cut":
            return stream.data[: rng.randrange(len(stream.data))]
        case "retype" if lines[i].startswith(b"data: {"):
            event = json.loads(lines[i][6:])
            container, key = rng.choice(list(places(event)))
            container[key] = value
            lines[i] = b"data: " + json.dumps(event).encode()
    return b"\n\n".join(lines)


@given(st.sampled_from(STREAMS), st.randoms(use_true_random=False), JSON)
def test_a_damaged_answer_costs_itself_at_most(stream: Stream, rng: random.Random, value: Any) -> None:
    """A field missing, of another type, late, doubled or cut would end in a traceback, or in steps that are wrong."""
    with suppress(RaceError):
        reply, written = read(stream, damaged(stream, rng, value))
        assert len(written.token_ids) == len(written.pieces) == reply.num_tokens
        assert "".join(written.pieces) == reply.text
        for drafted in (None, reply.drafted):
            own = written.steps(drafted if drafted and drafted.accepted and not written.uncounted else None)
            if own is not None:
                assert sum(len(step.token_ids) for step in own) == reply.num_tokens
                unknown = [step for step in own if step.num_unknown]
                assert all(step.num_accepted <= step.num_unknown and step.seconds >= 0 for step in unknown)


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_a_recording_has_nothing_of_the_machine_that_made_it(path: Any) -> None:
    """The folders of whoever recorded it would be published."""
    assert not re.search(r"/(home|root|work|tmp|opt|Users)/", gzip.decompress(path.read_bytes()).decode())
    assert sum(other.stat().st_size for other in FOLDER.iterdir()) < 400_000
