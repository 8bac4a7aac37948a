"""What a server is asked for, and which fields of it a server may refuse. Pure; standard library only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.spec import SamplingParams
from .endpoint import Endpoint

TOP_P, SEED, TO_THE_END = "top_p", "seed", "ignore_eos"
RUNNING_USAGE, USAGE = "continuous_usage_stats", "stream_options"
LIMIT, NEW_LIMIT = "max_tokens", "max_completion_tokens"  # OpenAI's later models refuse the first
# Fields that make a server name or count its tokens and drafts: vLLM's and SGLang's, SGLang's (sglang#33518), and
# llama.cpp's. SGLang refuses the first in a streamed chat (sglang#30917).
DRAFTS = "return_spec_tokens_details"
EXTRAS = ("return_token_ids", DRAFTS, "timings_per_token")
# Log-probabilities of that many likeliest tokens, for a text and for a chat, where a `Question` asks for them.
ODDS, CHAT_ODDS = "logprobs", "top_logprobs"
# What makes tokens in them unambiguous (vLLM), and what a model's own defaults may set (vLLM takes them from
# generation_config.json, llama.cpp has its own).
NAMES, PLAINLY = {"return_tokens_as_token_ids": True}, {"repetition_penalty": 1, "min_p": 0, "top_k": -1}
# Fields that some server refuses, in the order in which they are left out if it does not say which: TensorRT-LLM
# refuses all that it does not know, TGI a top_p of 1, Mistral stream_options. What a race needs most is at the end.
OPTIONAL = (*EXTRAS, *NAMES, *PLAINLY, TOP_P, SEED, TO_THE_END, CHAT_ODDS, ODDS, RUNNING_USAGE, USAGE)
# What it costs that a server refuses one.
COSTS = {
    EXTRAS[0]: "tokens have no ids, so only texts are compared",
    SEED: "its sampled answers cannot be repeated",
    TO_THE_END: "its answers may end early",
    TOP_P: "it takes its own default",
}


@dataclass(frozen=True)
class Question:
    """What a server is to continue: a text, its token ids, or with `messages` a conversation of (role, content).
    to_the_end: whether it must write the maximum number of tokens. more: fields of the request besides; those of
    OPTIONAL may be refused."""

    text: str = ""
    messages: tuple[tuple[str, str], ...] = ()
    to_the_end: bool = False
    token_ids: tuple[int, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def path(self) -> str:
        """Where it is asked, below the endpoint's URL."""
        return "/chat/completions" if self.messages else "/completions"


def optional(endpoint: Endpoint, question: Question, params: SamplingParams, with_extras: bool) -> tuple[str, ...]:
    """The optional fields of a request, without those that the endpoint refused. A default is sent only where it means
    something: vLLM takes the model's own top_p if none is sent. with_extras: whether to ask for counts in every chunk,
    not only for those of the drafts at the end."""
    samples = params.temperature > 0
    means = {
        DRAFTS: True,
        USAGE: True,
        TOP_P: samples and params.top_p == 1,
        SEED: samples,
        TO_THE_END: question.to_the_end,
        **dict.fromkeys((*NAMES, *PLAINLY, CHAT_ODDS, ODDS), False),
    }
    wanted = (name for name in OPTIONAL if name in question.more or means.get(name, with_extras))
    return tuple(name for name in wanted if (question.path, name) not in endpoint.memory.refused)


def request_of(
    endpoint: Endpoint, question: Question, params: SamplingParams, fields: Collection[str]
) -> dict[str, Any]:
    """The body of a streamed request for `question`. fields: those of OPTIONAL to send."""
    running = {RUNNING_USAGE: True} if RUNNING_USAGE in fields else {}
    usage = {"include_usage": True, **running}
    values = {TOP_P: params.top_p, SEED: params.seed, USAGE: usage, **question.more}
    is_new = (question.path, LIMIT) in endpoint.memory.refused
    body: dict[str, Any] = {
        "model": endpoint.model,
        NEW_LIMIT if is_new else LIMIT: params.max_new_tokens,
        "temperature": params.temperature,
        "stream": True,
        **({"stop": list(params.stop)} if params.stop else {}),
        **({"top_k": params.top_k} if params.top_k else {}),
        **({TOP_P: params.top_p} if params.top_p != 1 else {}),
        **{name: values.get(name, True) for name in fields if name != RUNNING_USAGE},
        **{name: value for name, value in question.more.items() if name not in OPTIONAL},
    }
    if question.messages:
        return {**body, "messages": [{"role": role, "content": content} for role, content in question.messages]}
    return {**body, "prompt": list(question.token_ids) or question.text}


def costs(endpoint: Endpoint, path: str) -> str:
    """`it refused seed: its sampled answers cannot be repeated`; "" if it refused nothing that costs anything."""
    refused = [name for name in COSTS if (path, name) in endpoint.memory.refused]
    return "; ".join(f"it refused {name}: {COSTS[name]}" for name in refused)
