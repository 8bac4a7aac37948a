"""Which models are served: right, or refused in words; never another model than the one named."""

from types import SimpleNamespace

import pytest
import torch

from engine.core.errors import RaceError, UnsupportedModel, UsageError
from engine.core.events import Prompt
from engine.core.spec import MAX_K, SamplingParams
from engine.layers.attention import shape_of
from engine.layers.decoder import FusedDecoder
from engine.runner.prepare import prepare
from engine.runner.target import StaticTarget
from engine.session.set_up import check_fits
from tests.helpers.families import FAMILIES, of_family
from tests.helpers.tiny import CONFIGS, LENGTH, NAMES, WINDOW, build, prepared, random_ids

REFUSED = {"gemma 2": "softcap", "bloom": "interface", "gpt neo": "interface", "deepseek v3": "latent"}
REFUSED |= {"olmo hybrid": "linear attention in layer 0 of a kind", "bamba": "recurrent layers"}
REFUSED["modernbert decoder"] = "output layer"
SERVED = {"cohere", "gemma", "gemma 3 with a cap on its logits", "gpt2", "granite", "llama, yarn", "mixtral", "olmo 3"}
SERVED |= {"llama, dynamic rope", "phi 3, long", "afmoe", "phi 3", "qwen 2", "gpt-oss", "granite with sinks"}
SERVED |= {"hunyuan with experts", *(name for name in FAMILIES if name.startswith("qwen 3"))}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_model_is_served_right_or_refused_in_words(family):
    """A model that does what this engine ignores would be raced as another one; or its refusal be a traceback."""
    model = of_family(family)
    ids = random_ids(80, 200)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, 40:]
    try:
        target = StaticTarget(prepare(model), LENGTH, (8,))
    except UnsupportedModel as error:
        kind = FAMILIES[family][0].partition("For")[0]
        assert family not in SERVED and REFUSED.get(family, "") in str(error) and kind in str(error)
        return
    assert family not in REFUSED
    target.extend(ids[:40], 0)
    rows = torch.cat([target.extend(ids[i : i + 8], 8)[0].clone() for i in range(40, 80, 8)])
    torch.testing.assert_close(rows, logits, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("family", ["phi 3, long", "llama, dynamic rope"])
def test_a_race_ends_before_its_angles_move(family):
    """A longer one would turn keys by other angles than the stock model's; so would a step's padding."""
    model = of_family(family)

    def first_rows(length: int) -> torch.Tensor:
        with torch.inference_mode():
            return model(input_ids=torch.tensor([random_ids(length, 200)]), use_cache=False).logits[0, :9]

    limit = shape_of(model).max_length
    short, full, moved = (first_rows(limit + MAX_K + more) for more in (-50, 1, 100))
    torch.testing.assert_close(full, short, atol=1e-5, rtol=0)
    assert not torch.allclose(moved, short, atol=1e-5)
    long, ready = Prompt("", tuple(random_ids(limit - 4, 200)), False), prepare(model)
    check_fits(ready, SimpleNamespace(params=SamplingParams(max_new_tokens=4)), long)
    with pytest.raises(UsageError, match="angles"):
        check_fits(ready, SimpleNamespace(params=SamplingParams(max_new_tokens=5)), long)


@pytest.mark.parametrize("name", NAMES)
def test_the_promised_architectures_are_served(name):
    """Preparing would refuse, misread the cache's shape, or fuse no layers: each step costs nearly twice as much."""
    config, shape = CONFIGS[name][1], prepared(name).shape
    assert shape.num_layers == config.num_hidden_layers and shape.head_dim == config.head_dim
    assert shape.num_kv_heads == config.num_key_value_heads
    assert shape.groups * shape.num_kv_heads == config.num_attention_heads
    assert (WINDOW in shape.windows) == (name in ("gemma3", "mistral"))
    assert isinstance(prepared(name).model.get_decoder(), FusedDecoder)


@pytest.mark.parametrize("where", ["everywhere", "at the first token", "in the engine's steps"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_is_not_a_number_is_named_before_a_race(dtype, where):
    """NaN is above no limit: the model would race, and its lanes fail; or be refused for another reason, or without the
    dtype to choose. The largest numbers of many models come of the token that begins every text."""
    model = build(*CONFIGS["llama"], getattr(torch, dtype))
    model.config.bos_token_id = 3
    layer, stock_forward = model.model.layers[1].self_attn, model.model.layers[1].self_attn.forward
    if where == "at the first token":
        model.get_input_embeddings().weight.data[3] = torch.nan
    elif where == "everywhere":
        model.model.layers[1].mlp.down_proj.weight.data.fill_(torch.inf)
    else:
        layer.forward = lambda *given, **more: (
            stock_forward(*given, **more)[0] * (torch.nan if "state" in more else 1),
            None,
        )
    advice = "choose dtype float32 or bfloat16" if dtype == "float16" else "damaged|those of the stock model are"
    with pytest.raises(RaceError, match=rf"{dtype}: the model's logits are not numbers \(NaN\).*({advice})"):
        prepare(model)


def test_words_that_a_model_leaves_out_are_no_fault():
    """A masked vocabulary would be called damaged weights: the difference of two infinities is NaN."""
    model = build(*CONFIGS["llama"])
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(model.lm_head.out_features))
    model.lm_head.bias.data[-3:] = -torch.inf
    rows = StaticTarget(prepare(model), LENGTH, (8,)).extend(random_ids(8, 200), 8)[0]
    assert rows.isneginf().sum(-1).tolist() == [3] * 8
