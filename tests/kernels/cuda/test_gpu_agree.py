"""Whole models on the Triton kernels, in Triton's interpreter: the same model as transformers', and deep in the cache,
where faults show that an empty cache hides, as on torch's kernels."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.core.errors import UnsupportedModel
from engine.kernels.cuda import attention, decoder
from engine.kernels.cuda.available import MOST_ROWS
from engine.layers import decoder as fused_decoder
from engine.runner import agreement as agree
from engine.runner.prepare import FAITHFUL_TOKENS, _check_faithful, prepare
from engine.runner.prepared import Prepared
from engine.runner.target import StaticTarget
from tests.helpers.gpu_kernels import TRITON
from tests.helpers.gpu_models import CHANGES, fresh, prepared
from tests.helpers.tiny import LENGTH, WINDOW, random_ids

HIDDEN = (0, 1)
DEPTH = 200  # Columns: four splits of 64, and more than a window
DEEPER = 300  # more than 8 bits can count, and of twice as many columns in all
RIGHT = [("qwen3", DEEPER, (MOST_ROWS,)), ("gemma3", DEPTH, (5,))]
attend, combine = attention.attend, attention._combine


class LosesSplits:
    """In the place of _combine: whatever splits from the second on found is lost."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launched(outs: Any, peaks: Any, *others: Any, **more: Any) -> None:
            peaks[..., 1:] = -torch.inf
            combine[grid](outs, peaks, *others, **more)

        return launched


def sees(more: int) -> Callable[..., Any]:
    """Attention whose window is wider by so many columns."""

    def wider(query: Any, keys: Any, values: Any, at: Any, window: int | None, *others: Any) -> Any:
        return attend(query, keys, values, at, window and window + more, *others)

    return wider


def of_eight_bits(query: Any, keys: Any, values: Any, at: Any, *others: Any) -> Any:
    return attend(query, keys, values, at % 256, *others)


FAULTS: dict[str, tuple[str, Any, str, Any]] = {
    "the sums of later splits are lost": ("qwen3", attention, "_combine", LosesSplits()),
    "a pointer of 8 bits": ("qwen3", decoder, "attend", of_eight_bits),
    "a window that is a column too wide": ("gemma3", decoder, "attend", sees(1)),
    "a window that is a column too narrow": ("gemma3", decoder, "attend", sees(-1)),
}


@pytest.fixture
def deep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agree, "DEPTHS", (DEPTH,))


def shallow_check(made: Prepared) -> None:
    """What a load compared before: rows in an empty cache, with the stock model's."""
    name = "gemma3" if "Gemma" in type(made.model).__name__ else "qwen3"
    model = fresh(name)
    ids = (torch.arange(FAITHFUL_TOKENS) * 7919 % model.config.vocab_size)[None, :MOST_ROWS]
    with torch.inference_mode():
        _check_faithful(made, ids[0].tolist(), model(input_ids=ids, use_cache=False).logits[0].float())


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_on_the_kernels_is_the_same_model(name: str) -> None:
    """Another model than transformers', by more than rounding: in its logits, or in its hidden states."""
    num_prefill, num = WINDOW + 3, WINDOW + 3 + 11
    target = StaticTarget(prepared(name), LENGTH, (3, 8), HIDDEN)
    ids = random_ids(num, target.vocab_size, 3)
    target.extend(ids[:num_prefill], 0)
    steps = [[x.clone().float() for x in target.extend(ids[i : i + n], n)] for i, n in ((19, 3), (22, 8))]
    references = []
    for dtype in (torch.float32, torch.bfloat16):
        with torch.inference_mode():
            out = fresh(name, dtype)(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)
        references.append((out.logits[0].float(), torch.cat([out.hidden_states[i][0] for i in HIDDEN], -1).float()))
    for ours, right, theirs in zip(map(torch.cat, zip(*steps, strict=True)), *references, strict=True):
        right, theirs = right[num_prefill:], theirs[num_prefill:]
        assert float((ours - right).abs().mean()) < 2 * float((theirs - right).abs().mean())


@pytest.mark.parametrize(("name", "depth", "widths"), RIGHT)
def test_kernels_that_are_right_agree_with_torch(
    name: str, depth: int, widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right kernels would be thrown out; or the check leave a model behind that is another one."""
    monkeypatch.setattr(agree, "DEPTHS", (depth,))
    monkeypatch.setattr(agree, "WIDTHS", widths)
    model = prepared(name).model
    kinds = [(path, type(module)) for path, module in model.named_modules()]
    report = agree.agreement(prepared(name))
    assert report == json.loads(json.dumps(report, allow_nan=False)) and report["agrees"]
    assert [(step["columns"], step["width"]) for step in report["steps"]] == [(depth, width) for width in widths]
    assert all(0 < step["worst"] < 0.6 for step in report["steps"]), report
    assert [(path, type(module)) for path, module in model.named_modules()] == kinds


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_shows_only_deep_down_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every width has it, so widths agree with one another: a race would prove another model's tokens equal."""
    name, where, what, wrong = FAULTS[fault]
    depth = DEEPER if wrong is of_eight_bits else DEPTH
    monkeypatch.setattr(agree, "DEPTHS", (depth,))
    made = prepared(name)
    monkeypatch.setattr(where, what, wrong)
    shallow_check(made)  # which sees nothing of it
    with pytest.raises(UnsupportedModel, match=f"over {depth} columns"):
        agree.check_agreement(made)


def test_transformers_own_decoder_is_compared_with_torchs_kernels(deep: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attention and linears are kernels too, and nobody would look at them deep in the cache."""
    monkeypatch.setattr(fused_decoder, "DECODERS", set())
    made = prepare(fresh("qwen3"), TRITON)
    assert made.kernels.triton and type(made.model.get_decoder()).__name__ == "Qwen3Model"
    assert agree.agreement(made)["agrees"]
    monkeypatch.setattr(attention, "_combine", LosesSplits())
    assert not agree.agreement(made)["agrees"]


def test_numbers_that_are_none_are_a_fault(deep: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN is greater than nothing, and would pass for right; and a report that holds it is no JSON."""
    monkeypatch.setattr(decoder, "attend", lambda *call: attend(*call) * torch.nan)
    report = agree.agreement(prepared("qwen3"))
    assert not report["agrees"] and report["steps"][0]["worst"] is None
    json.dumps(report, allow_nan=False)


def test_every_window_is_crossed_and_no_model_goes_beyond_its_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window's edge would be looked at nowhere; or angles be asked for that the model does not have."""
    monkeypatch.setattr(agree, "DEPTHS", (1017, 4089))
    made = prepared("gemma3")

    def depths(window: int, max_length: int) -> list[int]:
        monkeypatch.setattr(agree, "windows_of", lambda model: {0: window, 1: None})
        return agree._depths(replace(made, shape=replace(made.shape, max_length=max_length)))

    assert depths(512, 32768) == depths(4000, 32768) == [1017, 4089]
    assert depths(4096, 32768) == [1017, 4089, 4096 + agree.PAST_WINDOW]
    assert depths(4096, 4100) == [1017, 4084] and depths(2**20, 2**21) == [1017, 4089]
    assert depths(16, 512) == [496]
