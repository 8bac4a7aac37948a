"""A small language model on a loopback server that answers like vLLM: a fixed table of next-token probabilities, true
sampling by seed, drafts or none, log-probabilities, JSON schemas and tool calls; and each thing that servers do
wrong."""

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from engine.remote.endpoint import Endpoint
from tests.helpers.loopback import HEAD, Body, error, http, lists, page, refusal, servers, sse

NUM_TOKENS = 12
FIRST_ID = 1000  # ids of the model's own tokens begin here; a prompt's characters have ids below
WORDS = [f" {chr(ord('a') + i)}{chr(ord('a') + i)}" for i in range(NUM_TOKENS)]
MARGIN = 0.7  # between the likeliest two tokens everywhere, in nats, unless a test says otherwise
SCHEMA_ANSWER = {"animal": "cat", "legs": 4, "is_pet": True}
BLOCK = 128  # tokens: only long prompts have whole blocks, which a cache finds again
QUERIES, HITS = "prefix_cache_queries", "prefix_cache_hits"
DRAFTS, ACCEPTED = "spec_decode_num_drafts", "spec_decode_num_accepted_tokens"
END = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 9}}, "[DONE]"


def table(margin: float = MARGIN) -> list[list[float]]:
    """The log-probabilities of the next token, by the last one. The likeliest two differ by `margin`."""
    rows, draw = [], random.Random(3)
    for _ in range(NUM_TOKENS):
        order = draw.sample(range(NUM_TOKENS), NUM_TOKENS)
        logits = [0.0] * NUM_TOKENS
        for rank, token in enumerate(order):
            logits[token] = 2.0 if rank == 0 else 2.0 - margin if rank == 1 else 0.9 - 0.25 * rank
        total = math.log(sum(map(math.exp, logits)))
        rows.append([logit - total for logit in logits])
    return rows


@dataclass
class Language:
    """What a server is, and what it does wrong.

    k: tokens of a draft; 0 is plain. keeps: of each draft.
    step_s: seconds of a step.
    margin: of its table.
    second_at: positions at which it writes its second likeliest token at temperature 0; from_here: whether it gives
        that token the first one's probability when asked again.
    ignores: of temperature, top_p, seed (draws anew), seeds (draws the same for all), schema, tools; odds (samples its
        likeliest token too often where it drafts), batch and cache (whose answers have another token at position 5).
    refuses: of schema, tools, chat.
    thinks: whether all it writes to a chat is thinking, as vLLM (`reasoning`, and no content).
    spoil: changes every JSON value that it sends.
    caches: whether it has a prefix cache. reports: whether it counts its drafts in answers, names its tokens and gives
        log-probabilities."""

    k: int = 0
    keeps: int = 99
    step_s: float = 0.0
    margin: float = MARGIN
    second_at: frozenset[int] = frozenset()
    from_here: bool = False
    ignores: frozenset[str] = frozenset()
    refuses: frozenset[str] = frozenset()
    thinks: bool = False
    spoil: Callable[[Any], Any] = lambda value: value
    caches: bool = True
    reports: bool = True
    names_tokens: bool = True
    shift: int = 0
    """Added to every id of a prompt, as another tokenizer would."""
    template: str = "<user>"
    model: str = "m"
    root: str = "maker/model"
    salt: str = "plain"
    num_served: int = 10**9
    """Requests that it answers; more are too many."""

    def __post_init__(self) -> None:
        self.rows, self.cached = table(self.margin), set[tuple[int, ...]]()
        self.num_asked = self.num_busy = 0
        names = ("generation_tokens", QUERIES, HITS, *((DRAFTS, ACCEPTED) if self.k else ()))
        self.counts = dict.fromkeys(names, 0)  # what it says at /metrics

    # ---- the model

    def ids_of(self, body: Body) -> list[int]:
        prompt = body.get("prompt")
        if isinstance(prompt, list):
            return prompt
        if prompt is None:
            prompt = "".join(f"{self.template}{message['content']}" for message in body["messages"])
        return [(ord(character) + self.shift) % FIRST_ID for character in prompt]

    def row(self, ids: Sequence[int]) -> list[float]:
        last = ids[-1]
        return self.rows[(last - FIRST_ID if last >= FIRST_ID else last - self.shift) % NUM_TOKENS]

    def ranked(self, ids: Sequence[int]) -> list[int]:
        row = self.row(ids)
        return sorted(range(NUM_TOKENS), key=lambda token: (-row[token], token))

    def next_token(self, ids: Sequence[int], position: int, body: Body) -> int:
        temperature = 1.0 if "temperature" in self.ignores and body["temperature"] else body["temperature"]
        order, row = self.ranked(ids), self.row(ids)
        likely = random.Random(f"{body.get('seed')} {position}").random() < 0.3
        if temperature and position and likely and "odds" in self.ignores:
            return order[0]
        if not temperature or ("temperature" in self.ignores and self.k):
            return order[1 if position in self.second_at or (position == 5 and body.get("upset")) else 0]
        weights = [math.exp(row[token] / temperature) for token in order]
        total, mass, num = sum(weights), 0.0, 0
        top_p = 1.0 if "top_p" in self.ignores else body.get("top_p", 1.0)
        while num < NUM_TOKENS and mass < top_p - 1e-9:
            mass += weights[num] / total
            num += 1
        self.num_asked += 1
        seed = self.num_asked if "seed" in self.ignores else 7 if "seeds" in self.ignores else body["seed"]
        return random.Random(f"{self.salt} {seed} {position}").choices(order[:num], weights[:num])[0]

    def write(self, ids: Sequence[int], body: Body) -> list[int]:
        written: list[int] = []
        for position in range(body["max_tokens"]):
            written.append(FIRST_ID + self.next_token([*ids, *written], position, body))
        return written

    # ---- the server

    async def answer(self, path: str, body: Body) -> AsyncIterator[bytes]:
        is_chat = path.endswith("/chat/completions")
        wants = ["schema"] * ("response_format" in body) + ["tools"] * ("tools" in body) + ["chat"] * is_chat
        if body["model"] != self.model:
            yield refusal(404, error(f"The model `{body['model']}` does not exist."))
            return
        self.num_served -= 1
        if self.num_served < 0:
            yield refusal(429, error("slow down"))
            return
        if refused := self.refuses.intersection(wants):
            yield refusal(400, error(f"{sorted(refused)[0]} is not supported"))
            return
        ids = self.ids_of(body)
        is_warm = self._cache(ids)
        if body.get("logprobs"):
            self.num_busy += 1
            await asyncio.sleep(0.002)
            body["upset"] = (self.num_busy > 1 and "batch" in self.ignores) or (is_warm and "cache" in self.ignores)
            self.num_busy -= 1
        formats = self._tool_call() if "tools" in wants else self._schema() if "schema" in wants else None
        yield HEAD
        async for event in self._stream(ids, body, is_chat) if formats is None else each_of(formats):
            yield http(sse(self.spoil(event)))
        yield b"0\r\n\r\n"

    async def _stream(self, ids: Sequence[int], body: Body, is_chat: bool) -> AsyncIterator[Any]:
        written, at, accepted, drafted = self.write(ids, body), 0, list[int](), list[int]()
        while at < len(written):
            num_kept = min(self.keeps, self.k, len(written) - at - 1) if at else 0
            if self.k and at:
                accepted.append(num_kept)
                drafted.append(self.k)
            part = written[at : at + num_kept + 1]
            text = "".join(WORDS[token - FIRST_ID] for token in part)
            choice: Body = {"index": 0, "finish_reason": None}
            choice |= {"delta": {"reasoning" if self.thinks else "content": text}} if is_chat else {"text": text}
            event: Body = {"choices": [choice]}
            if body.get("logprobs") and self.reports:
                choice["logprobs"] = self._scored(ids, written[: at + len(part)], at, body.get("top_logprobs"))
            if self.names_tokens:
                choice["token_ids"] = part
                (event if is_chat else choice).update({} if at else {"prompt_token_ids": list(ids)})
            at += len(part)
            if at == len(written):
                choice["finish_reason"] = "length"
            if self.step_s:
                await asyncio.sleep(self.step_s)
            yield {**event, "usage": {"prompt_tokens": len(ids), "completion_tokens": at}}
        if self.k:
            self.counts[DRAFTS] += len(drafted)
            self.counts[ACCEPTED] += sum(accepted)
        said = lists(accepted, drafted) if self.k and self.reports else {}
        yield {"choices": [], "usage": {"prompt_tokens": len(ids), "completion_tokens": at}, **said}
        yield "[DONE]"

    def _scored(self, ids: Sequence[int], written: Sequence[int], start: int, num: int | None) -> Body:
        """The log-probabilities of what is written from `start` on, as vLLM writes them. num: in a chat, how many."""
        tops = [self._odds([*ids, *written[:at]]) for at in range(start, len(written))]
        names = [f"token_id:{token}" for token in written[start:]]
        own = [top[name] for name, top in zip(names, tops, strict=True)]
        if num is None:
            return {"tokens": names, "token_logprobs": own, "top_logprobs": tops}
        return {"content": [
            {"token": name, "logprob": logprob,
             "top_logprobs": [{"token": key, "logprob": top[key]} for key in [*dict.fromkeys([name, *top])][:num]]}
            for name, logprob, top in zip(names, own, tops, strict=True)
        ]}  # fmt: skip

    def _odds(self, ids: Sequence[int]) -> dict[str, float]:
        odds = {token: self.row(ids)[token] for token in range(NUM_TOKENS)}
        if self.from_here:
            first, second = self.ranked(ids)[:2]
            odds[first], odds[second] = odds[second], odds[first]
        order = sorted(odds, key=lambda token: -odds[token])
        return {f"token_id:{FIRST_ID + token}": odds[token] for token in order}

    def _schema(self) -> list[Any]:
        said = "The animal is a cat." if "schema" in self.ignores else json.dumps(SCHEMA_ANSWER)
        thought = {"delta": {"reasoning": "Hm", "content": None}, "finish_reason": "length"}
        return [{"choices": [thought if self.thinks else {"delta": {"content": said}, "finish_reason": "stop"}]}, *END]

    def _tool_call(self) -> list[Any]:
        """In pieces; one that speculates sends several tokens of the arguments at once, and may lose the first."""
        parts = ['{"city"', ': "Paris"', ', "days": 2}'] if not self.k else ['{"city": "Paris"', ', "days": 2}']
        if "tools" in self.ignores:
            parts = parts[1:]
        calls = [{"index": 0, "function": {"name": "get_weather", "arguments": ""}}]
        calls += [{"index": 0, "function": {"arguments": part}} for part in parts]
        events = [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]} for call in calls]
        return [*events, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}, *END]

    def _cache(self, ids: Sequence[int]) -> bool:
        """Whether the prompt's beginning is in the cache, from now on if not before."""
        self.counts[QUERIES] += len(ids)
        whole_blocks = tuple(ids[: len(ids) // BLOCK * BLOCK])
        is_warm = self.caches and len(whole_blocks) > 0 and whole_blocks in self.cached
        self.counts[HITS] += len(whole_blocks) * is_warm
        self.cached.add(whole_blocks)
        return is_warm

    # ---- what it lists

    def get(self, path: str, missing: bytes) -> bytes:
        """What a GET of a path is answered with, as of now."""
        if path == "/v1/models":
            return page(json.dumps({"data": [{"id": self.model, "owned_by": "vllm", "root": self.root}]}).encode())
        lines = (f"vllm:{name}_total {num}.0\n" for name, num in self.counts.items())
        return page("".join(lines).encode()) if path == "/metrics" else missing


async def each_of(events: Sequence[Any]) -> AsyncIterator[Any]:
    for event in events:
        yield event


@contextmanager
def speaking(*languages: Language) -> Iterator[list[Endpoint]]:
    """Servers of these, as the lanes `plain` and `spec`."""
    with servers(*(dialect.answer for dialect in languages)) as hosts:
        for server, language in zip(hosts, languages, strict=True):
            server.pages = language  # type: ignore[assignment]
        lanes = zip(("plain", "spec"), hosts, languages, strict=False)
        yield [Endpoint(name, dialect.model, server.url, f"key-of-{name}") for name, server, dialect in lanes]
