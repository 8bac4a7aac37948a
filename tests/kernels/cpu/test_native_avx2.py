"""A processor with AVX2 only: steps are compiled there too, and what is not does without."""

from __future__ import annotations

import pytest
import torch

from engine.choice.sampler import Sampler
from engine.drafters.device_heads import drafter_of
from engine.drafters.dflash import DFlashDrafter
from engine.drafters.eagle3 import Eagle3Drafter
from engine.kernels.cpu.build import has, library
from engine.kernels.cpu.decoder import NativeDecoder
from engine.kernels.cpu.linear import NativeLinear
from engine.spec import SamplingParams
from tests.helpers.head_files import save
from tests.helpers.head_fixtures import context, formats_target, made
from tests.helpers.native_heads import PROMPT, drafter, head_of, rows_of
from tests.helpers.native_kernels import needs_kernels, on, prepared, random
from tests.helpers.random_heads import DFLASH, LAYERS, dflash_tensors
from tests.helpers.tiny import PACKED

pytestmark = needs_kernels
ONLY_AVX512 = (
    "photofinish_choose",
    "photofinish_picks",
    "photofinish_head",
    "photofinish_block",
    "photofinish_pack_bytes",
)


def test_steps_are_there_and_some_others_are_not():
    """Asked for what is not there, a race would end with an error of ctypes."""
    here = {name for name in (*ONLY_AVX512, "photofinish_forward") if has(name)}
    with on("AVX2"):
        assert [name for name in ONLY_AVX512 if has(name)] == [] and has("photofinish_forward")
        assert isinstance(prepared("gemma3", "AVX2").model.get_decoder(), NativeDecoder)
    assert here == {name for name in (*ONLY_AVX512, "photofinish_forward") if hasattr(library(), name)}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_tokens_are_chosen_without_kernels(temperature):
    """The same tokens on every machine, and those of drafts too."""
    params, rows = SamplingParams(temperature, seed=3), random(4, 300, spread=3.0)
    with on("AVX2"):
        ids = torch.arange(300)
        assert PACKED.picks(ids, params) is None
        sampler = Sampler(params, 300, PACKED)
    assert sampler.at_once(rows[:1], (), 0) == []
    usual, usual_picks = Sampler(params, 300, PACKED), PACKED.picks(ids, params)
    for position, row in enumerate(rows):
        token, margin = sampler.with_margin(row, position)
        assert sampler(row, position) == token == usual(row, position)
        if usual_picks is not None:
            assert usual_picks(row, 1, position) == [(token, pytest.approx(margin, rel=1e-3, abs=1e-3))]


def test_heads_draft_by_torch(tmp_path):
    """A head that is packed for kernels that are not there could not be called at all."""
    assert formats_target("bfloat16").prepared.kernels.name == "cpu"  # by this machine's kernels: others use it too
    expected = rows_of(drafter(head_of(tmp_path, "speculators", False), False, 64), [3], [5, 500])
    with on("AVX2"):
        head = head_of(tmp_path, "speculators", True)
        assert {type(linear) for linear in (head.fc, head.layers[0].self_attn.o_proj, head.layers[0].mlp.gate_up)} == {
            NativeLinear
        }
        one = drafter_of(head, context(formats_target("bfloat16"), 64, PROMPT))
        assert type(one) is Eagle3Drafter
        found = rows_of(one, [3], [5, 500])
    for a, b in zip(found, expected, strict=True):
        assert float((a.float() - b.float()).abs().mean()) < 0.08 * float(b.float().std())


def test_blocks_are_drafted_by_torch(tmp_path):
    """As above, of a DFlash head."""
    layers = {**LAYERS, "model_type": "qwen3", "head_dim": 32}
    folder = save(tmp_path / "head", {**DFLASH, "transformer_layer_config": layers}, dflash_tensors(layers, DFLASH))
    with on("AVX2"):
        one = made(f"dflash:{folder}", formats_target("bfloat16"), 4)
        assert type(one) is DFlashDrafter and type(one.head.fc) is NativeLinear
        one.prefill(PROMPT, torch.randn(len(PROMPT) - 1, one.head.fc.in_features).bfloat16())
        assert len(one.propose(PROMPT, None, 4).token_ids) == 4
