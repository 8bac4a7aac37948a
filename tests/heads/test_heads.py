"""Reading heads: files, names, options, vocabularies, and formats as they are published."""

import json
from dataclasses import replace

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import UsageError
from engine.heads.build_head import build
from engine.heads.compact import with_output
from engine.heads.names import HeadName, parse_name
from engine.heads.shapes import OUTPUT
from engine.loading.load_head import load_head, read_tensors
from engine.loading.loading import DEFAULT_TARGET
from engine.progress import silent
from engine.training.new_head import save_head
from tests.helpers.heads import HEADS, SIZE, VOCAB, config_for, formats_target, made, random_head, save, spec_in
from tests.helpers.trained import context, trained


def test_weights_in_several_files_are_one_head(tmp_path):
    """Only the first part of a large head would be read, or none of one with NeMo's prefix."""
    config, whole = random_head("eagle3")
    folder = save(tmp_path, config, {})
    (folder / "model.safetensors").unlink()
    save_torch_state_dict({f"model.{name}": value for name, value in whole.items()}, folder, max_shard_size=100_000)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    read = read_tensors(folder)
    assert set(read) == set(whole) and all(torch.equal(read[n], whole[n]) for n in whole)


# --- names and options


@given(
    st.sampled_from(["a/b", "./x", ""]),
    st.lists(st.integers(0, 9999), max_size=4),
    st.sampled_from(["", "causal", "bidirectional"]),
)
def test_options_come_back(source, aux, mask):
    """An option would be lost on the way."""
    options = [o for o in ("aux=" + ",".join(map(str, aux)) if aux else "", mask) if o]
    name = parse_name("dflash", source + ("#" + "&".join(options) if options else ""))
    causal = {"": None, "causal": True, "bidirectional": False}[mask]
    assert (name.source, name.aux, name.causal) == (source, tuple(aux), causal)


@pytest.mark.parametrize("kind", HEADS)
def test_without_an_argument_only_the_default_target_has_a_head(kind):
    """The default target's head would be put on any other."""
    words = f"needs a head for 'formats/target' after a colon, as in {kind}:owner/name.*only {DEFAULT_TARGET}"
    with pytest.raises(UsageError, match=words):
        made(kind, formats_target(), 3)


def test_a_head_is_loaded_once_for_a_target():
    """Every lane of every race would read it again."""
    one, two = (made(f"eagle3:{HEADS['eagle3']}", trained(), 3) for _ in range(2))
    assert one.head is two.head and one is not two
    assert made(f"eagle3:{HEADS['eagle3']}#aux=1,2,5", trained(), 3).head is not one.head


def test_a_copy_of_the_targets_embedding_is_not_kept(tmp_path):
    """A head for a large vocabulary would hold a gigabyte twice."""
    embedding = formats_target().model.get_input_embeddings().weight
    for i, (rows, kept) in enumerate([(embedding, False), (embedding + 1, True)]):
        config, tensors = random_head("eagle3")
        folder = save(tmp_path / str(i), config, {**tensors, "embed_tokens.weight": rows})
        head = load_head("eagle3", parse_name("eagle3", str(folder)), formats_target(), silent)
        assert (head.embed_tokens is not None) == kept
        assert torch.equal(head.embed(torch.tensor([5])), rows[5:6])


# --- formats, as they are published


NAMED = {"eagle_aux_hidden_state_layer_ids": [1, 2, 4]}
NVIDIAS = {"eagle_aux_hidden_state_layer_ids": [], "parallel_draft_step": 1, "use_mtp_layernorm": False}
UNUSED = {"sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28, "target_model_type": "x"}


@pytest.mark.parametrize(
    ("more", "layers"),
    [
        # the authors' own heads name no EAGLE, and one of them as many layers as its target has
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 40}, (2, 3, 3)),
        ({}, (2, 3, 3)),
        ({"model_type": "qwen2"}, (2, 3, 3)),  # SpecForge's for QwQ: the architecture says what the layers are
        ({"eagle_config": {**NAMED, "use_aux_hidden_state": True, "next_layer_regular": True}}, (2, 3, 5)),
        ({"eagle_config": NVIDIAS}, (2, 3, 3)),
        (NAMED, (1, 2, 4)),
        ({"architectures": ["Qwen3Eagle3Model"], "target_layer_ids": [1, 2, 4]}, (2, 3, 5)),  # DeepSpec's
        (UNUSED, (2, 3, 3)),
    ],
)
def test_layer_ids_of_original_heads(more, layers, tmp_path):
    """Hidden states one layer off would cost most of the acceptance, and show nowhere."""
    (tmp_path / "config.json").write_text(json.dumps(config_for("original", more)))
    spec = spec_in(tmp_path, "eagle3")
    assert spec.hidden_layers == layers and spec.windows == [None] and spec.layers.model_type == "llama"
    assert spec_in(tmp_path, "eagle3", HeadName(aux=(0, 6, 1))).hidden_layers == (0, 6, 1)


# --- vocabularies


@pytest.mark.parametrize(("num_rows", "expected"), [(VOCAB, None), (VOCAB + 40, None), (VOCAB - 40, VOCAB - 40)])
@pytest.mark.parametrize("zeros", [True, False])
def test_a_padded_vocabulary(num_rows, expected, zeros, tmp_path):
    """Heads whose tables were padded otherwise than the target's would be refused, or propose what is no token."""
    vocab = {"draft_vocab_size": num_rows}, {"vocab_size": num_rows}
    head_file = random_head("eagle3", config=vocab[0], layers=vocab[1], own=num_rows, without=("d2t", "t2d"))
    head_file.tensors.update({"d2t": torch.zeros(num_rows, dtype=torch.long)} if zeros else {})
    save(tmp_path / "head", *head_file)
    head = build(spec_in(tmp_path / "head", "eagle3"), read_tensors(tmp_path / "head"), SIZE, VOCAB)
    assert head.lm_head.out_features == min(num_rows, VOCAB) and head.embed_tokens is not None
    assert head.embed_tokens.num_embeddings >= VOCAB
    assert head.target_ids is None if expected is None else torch.equal(head.target_ids, torch.arange(expected))


@pytest.mark.parametrize("kind", HEADS)
def test_kept_logits_are_of_the_heads_words(kind, tmp_path):
    """The rejection rule would divide by the odds of words that the head cannot draft."""
    few_words = random_head(kind, config={"draft_vocab_size": 96})
    text, ids = f"{kind}:{save(tmp_path / 'head', *few_words)}", torch.arange(96) + few_words.tensors["d2t"]
    for temperature in (0.0, 0.9):
        drafter = made(text, formats_target(), 4, temperature=temperature, keep_logits=True)
        drafter.prefill([1, 2, 3], torch.randn(2, 3 * SIZE))
        draft = drafter.propose([1, 2, 3], None, 4)
        assert draft.logits.shape == (4, VOCAB)
        assert torch.equal(draft.logits.isfinite(), torch.zeros(4, VOCAB, dtype=torch.bool).index_fill_(1, ids, True))
        assert all(row[token].isfinite() for row, token in zip(draft.logits, draft.token_ids, strict=True))
        sample = context(formats_target(), 4, temperature=temperature).sample
        own = tuple(sample(row, i) for i, row in enumerate(draft.logits))
        assert draft.token_ids == own, "the target's own noise at those places"
        rows = draft.logits.clone()
        later = drafter.propose([1, 2, 3, 4, 5], torch.randn(2, 3 * SIZE), 4)
        assert torch.equal(draft.logits, rows)
        assert later.token_ids == tuple(sample(row, 2 + i) for i, row in enumerate(later.logits))
        assert made(text, formats_target(), 4).propose([1], None, 0).logits is None


@pytest.mark.parametrize("auto_k", [True, False])
def test_a_long_k_takes_what_the_block_holds(tmp_path, auto_k):
    """A head would be refused where a wide step may pay, or asked for more than its block."""
    folder = save(tmp_path / "head", *random_head("dflash", config={"block_size": 4}))
    drafter = made(f"dflash:{folder}", formats_target(), 7, auto_k=auto_k)
    drafter.prefill([1, 2], torch.randn(1, 3 * SIZE))
    assert drafter.max_k == 3 and len(drafter.propose([1, 2], None, 7).token_ids) == 3


# Compact heads: 8 bits, without the target's own output rows


@pytest.mark.parametrize("kind", HEADS)
def test_a_compact_head_is_the_head(kind, tmp_path):
    """What ships would draft otherwise than what was trained: other words, weights off by more than 8 bits, or divided
    by 0, norms off by more than 16, or the target's output rows in the place of trained ones."""
    folder = save(tmp_path / "head", *random_head(kind, config={"draft_vocab_size": 96}))
    head = build(spec_in(folder, kind), read_tensors(folder), SIZE, VOCAB)
    embedding = formats_target().model.get_input_embeddings().weight
    head.lend(embedding)
    head.lm_head.weight.data.copy_(embedding[head.target_ids])
    head.fc.weight.data[0] = 0
    save_head(head, tmp_path / "whole", "t", 3)
    save_head(head, tmp_path / "compact", "t", 3, compact=True)
    size = {name: (tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "compact")}
    spec = spec_in(tmp_path / "compact", kind)
    tensors = read_tensors(tmp_path / "compact")
    assert replace(spec, layers=head.spec.layers) == replace(head.spec, tied_output=True) and OUTPUT not in tensors
    assert size["compact"] < 0.6 * size["whole"]
    again = build(spec, with_output(tensors, spec, embedding), SIZE, VOCAB)
    whole = dict(head.named_parameters())
    assert again.target_ids.tolist() == head.target_ids.tolist()
    assert torch.equal(again.lm_head.weight.bfloat16(), whole.pop(OUTPUT).bfloat16())
    for name, value in whole.items():
        step = value.abs().amax(-1, keepdim=True) / 127 if value.dim() == 2 else 0
        error = (again.get_parameter(name).float() - value).abs()
        assert bool((error <= 0.51 * step + 0.008 * value.abs()).all()), name
    head.lm_head.weight.data += 0.1
    save_head(head, tmp_path / "trained", "t", 3, compact=True)
    spec = spec_in(tmp_path / "trained", kind)
    assert not spec.tied_output and OUTPUT in with_output(read_tensors(tmp_path / "trained"), spec, embedding)
