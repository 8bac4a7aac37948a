"""The other side of a bench: transformers' own `generate` on a stock copy of the model, in its four ways."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import CompileConfig, DynamicCache, GenerationConfig, PreTrainedModel
from transformers.generation import StoppingCriteria, StoppingCriteriaList

from ..analysis.metrics import ratio
from ..core.errors import RaceError, in_a_line
from ..core.spec import SamplingParams
from ..kernels.choose import choose
from ..progress import Progress, quiet, silent

if TYPE_CHECKING:
    from ..loading.loading import LoadedModel

EAGER, COMPILED, PROMPT_LOOKUP, ASSISTED = "hf_eager", "hf_compiled", "hf_prompt_lookup", "hf_assisted"
PLAIN_PEERS = (EAGER, COMPILED)  # the peers that draft nothing, for the plain lane
NAMES = (EAGER, COMPILED, PROMPT_LOOKUP, ASSISTED)
PROMPT_LOOKUP_TOKENS = 7
WARM_TOKENS = 8
WIDTHS = (1, 8, 16)  # rows of the stock model's forward that are timed, for comparison with our fixed steps


@dataclass(frozen=True)
class Generated:
    """The result of one `generate`. Prefill ends with the step of the first token (with drafts, the first tokens): it
    is not in `decode_s`, nor are its tokens in `num_timed`."""

    token_ids: tuple[int, ...]
    prefill_s: float
    num_timed: int
    decode_s: float

    @property
    def tokens_per_s(self) -> float | None:
        return ratio(self.num_timed, self.decode_s) if self.num_timed else None


def ready_with_stock(loaded: LoadedModel, progress: Progress = silent) -> PreTrainedModel:
    """Prepare `loaded`, and return the model as transformers made it, unaffected, over the same weights: an 8B target
    fits into memory only once.

    Its weights are the very tensors of `loaded`, or parts of them where projections were joined. Only weights that
    preparation gives a new layout, as on the CPU, exist twice. Call it before anything else uses `loaded.prepared`."""
    assert "prepared" not in loaded._attached, "a model that is ready has lost its stock modules"
    model = loaded.model
    originals = list(model.modules())
    # a copy with the weights would keep what `prepare` replaces
    memo: dict[int, object] = {id(weight): None for weight in model.parameters()}
    stock = copy.deepcopy(model, memo)
    loaded.make_ready(progress)
    for original in originals:
        twin = memo[id(original)]
        for name, weight in original._parameters.items():
            twin._parameters[name] = weight  # type: ignore[attr-defined]
    return stock


class _FirstTokens(StoppingCriteria):
    """Never stops: records when the first step of a `generate` was done, and the sequence's length then."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize
        self.done_at: float | None = None
        self.length = 0

    def __call__(self, input_ids: Tensor, scores: Any, **more: Any) -> Tensor:
        if self.done_at is None:
            self._synchronize()
            self.done_at, self.length = time.perf_counter(), input_ids.shape[1]
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


class Peers:
    """Ways of `generate` on `model`, a stock copy unaffected by `prepare`; `assistant`, another one, drafts for
    ASSISTED.

    Their generation settings are replaced, in place: without end tokens every run writes exactly the requested number
    of tokens, and without penalties the text that our lanes write. Each of `names` must be warmed (`warm`) before it is
    timed."""

    def __init__(
        self,
        model: PreTrainedModel,
        params: SamplingParams,
        names: Iterable[str],
        assistant: PreTrainedModel | None = None,
    ) -> None:
        self._model, self._params, self._kernels = model, params, choose(model.device)
        self._ways = {name: way for name, way in _ways(assistant).items() if name in names}
        for peer in (model, assistant):
            if peer is not None:
                peer.generation_config = GenerationConfig()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._ways)

    def warm(self, prompts: Sequence[Sequence[int]], num_new: int, progress: Progress = silent) -> list[str]:
        """Run every way once, untimed, on the longest prompt (a static cache then fits all of them, and nothing is
        compiled again); the compiled one writes its full length. Ways that do not work here are dropped; returns a
        sentence for each."""
        longest, notes = max(prompts, key=len), []
        for name in self.names:
            progress(f"warming up {name}" + (" (compiling takes a minute or more)" if name == COMPILED else ""), None)
            try:
                self.run(name, longest, num_new if name == COMPILED else min(num_new, WARM_TOKENS))
            except RaceError as error:
                del self._ways[name]
                notes.append(f"{name} was left out: {error}")
        return notes

    def run(self, name: str, prompt_ids: Sequence[int], num_new: int) -> Generated:
        """Write exactly `num_new` tokens. Raises RaceError for whatever transformers raises."""
        ids = torch.tensor([list(prompt_ids)], device=self._model.device)
        first = _FirstTokens(self._kernels.synchronize)
        try:
            with quiet(), torch.random.fork_rng(), torch.inference_mode(mode=name != COMPILED):
                torch.manual_seed(self._params.seed)
                self._kernels.synchronize()
                started = time.perf_counter()
                written: Any = self._model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    min_new_tokens=num_new,
                    max_new_tokens=num_new,
                    stopping_criteria=StoppingCriteriaList([first]),
                    **_sampling(self._params),
                    **self._ways[name],
                )
                self._kernels.synchronize()
                ended = time.perf_counter()
        except Exception as error:  # a compiler, a cache, an assistant: any of them may fail
            raise RaceError(f"transformers' generate failed: {in_a_line(error)}") from error
        assert first.done_at is not None
        token_ids = tuple(written[0, len(prompt_ids) :].tolist())
        num_later = len(prompt_ids) + len(token_ids) - first.length
        return Generated(token_ids, first.done_at - started, num_later, ended - first.done_at)

    @torch.inference_mode()
    def step_curve(self, position: int, rounds: int) -> dict[int, float]:
        """Median seconds of the stock model's own forward over each number of rows in WIDTHS, after `position` cached
        tokens: interleaved, after an untimed round. Each forward gets its own copy of the cache, since not every cache
        can be rolled back."""
        device, vocab_size = self._model.device, self._model.get_output_embeddings().weight.shape[0]
        ids = (torch.arange(position + max(WIDTHS), device=device) * 7919 % vocab_size)[None]
        past = DynamicCache(config=self._model.config)
        self._model(input_ids=ids[:, :position], past_key_values=past, use_cache=True)
        seconds: dict[int, list[float]] = {width: [] for width in WIDTHS}
        for round_ in range(rounds + 1):
            for width in WIDTHS:
                own = copy.deepcopy(past)
                self._kernels.synchronize()
                started = time.perf_counter()
                self._model(input_ids=ids[:, position : position + width], past_key_values=own, use_cache=True)
                self._kernels.synchronize()
                if round_:
                    seconds[width].append(time.perf_counter() - started)
        return {width: statistics.median(values) for width, values in seconds.items()}


def _ways(assistant: PreTrainedModel | None) -> Mapping[str, dict[str, Any]]:
    """Name -> arguments of `generate`."""
    compile_config = CompileConfig()
    compile_config._compile_all_devices = True  # else it does not compile on a CPU
    ways: dict[str, dict[str, Any]] = {
        EAGER: {},
        COMPILED: {"cache_implementation": "static", "compile_config": compile_config},
        PROMPT_LOOKUP: {"prompt_lookup_num_tokens": PROMPT_LOOKUP_TOKENS},
    }
    return ways if assistant is None else {**ways, ASSISTED: {"assistant_model": assistant}}


def _sampling(params: SamplingParams) -> dict[str, Any]:
    if params.temperature == 0:
        return {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
    return {"do_sample": True, "temperature": params.temperature, "top_k": params.top_k, "top_p": params.top_p}
