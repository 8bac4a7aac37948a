"""What each server's program calls things: how it is recognised, and how it reports its drafts. Everything above reads
one form: `Drafted`. Pure.

Sources: vLLM's docs (features/spec_decode, per-request metrics), SGLang's entrypoints/openai/protocol.py
(`SpecTokensDetails`, sglang#33518), TensorRT-LLM's serve/openai_protocol.py, llama.cpp's tools/server/README.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .fields import count, counts, find, number

LITELLM_CREATED = 1677610602  # of every model that LiteLLM's proxy lists


@dataclass(frozen=True)
class Drafted:
    """A server's report on its speculative decoding for one answer; None where it does not say.

    num_steps: verifications. accepted, drafted: by verification, if it lists them. starts: the first token of each,
    where its chunks show it. per_step: tokens of a verification, if it says only that."""

    num_accepted: int | None
    num_drafted: int | None
    num_steps: int | None = None
    accepted: tuple[int, ...] = ()
    drafted: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    per_step: float | None = None

    def of(self, num_tokens: int) -> Drafted:
        """The report on an answer of that many tokens."""
        if self.per_step is None:
            return self
        num_steps = max(1, round(num_tokens / self.per_step))
        return Drafted(num_tokens - num_steps, None, num_steps)


@dataclass(frozen=True)
class Dialect:
    """A server's program.

    owners: its `owned_by` in a list of models.
    drafted: its report on drafts, in an event of a stream.
    metrics: how the names of its metrics begin. has_steps: whether a piece of an answer holds whole verifications."""

    name: str
    owners: tuple[str, ...] = ()
    drafted: Callable[[Any], Drafted | None] = lambda event: None
    metrics: str = ""
    has_steps: bool = False


def _of_vllm(event: Any) -> Drafted | None:
    """`metrics.speculative_decoding`, of a server with --per-request-spec-decode-metrics summary or detailed."""
    report = find(dict, event, "metrics", "speculative_decoding")
    if report is None:
        return None
    accepted, drafted = counts(report, "per_step_accepted"), counts(report, "per_step_drafted")
    if accepted is None or drafted is None:
        return _sums("num_accepted_draft_tokens num_draft_tokens num_spec_steps")(report)
    if len(accepted) != len(drafted) or any(a > d for a, d in zip(accepted, drafted, strict=True)):
        return None
    return Drafted(sum(accepted), sum(drafted), len(accepted), accepted, drafted)


def _sums(*path: str) -> Callable[[Any], Drafted | None]:
    """Reads sums at a path: of accepted and of drafted tokens and, if it has a third name, of verifications. path: its
    last step is their names, with blanks between."""

    def read(event: Any) -> Drafted | None:
        accepted, drafted, *steps = (count(event, *path[:-1], name) for name in path[-1].split())
        return _checked(accepted, drafted, steps[0] if steps else None)

    return read


def _of_tensorrt_llm(event: Any) -> Drafted | None:
    """`avg_decoded_tokens_per_iter` of the last choice: 1 without speculation."""
    per_step = number(event, "choices", 0, "avg_decoded_tokens_per_iter")
    return Drafted(None, None, per_step=per_step) if per_step is not None and per_step > 1 else None


def _of_predictions(event: Any) -> Drafted | None:
    """OpenAI's fields for an answer that the client predicts, which SMG fills with drafts; 0 without either."""
    usage = find(dict, event, "usage", "completion_tokens_details")
    num_accepted, num_rejected = (count(usage, f"{name}_prediction_tokens") for name in ("accepted", "rejected"))
    return _checked(num_accepted, (num_accepted or 0) + (num_rejected or 0) or None, None)


def _checked(num_accepted: int | None, num_drafted: int | None, num_steps: int | None) -> Drafted | None:
    """Sums that can be right; None for any others."""
    if num_accepted is None or num_drafted is None or num_accepted > num_drafted:
        return None
    return Drafted(num_accepted, num_drafted, num_steps)


VLLM = Dialect("vLLM", ("vllm",), _of_vllm, "vllm:", True)
_SGLANG = _sums("sglext", "spec_tokens_details", "spec_num_correct_drafts spec_num_proposed_drafts spec_verify_ct")
SGLANG = Dialect("SGLang", ("sglang",), _SGLANG, "sglang:", True)
TENSORRT_LLM = Dialect("TensorRT-LLM", ("tensorrt_llm",), _of_tensorrt_llm, "trtllm_")
_LLAMA_CPP = _sums("timings", "draft_n_accepted draft_n draft_rounds")  # so far, in every chunk; rounds: mlx-vlm#1788
LLAMA_CPP = Dialect("llama.cpp", ("llamacpp", "llama.cpp"), _LLAMA_CPP, "llamacpp:")
OLLAMA = Dialect("Ollama", ("library",))
_LM_STUDIO = _sums("stats", "accepted_draft_tokens_count total_draft_tokens_count")  # of a model with a draft model
LM_STUDIO = Dialect("LM Studio", ("organization_owner",), _LM_STUDIO)
LITELLM = Dialect("LiteLLM")
SMG = Dialect("SMG", drafted=_of_predictions)  # a gateway before vLLM, SGLang and others (smg#2481)
OTHER = Dialect("")  # OpenAI's own, and whatever does not say what it is
DIALECTS = (VLLM, SGLANG, TENSORRT_LLM, LLAMA_CPP, OLLAMA, LM_STUDIO, LITELLM, SMG)


def drafted_in(event: Any) -> Drafted | None:
    """What an event says of the answer's drafts, in whichever server's form: gateways pass on what others wrote."""
    return next((report for dialect in DIALECTS if (report := dialect.drafted(event)) is not None), None)


def dialect_of(models: Any, headers: Mapping[str, str]) -> Dialect:
    """Which server answered with this list of models and these headers."""
    if find(int, models, 0, "created") == LITELLM_CREATED or any(name.startswith("x-litellm") for name in headers):
        return LITELLM
    owners = {find(str, model, "owned_by") for model in models}
    if known := [dialect for dialect in DIALECTS if owners.intersection(dialect.owners)]:
        return known[0]
    return LLAMA_CPP if "llama.cpp" in headers.get("server", "") else OTHER
