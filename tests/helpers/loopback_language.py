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
from tests.helpers.loopback import HEAD, Body, as_chat, error, http, lists_models, page, refusal, servers, sse, written

NUM_TOKENS = 12
FIRST_ID = 1000  # ids of the model's own tokens begin here; a prompt's characters have ids below
WORDS = [f" {chr(FIRST_ID - ord(' ') - 1 + i)}" for i in range(NUM_TOKENS)]  # whose ids these are, see `tokens_of`
SCHEMA_ANSWER = {"animal": "cat", "legs": 4, "is_pet": True}
BLOCK = 128  # tokens: only long prompts have whole blocks, which a cache finds again
QUERIES, HITS = "prefix_cache_queries", "prefix_cache_hits"
DRAFTS, ACCEPTED = "spec_decode_num_drafts", "spec_decode_num_accepted_tokens"
END = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 9}}, "[DONE]"


@dataclass
class Language:
    """What a server is, and what it does wrong.

    k: tokens of a draft; 0 is plain. keeps: of each draft.
    step_s: seconds of a step; 0 sends an answer in one piece.
    margin: between the likeliest two tokens everywhere, in nats.
    ignores: of temperature, top_p, seed (draws anew), seeds (draws the same for all), schema, tools; odds (samples its
        likeliest token too often where it drafts); rank (at temperature 0 its token at position 5 is the second
        likeliest), batch and cache (the same, where they matter alone); weights (gives that token the first one's
        probability when asked again).
    refuses: of schema, tools, chat.
    thinks: whether all it writes to a chat is thinking, as vLLM (`reasoning`, and no content).
    spoil: changes every JSON value that it sends.
    caches: whether it has a prefix cache. reports: whether it counts its drafts in answers and gives log-probabilities.
    names_tokens: whether it sends their ids.
    shift: added to every id of a prompt, as another tokenizer would.
    num_served: requests that it answers; more are too many."""

    k: int = 0
    keeps: int = 99
    step_s: float = 0.0
    margin: float = 0.7
    ignores: frozenset[str] = frozenset()
    refuses: frozenset[str] = frozenset()
    thinks: bool = False
    spoil: Callable[[Any], Any] = lambda value: value
    caches: bool = True
    reports: bool = True
    names_tokens: bool = True
    shift: int = 0
    template: str = "<user>"
    model: str = "m"
    root: str = "maker/model"
    num_served: int = 10**9

    def __post_init__(self) -> None:
        draw, logits = random.Random(3), [2.0, 2.0 - self.margin, *(0.9 - 0.25 * rank for rank in range(2, NUM_TOKENS))]
        self.orders = [draw.sample(range(NUM_TOKENS), NUM_TOKENS) for _ in range(NUM_TOKENS)]
        total = math.log(sum(map(math.exp, logits)))
        self.logprobs = [logit - total for logit in logits]  # by a token's place in the order
        self.cached = set[tuple[int, ...]]()
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

    def order(self, last: int) -> list[int]:
        """The tokens after this one, from the likeliest on."""
        return self.orders[(last - FIRST_ID if last >= FIRST_ID else last - self.shift) % NUM_TOKENS]

    def next_token(self, last: int, position: int, body: Body, is_upset: bool) -> int:
        temperature = 1.0 if "temperature" in self.ignores and body["temperature"] else body["temperature"]
        order = self.order(last)
        if not temperature or ("temperature" in self.ignores and self.k):
            return order[1 if is_upset and position == 5 else 0]
        likely = random.Random(f"{body.get('seed')} {position}").random() < 0.3
        if position and likely and "odds" in self.ignores:
            return order[0]
        weights = [math.exp(logprob / temperature) for logprob in self.logprobs]
        total, mass, num = sum(weights), 0.0, 0
        top_p = 1.0 if "top_p" in self.ignores else body.get("top_p", 1.0)
        while num < NUM_TOKENS and mass < top_p - 1e-9:
            mass += weights[num] / total
            num += 1
        self.num_asked += 1
        seed = self.num_asked if "seed" in self.ignores else 7 if "seeds" in self.ignores else body["seed"]
        return random.Random(f"{self.k} {seed} {position}").choices(order[:num], weights[:num])[0]

    # ---- the server

    async def answer(self, path: str, body: Body) -> AsyncIterator[bytes]:
        is_chat = path.endswith("/chat/completions")
        wants = ["schema"] * ("response_format" in body) + ["tools"] * ("tools" in body) + ["chat"] * is_chat
        self.num_served -= 1
        if body["model"] != self.model:
            yield refusal(404, error(f"The model `{body['model']}` does not exist."))
        elif self.num_served < 0:
            yield refusal(429, error("slow down"))
        elif refused := self.refuses.intersection(wants):
            yield refusal(400, error(f"{sorted(refused)[0]} is not supported"))
        else:
            events = (
                self._tool_call() if "tools" in wants
                else self._schema() if "schema" in wants
                else await self._events(body, is_chat)
            )  # fmt: skip
            parts = [sse(self.spoil(event)) for event in events]
            yield HEAD
            for part in parts if self.step_s else [b"".join(parts)]:
                await asyncio.sleep(self.step_s)
                yield http(part)
            yield b"0\r\n\r\n"

    async def _events(self, body: Body, is_chat: bool) -> Sequence[Any]:
        prompt = self.ids_of(body)
        is_upset, is_warm = "rank" in self.ignores, self._cache(prompt)
        if body.get("logprobs"):
            self.num_busy += 1
            await asyncio.sleep(0.002)
            is_upset |= (self.num_busy > 1 and "batch" in self.ignores) or (is_warm and "cache" in self.ignores)
            self.num_busy -= 1
        tokens, last = list[int](), prompt[-1]
        for position in range(body["max_tokens"]):
            tokens.append(self.next_token(last, position, body, is_upset))
            last = FIRST_ID + tokens[-1]
        words = [WORDS[token] for token in tokens]
        events = written(words, self.k, self.keeps, self.reports, ids=self.names_tokens, prompt=prompt)
        if self.k:
            self.counts[DRAFTS] += len(events) - 3
            self.counts[ACCEPTED] += len(tokens) - (len(events) - 2)
        if body.get("logprobs") and self.reports:
            at = 0
            for event in events[:-2]:
                end = event["usage"]["completion_tokens"]
                event["choices"][0]["logprobs"] = self._scored(prompt[-1:], tokens, at, end, body.get("top_logprobs"))
                at = end
        return as_chat(events, "reasoning" if self.thinks else "content") if is_chat else events

    def _scored(self, prompt: list[int], tokens: list[int], start: int, end: int, num: int | None) -> Body:
        """The log-probabilities of the tokens from `start` to `end`, as vLLM writes them. num: in a chat, how many."""
        ids = [*prompt, *(FIRST_ID + token for token in tokens)]
        names, tops = [f"token_id:{token}" for token in ids[1:]][start:end], [self._odds(id_) for id_ in ids[start:end]]
        own = [top[name] for name, top in zip(names, tops, strict=True)]
        if num is None:
            return {"tokens": names, "token_logprobs": own, "top_logprobs": tops}
        return {"content": [
            {"token": name, "logprob": logprob,
             "top_logprobs": [{"token": key, "logprob": top[key]} for key in [*dict.fromkeys([name, *top])][:num]]}
            for name, logprob, top in zip(names, own, tops, strict=True)
        ]}  # fmt: skip

    def _odds(self, last: int) -> dict[str, float]:
        first, second, *others = self.order(last)
        order = [second, first, *others] if "weights" in self.ignores else [first, second, *others]
        names = (f"token_id:{FIRST_ID + token}" for token in order)
        return dict(zip(names, self.logprobs, strict=True))

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
        lines = (f"vllm:{name}_total {num}.0\n" for name, num in self.counts.items())
        pages = lists_models(self.model, root=self.root) | {"/metrics": page("".join(lines).encode())}
        return pages.get(path, missing)


@contextmanager
def speaking(*languages: Language) -> Iterator[list[Endpoint]]:
    """Servers of these, as the lanes `plain` and `spec`."""
    with servers(*(dialect.answer for dialect in languages)) as hosts:
        for server, language in zip(hosts, languages, strict=True):
            server.pages = language  # type: ignore[assignment]
        lanes = zip(("plain", "spec"), hosts, languages, strict=False)
        yield [Endpoint(name, dialect.model, server.url, f"key-of-{name}") for name, server, dialect in lanes]
