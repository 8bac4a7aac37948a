"""Draft heads on the Triton kernels, in Triton's interpreter and on the stand-in for CUDA: torch's rows but for
rounding, whatever the head's form; the same bits however a sequence is taken in; few launches."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.core.events import Prompt
from engine.core.interfaces import Node
from engine.core.sampling.sampler import Sampler
from engine.core.spec import LaneSpec, RaceSpec, SamplingParams
from engine.drafters import head_drafter
from engine.drafters.device_heads import DeviceDFlashDrafter, DeviceEagle3Drafter, drafter_of
from engine.drafters.dflash import DFlashDrafter
from engine.drafters.eagle3 import Eagle3Drafter
from engine.exactness.widths import WidthClasses
from engine.heads.names import parse_name
from engine.kernels.cuda import graphs
from engine.kernels.cuda import linear as linears
from engine.kernels.cuda.kernels import CudaKernels
from engine.kernels.cuda.linear import GpuLinear
from engine.kernels.cuda.sample import pick_rows
from engine.kernels.cuda.tiles import Config
from engine.kernels.torch import Kernels, Notes
from engine.loading.load_head import load_head
from engine.progress import silent
from engine.runner.prepare import prepare
from engine.session import TorchRace, set_up
from tests.helpers.fake_cuda import CUDA, fake_cuda, on_cuda
from tests.helpers.gpu_kernels import TRITON
from tests.helpers.heads import (
    FORMS,
    PROMPT,
    SIZE,
    SLIDING,
    VOCAB,
    WIDTH_48,
    formats_target,
    hidden_rows,
    random_head,
    save,
    stock_target,
)
from tests.helpers.tiny import TORCH
from tests.helpers.trained import context

K = 5
ENDS, CHAIN = [50, 53], [5, 77]
IN_FLOAT16 = {"plain", "from the anchor, biases"}
BY_ROW = {"eagle3": Eagle3Drafter, "dflash": DFlashDrafter}
ON_DEVICE = {"eagle3": DeviceEagle3Drafter, "dflash": DeviceDFlashDrafter}
ZLAB = {"input_embedding_scale": 8.0, "output_multiplier": 0.5, "final_logit_softcapping": 2.0}
# Every field of a head's configuration that changes its arithmetic is in one of these.
EAGLE3: dict[str, dict[str, Any]] = {
    "plain": {},
    "all norms, fed back after the last, biases": {
        "config": {"norm_before_residual": False, "norm_before_fc": True, "fc_norm": True, "norm_output": True},
        "layers": {"attention_bias": True}, "own": VOCAB,
    },
    "the residual before the norm, layers that slide, normed queries": {
        "config": {"norm_before_residual": False}, "layers": {**SLIDING, "sliding_window": 5}, "qk_norm": True,
    },
    "another width, wide heads": {"layers": {**WIDTH_48, "head_dim": 32}, "own": VOCAB},
    "the target's output layer": FORMS["eagle3"]["the target's output layer"],
}  # fmt: skip
DFLASH: dict[str, dict[str, Any]] = {
    "windows from the block, causal, and a whole layer": FORMS["dflash"]["sliding"],
    "windows from the block": {**FORMS["dflash"]["sliding, bidirectional"], "own": VOCAB},
    "windows from the row, causal": {**FORMS["dflash"]["z-lab, sliding"], "config": ZLAB},
    "windows from the row": {
        "format": "zlab", "config": {"is_causal": False, "draft_vocab_size": 96},
        "layers": {**SLIDING, "sliding_window": 7},
    },
    "from the anchor, biases": {"config": {"sample_from_anchor": True}, "layers": {"attention_bias": True}},
}  # fmt: skip
CASES = [("eagle3", form) for form in EAGLE3] + [("dflash", form) for form in DFLASH]
# reshape: of rows that lie together
VIEWS = {
    "view", "reshape", "slice", "select", "unsqueeze", "squeeze", "expand", "alias", "transpose", "t",
    "detach", "split",
}  # fmt: skip
EMPTY = {"empty", "empty_like", "new_empty"}


@pytest.fixture(autouse=True)
def wide_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few programs: the interpreter takes as long for a small one."""
    monkeypatch.setattr(linears, "tile_of", lambda *unused: Config(64, 64, 4, 3))


@cache
def target(dtype: str = "bfloat16") -> Any:
    """A target whose heads run on the kernels, and itself on torch's."""
    loaded = formats_target.__wrapped__(dtype, TORCH)
    loaded._attached["prepared"] = replace(loaded.prepared, kernels=TRITON)
    return loaded


def head_of(kind: str, case: dict[str, Any], loaded: Any) -> Any:
    with TemporaryDirectory() as folder:
        name = f"{save(Path(folder), *random_head(kind, **case))}{case.get('option', '')}"
        return load_head(kind, parse_name(kind, name), loaded, silent)


def made(kind: str, form: str, dtype: str = "bfloat16") -> Any:
    return head_of(kind, (EAGLE3 if kind == "eagle3" else DFLASH)[form], target(dtype))


def both(kind: str, head: Any, loaded: Any) -> list[Any]:
    """A drafter on the kernels, and one on torch's, which pick row by row."""
    ours, theirs = (BY_ROW[kind](head, context(loaded, K, PROMPT, keep_logits=True)) for _ in range(2))
    assert ours._own is not None and ours.runs == "its head drafts by Triton"
    theirs._own = None
    return [ours, theirs]


def error_of(ours: Tensor, theirs: Tensor) -> Tensor:
    """The mean error of each row, in standard deviations of theirs."""
    return (ours.float() - theirs.float()).abs().mean(-1) / theirs.float().std(-1)


@torch.inference_mode()
def rows_of(drafter: Any, ends: Sequence[int], spoil: bool = False) -> Tensor:
    """Rows of logits after the prompt, which is taken in in parts that end at `ends`, by a prefill and by steps. spoil:
    what is not yet known after the prefill is garbage, and not even numbers in the cache."""
    known, buffers = ends[0], drafter.buffers
    hidden = hidden_rows(drafter, PROMPT, SIZE)
    assert hidden is not None
    drafter.prefill(PROMPT[:known], hidden[: known - 1])
    if spoil:
        buffers.hidden[known - 1 :], buffers.token_ids[known:] = 99, 99
        for side in (*buffers.keys, *buffers.values):
            side[:, :, known - 2 + isinstance(drafter, DFlashDrafter) :] = torch.nan
    for before, end in pairwise(ends):
        drafter.begin(PROMPT[:end], hidden[before - 1 : end - 1])
        rows, node = [drafter._rows_of([Node()]).clone()], Node()
    if isinstance(drafter, DFlashDrafter):
        return drafter._block_rows.clone()
    for token in CHAIN:
        node = Node((*node.path, token), parent=node)
        rows.append(drafter._rows_of([node]).clone())
    return torch.cat(rows)


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_rows_are_those_of_torch(kind: str, form: str) -> None:
    """A norm, a bias, an angle or a mask misread would only cost acceptance, and nobody would see it."""
    dtype = "float16" if form in IN_FLOAT16 else "bfloat16"
    ours, theirs = (rows_of(drafter, ENDS) for drafter in both(kind, made(kind, form, dtype), target(dtype)))
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype and torch.isfinite(ours).all()
    assert (error_of(ours, theirs) < 0.04).all(), error_of(ours, theirs)
    best, second = theirs.float().topk(2).values.unbind(-1)
    leads = best - second > 0.1 * theirs.float().std(-1)
    assert leads.any() and torch.equal(ours.argmax(-1)[leads], theirs.argmax(-1)[leads])


@pytest.mark.parametrize("kind", BY_ROW)
def test_a_rows_bits_are_its_own(kind: str) -> None:
    """What a rejected draft left behind would change the next one; or a draft depend on how steps were cut."""
    drafter, _ = both(kind, made(kind, next(iter(EAGLE3 if kind == "eagle3" else DFLASH))), target())
    whole = rows_of(drafter, [48, 53])
    assert torch.equal(rows_of(drafter, [48, 51, 53], spoil=True), whole)


@torch.inference_mode()
def test_a_chain_goes_on_as_a_catch_up_does() -> None:
    """What is fed back would not be the row that was computed, or lie at another place."""
    drafter, _ = both("eagle3", made("eagle3", "plain"), target())
    drafter._own._fc = lambda states: states[:, :SIZE].contiguous()  # states are taken as they are
    rows_of(drafter, [51, 53])
    first, token = len(PROMPT) - 2, CHAIN[0]
    drafter.buffers.token_ids[len(PROMPT)] = token
    drafter._write.send((first, 0, first, 0, 0))
    drafter._catch_up_step(1)
    drafter.buffers.hidden[first + 1, :SIZE] = drafter._fed[0, 0]
    drafter._token.fill_(token)
    drafter._pointer.add_(1)
    chained = drafter._chain_step().clone()
    drafter._write.send((first, 1, 0, 0, 0))
    assert torch.equal(drafter._catch_up_step(2), chained)


# On the stand-in for CUDA


@contextmanager
def gpu(run_kernels: bool = False) -> Iterator[tuple[Any, Any]]:
    """The device, and the target of these heads on it, itself on torch's kernels."""
    with fake_cuda(run_kernels) as device:
        model = on_cuda(stock_target.__wrapped__("bfloat16").requires_grad_(False))
        prepared = replace(prepare(model, Kernels(CUDA)), kernels=CudaKernels(CUDA, torch.bfloat16, against=""))
        yield device, replace(target(), model=model, _attached={"prepared": prepared})


def drafter_on(loaded: Any, head: Any, temperature: float = 0.8, k: int = 3) -> Any:
    here = context(loaded, k, PROMPT, temperature)
    return drafter_of(head, replace(here, sample=Sampler(here.params, VOCAB, loaded.prepared.kernels)))


def launches(names: Sequence[str]) -> Counter[str]:
    """What a graph launches: neither views nor memory."""
    short = (name.removeprefix("aten.").partition(".")[0] for name in names)
    return Counter(name for name in short if name not in VIEWS | EMPTY)


def proposed(drafter: Any) -> list[tuple[int, ...]]:
    """Drafts after steps that took in the rest of a prompt."""
    hidden, drafts = hidden_rows(drafter, PROMPT, SIZE), []
    assert hidden is not None
    hidden = hidden.to(drafter.buffers.hidden)
    drafter.prefill(PROMPT[:48], hidden[:47])
    for before, end in ((48, 49), (49, 53)):
        draft = drafter.propose(PROMPT[:end], hidden[before - 1 : end - 1] if end > before else None, 3)
        drafts.append(draft.token_ids)
    return drafts


@pytest.mark.parametrize("kind", BY_ROW)
def test_drafts_on_the_device_are_those_picked_row_by_row(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a graph leaves for the next would be lost, or a draft's tokens have each other's places or noise."""
    monkeypatch.setattr(graphs, "WARM_UPS", 0)
    monkeypatch.setattr(head_drafter, "ROWS", (1,))
    case = {"config": {"draft_vocab_size": 96}}
    expected = proposed(drafter_on(target(), head_of(kind, case, target())))
    with gpu(run_kernels=True) as (_, loaded):
        drafter = drafter_on(loaded, head_of(kind, case, loaded))
        assert type(drafter) is ON_DEVICE[kind] and "Triton" in drafter.runs
        assert proposed(drafter) == expected
        assert len(set(expected)) > 1 and all(len(draft) == 3 for draft in expected)


@pytest.mark.parametrize(("norm_output", "most"), [(False, 11), (True, 12)])
def test_a_chained_token_takes_few_launches(norm_output: bool, most: int) -> None:
    """A draft would wait for launches, a fifth of a step, and only a GPU would tell."""
    with gpu() as (device, loaded):
        drafter_on(loaded, head_of("eagle3", {"config": {"norm_output": norm_output}}, loaded))
        counted = launches(device.captured[-1])
        assert sum(counted.values()) <= most and counted["linear_rows"] == 5, counted
        caught_up = launches(device.captured[-2])
        assert sum(caught_up.values()) <= 18 and caught_up["linear_rows"] == 6, caught_up


def test_a_layer_of_a_block_takes_few_launches() -> None:
    """The same; and a context's keys and values would take more than one linear and one placing."""
    with gpu() as (device, loaded):
        counted = []
        for num in (1, 3):
            drafter_on(loaded, head_of("dflash", {"layers": {"num_hidden_layers": num}}, loaded))
            counted.append(launches(device.captured[-1]))
        more = counted[1] - counted[0]
        assert more == {"linear_rows": 2 * 5, "_place": 2 * 2, "_attend": 2, "_combine": 2}
        assert sum(counted[0].values()) <= 21, counted[0]


def test_picks_are_noted_where_a_draft_reads_them() -> None:
    """A row that is not numbers would be drafted from, or a warm-up write beyond the draft."""
    rows = torch.tensor([[0.0, 2.0, 1.0], [0.0, torch.nan, 3.0], [5.0, 0.0, 0.0]])
    place, picked, ids, token = torch.tensor([1]), torch.zeros(2, 3, dtype=torch.long), torch.tensor([7, 8, 9]), None
    given = torch.arange(3, dtype=torch.int32), torch.zeros(9, 2, dtype=torch.int32), 0.0
    looked_up, margins = pick_rows(rows[:2], *given, Notes(place, place, picked, ids, token, None))
    assert looked_up.tolist() == [8, 7] and picked[0].tolist() == [0, 8, -1]
    assert picked[1, 1:].int().view(torch.float32).tolist() == margins.tolist() and float(margins[0]) == 1
    token, moved = torch.tensor([0]), torch.tensor([5, 2])
    for at in (2, 3):
        pick_rows(rows[2:], *given, Notes(moved[1:], place, picked, None, token, moved))
        assert moved.tolist() == [4 + at, at + 1] and token.tolist() == [0] and picked[0].tolist() == [0, 8, 0]


def test_a_head_that_does_not_fit_drafts_by_torch_and_says_why() -> None:
    """It would be computed wrongly, or slowly and nobody would know."""
    says = "its head drafts by torch: "
    narrow, wide = head_of("eagle3", {"layers": {"head_dim": 24}}, target()), made("eagle3", "plain")
    drafters = {
        "its attention heads have 24 numbers, not a multiple of 16 up to 256": drafter_on(target(), narrow),
        "it takes 17 rows at once, more than 16": drafter_on(target(), wide, k=16),
        "a row of its block would not see all of it, by a window of 4": drafter_on(
            target(), head_of("dflash", FORMS["dflash"]["z-lab, sliding, bidirectional"], target()), k=K
        ),
    }
    for why, drafter in drafters.items():
        assert drafter._own is None and drafter.runs == says + why
    assert "float32" in drafter_on(target("float32"), head_of("eagle3", {}, target("float32"))).runs
    wide.layers[0].mlp.act_fn = nn.ReLU()
    assert "its activation is" in drafter_on(target(), wide).runs


def test_a_borrowed_output_layer_is_the_targets_at_present() -> None:
    """After a fault of a kernel the head would go on running it."""
    with gpu() as (device, loaded):
        loaded.prepared.kernels.install(loaded.model)
        head = head_of("dflash", {}, loaded)
        assert type(head.output) is GpuLinear is type(drafter_on(loaded, head)._own._output)
        assert loaded.step_down("it failed")
        assert type(head.output) is nn.Linear and head.output is loaded.model.get_output_embeddings()
        drafter = drafter_on(loaded, head)
        assert len(proposed(drafter)) == 2 and drafter.runs == ""
        assert not {"linear_rows", "_attend", "_place"} & set(device.captured[-1])


@pytest.mark.usefixtures("narrow")
def test_what_runs_a_head_is_in_the_races_header(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whose head does not fit would not learn why it is slow."""
    monkeypatch.setattr(graphs, "WARM_UPS", 1)
    monkeypatch.setattr(set_up, "probe_cached", lambda *unused: WidthClasses(((1,), (4,))))
    with gpu() as (_, loaded):
        case = FORMS["dflash"]["z-lab, sliding, bidirectional"]
        folder = save(tmp_path / "head", *random_head("dflash", **case))
        lanes = (LaneSpec("baseline", width=4), LaneSpec("drafted", drafter=f"dflash:{folder}", k=3, width=4))
        race = TorchRace(loaded, RaceSpec(lanes, SamplingParams(max_new_tokens=4)), Prompt("", tuple(PROMPT)))
        assert "; lane drafted: its head drafts by Triton" in race.header()["runs"]["sentence"]
