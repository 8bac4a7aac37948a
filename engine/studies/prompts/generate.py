"""transformers' own `generate` on the prompts of a study, plain and with its prompt lookup, so that a reader can check
that the plain lane is no slow baseline."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import StoppingCriteria, StoppingCriteriaList

from ...analysis.metrics import lane_metrics, ratio
from ...core.errors import RaceError, in_a_line
from ...core.events import LaneEvent, token_ids
from ...core.spec import PLAIN, SamplingParams
from ...kernels.choose import choose
from ...progress import Progress, quiet

if TYPE_CHECKING:
    from ...loading.loading import LoadedModel

WAYS: dict[str, dict[str, Any]] = {"generate": {}, "prompt lookup": {"prompt_lookup_num_tokens": 7}}
WARM_TOKENS = 8


class Generate:
    """`generate` on a model as transformers made it, unaffected by what the engine does to it, over the same weights:
    an 8B target fits into memory only once.

    Its generation settings are replaced: without end tokens every run writes exactly the requested number of tokens,
    and without penalties the text that our lanes write."""

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self.model: PreTrainedModel

    def make_ready(self, loaded: LoadedModel, progress: Progress) -> None:
        """Prepare `loaded`, and keep its stock modules; call it before anything else uses `loaded.prepared`.

        Their weights are the very tensors of `loaded`, or parts of them where projections were joined. Only weights
        that preparation gives a new layout, as on the CPU, exist twice."""
        assert "prepared" not in loaded._attached, "a model that is ready has lost its stock modules"
        originals = list(loaded.model.modules())
        # a copy with the weights would keep what `prepare` replaces
        memo: dict[int, object] = {id(weight): None for weight in loaded.model.parameters()}
        self.model = copy.deepcopy(loaded.model, memo)
        self.model.generation_config = GenerationConfig()
        loaded.make_ready(progress)
        for original in originals:
            twin = memo[id(original)]
            for name, weight in original._parameters.items():
                twin._parameters[name] = weight  # type: ignore[attr-defined]

    def peers(self, events: Sequence[LaneEvent], prompt_ids: Sequence[int]) -> list[dict[str, Any]]:
        """`Row.peers`: each of WAYS against the plain lane of a race that was just run, on the same prompt, over as
        many tokens, warmed up like every lane."""
        written, plain_speed = token_ids(events, PLAIN), lane_metrics(events, PLAIN).tokens_per_s
        peers: list[dict[str, Any]] = []
        for name in WAYS:
            try:
                self.run(name, prompt_ids, min(WARM_TOKENS, len(written)))
                own, speed = self.run(name, prompt_ids, len(written))
                same = own == written if self._params.temperature == 0 else None  # its noise is not ours
                peers.append({"name": name, "speed": ratio(speed, plain_speed), "same": same, "fault": ""})
            except RaceError as error:
                peers.append({"name": name, "speed": None, "same": None, "fault": str(error)})
        return peers

    def run(self, name: str, prompt_ids: Sequence[int], num_new: int) -> tuple[list[int], float | None]:
        """Write exactly `num_new` tokens; returns them, and tokens per second. Prefill ends with the step of the first
        token (with drafts, the first tokens): neither its time nor its tokens count, and if all came with it, there is
        no rate. Raises RaceError for whatever transformers raises."""
        kernels, ids = choose(self.model.device), torch.tensor([list(prompt_ids)], device=self.model.device)
        first = _FirstTokens(kernels.synchronize)
        try:
            with quiet(), torch.random.fork_rng(), torch.inference_mode():
                torch.manual_seed(self._params.seed)
                written: Any = self.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    min_new_tokens=num_new,
                    max_new_tokens=num_new,
                    stopping_criteria=StoppingCriteriaList([first]),
                    **_sampling(self._params),
                    **WAYS[name],
                )
                kernels.synchronize()
                ended = time.perf_counter()
        except Exception as error:  # a cache, a model without a way back: any of them may fail
            raise RaceError(f"transformers' generate failed: {in_a_line(error)}") from error
        num_later = written.shape[1] - first.length
        return written[0, len(prompt_ids) :].tolist(), ratio(num_later, ended - first.done_at) or None


class _FirstTokens(StoppingCriteria):
    """Never stops anything: records when the first step of a `generate` was done, and the sequence's length."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize
        self.done_at, self.length = 0.0, 0

    def __call__(self, input_ids: Tensor, scores: Any, **more: Any) -> Tensor:
        if not self.length:
            self._synchronize()
            self.done_at, self.length = time.perf_counter(), input_ids.shape[1]
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def _sampling(params: SamplingParams) -> dict[str, Any]:
    if params.temperature == 0:
        return {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
    return {"do_sample": True, "temperature": params.temperature, "top_k": params.top_k, "top_p": params.top_p}
