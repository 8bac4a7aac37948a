"""Reading heads: files, names, options, vocabularies, and formats as they are published."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import drafters
from engine.errors import UsageError
from engine.heads.build import build
from engine.heads.formats import read_spec, read_tensors
from engine.heads.loading import load_head
from engine.heads.names import parse_name
from engine.heads.vocabulary import draft_ids
from engine.models.loading import DEFAULT_TARGET
from engine.progress import silent
from tests.helpers import ROOT
from tests.helpers.head_files import config_of, published, save, tensors_of
from tests.helpers.head_fixtures import HEADS, NUM_LAYERS, SIZE, VOCAB, context, formats_target, made, trained_target
from tests.helpers.random_heads import LAYERS, ORIGINAL, SPECULATORS, TENSORS, dflash_tensors, drawn, eagle3_tensors


def test_weights_in_several_files_are_one_head(tmp_path):
    """Only the first part of a large head would be read."""
    whole = TENSORS["eagle3"]
    folder = save(tmp_path / "head", SPECULATORS["eagle3"], whole)
    (folder / "model.safetensors").unlink()
    names = sorted(whole)
    for part, chosen in enumerate((names[::2], names[1::2])):
        shutil.move(
            save(tmp_path / f"part{part}", {}, {n: whole[n] for n in chosen}) / "model.safetensors",
            folder / f"model-{part}.safetensors",
        )
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {n: f"model-{i % 2}.safetensors" for i, n in enumerate(names)}})
    )
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
    assert (name.source, name.aux, name.causal) == (
        source,
        tuple(aux),
        {"": None, "causal": True, "bidirectional": False}[mask],
    )


@pytest.mark.parametrize(
    "text",
    [
        "eagle3:x/y#causal",
        "eagle3:x/y#aux=",
        "eagle3:x/y#aux=a",
        "dflash:x/y#aux=1,,2",
        "dflash:x/y#k=3",
        "eagle3:",
        "dflash:x/y#aux=1#causal",
    ],
)
def test_unknown_options_are_refused_without_torch(text):
    """A typo would be found after the model was loaded."""
    with pytest.raises(UsageError, match=r"choose one of: aux=2,9,15|colon"):
        drafters.check(text)


def test_checking_needs_no_torch():
    """`race --drafter eagle3:typo#x` would take seconds to say so."""
    code = (
        "import sys, engine.drafters as d; "
        "[d.check(t) for t in ('eagle3', 'dflash', 'eagle3:a/b#aux=1,2,3', 'dflash:a/b#causal')]; "
        "print({'torch', 'transformers', 'numpy', 'rich'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "set()"


@pytest.mark.parametrize("kind", HEADS)
def test_without_an_argument_only_the_default_target_has_a_head(kind):
    """The default target's head would be put on any other."""
    with pytest.raises(
        UsageError,
        match=f"needs a head for 'formats/target' after a colon, as in {kind}:owner/name.*only {DEFAULT_TARGET}",
    ):
        made(kind, formats_target(), 3)


def test_a_head_is_loaded_once_for_a_target():
    """Every lane of every race would read it again."""
    one, two = (made(f"eagle3:{HEADS['eagle3']}", trained_target(), 3) for _ in range(2))
    assert one.head is two.head and one is not two
    assert made(f"eagle3:{HEADS['eagle3']}#aux=1,2,5", trained_target(), 3).head is not one.head


def test_a_copy_of_the_targets_embedding_is_not_kept(tmp_path):
    """A head for a large vocabulary would hold a gigabyte twice."""
    embedding = formats_target().model.get_input_embeddings().weight
    for i, (rows, kept) in enumerate([(embedding, False), (embedding + 1, True)]):
        folder = save(tmp_path / str(i), SPECULATORS["eagle3"], {**TENSORS["eagle3"], "embed_tokens.weight": rows})
        head = load_head("eagle3", parse_name("eagle3", str(folder)), formats_target(), silent)
        assert (head.embed_tokens is not None) == kept
        assert torch.equal(head.embed(torch.tensor([5])), rows[5:6])


# --- formats, as they are published


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({**ORIGINAL, "architectures": ["LlamaForCausalLM"]}, (2, 3, 3)),  # the authors' own heads name no EAGLE
        (ORIGINAL, (2, 3, 3)),
        (
            {**ORIGINAL, "model_type": "qwen2"},
            (2, 3, 3),
        ),  # SpecForge's for QwQ: the architecture says what the layers are
        (
            {
                **ORIGINAL,
                "eagle_config": {
                    "eagle_aux_hidden_state_layer_ids": [1, 2, 4],
                    "use_aux_hidden_state": True,
                    "next_layer_regular": True,
                },
            },
            (2, 3, 5),
        ),
        (
            {
                **ORIGINAL,
                "eagle_config": {
                    "eagle_aux_hidden_state_layer_ids": [],
                    "parallel_draft_step": 1,
                    "use_mtp_layernorm": False,
                },
            },
            (2, 3, 3),
        ),  # NVIDIA's
        ({**ORIGINAL, "eagle_aux_hidden_state_layer_ids": [1, 2, 4]}, (1, 2, 4)),
        (
            {
                **ORIGINAL,
                "sliding_window": 131072,
                "use_sliding_window": False,
                "max_window_layers": 28,
                "target_model_type": "x",
            },
            (2, 3, 3),
        ),
    ],
)
def test_layer_ids_of_original_heads(config, layers, tmp_path):
    """Hidden states one layer off would cost most of the acceptance, and show nowhere."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = read_spec(tmp_path, "eagle3", NUM_LAYERS)
    assert spec.hidden_layers == layers and spec.windows == (None,) and spec.layers.model_type == "llama"
    assert read_spec(tmp_path, "eagle3", NUM_LAYERS, aux=(0, 6, 1)).hidden_layers == (0, 6, 1)


@pytest.mark.parametrize("name", ["eagle3", "yuhuili", "yuhuili_spec", "dflash", "swa", "zlab", "zlab_spec"])
def test_every_fixture_is_read(name, tmp_path):
    """A format would be lost."""
    folder = published(name, tmp_path)
    kind = "eagle3" if "fc_norm" in config_of(folder) or name == "yuhuili" else "dflash"
    drafter = made(f"{kind}:{folder}", formats_target(), 7)
    assert drafter.hidden_layers == ((2, 3, 3) if name == "yuhuili" else (2, 3, 4))
    assert drafter.head.spec.windows == ((None,) if kind == "eagle3" else (6, None) if name == "swa" else (None, None))


# --- vocabularies


@given(st.sets(st.integers(0, VOCAB - 1), min_size=1), st.booleans())
def test_both_tables_say_the_same(ids, with_d2t):
    """A head that has only one of them would draft other words."""
    ids_ = torch.tensor(sorted(ids))
    d2t, t2d = ids_ - torch.arange(len(ids_)), torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids_, True)
    found = draft_ids(d2t if with_d2t else None, t2d, len(ids_), VOCAB, None)
    assert (found is None) == (len(ids) == VOCAB)
    assert found is None or torch.equal(found, ids_)


@pytest.mark.parametrize(("num_rows", "expected"), [(VOCAB, None), (VOCAB + 40, None), (VOCAB - 40, VOCAB - 40)])
@pytest.mark.parametrize("zeros", [True, False])
def test_a_padded_vocabulary(num_rows, expected, zeros, tmp_path):
    """Heads whose tables were padded otherwise than the target's would be refused, or propose what is no token."""
    config = {
        **SPECULATORS["eagle3"],
        "draft_vocab_size": num_rows,
        "transformer_layer_config": {**LAYERS, "vocab_size": num_rows},
    }
    tensors = {name: value for name, value in TENSORS["eagle3"].items() if name not in ("d2t", "t2d")}
    tensors |= drawn({"lm_head.weight": (num_rows, SIZE), "embed_tokens.weight": (num_rows, SIZE)}) | (
        {"d2t": torch.zeros(num_rows, dtype=torch.long)} if zeros else {}
    )
    save(tmp_path / "head", config, tensors)
    head = build(read_spec(tmp_path / "head", "eagle3", NUM_LAYERS), read_tensors(tmp_path / "head"), SIZE, VOCAB)
    assert (
        head.lm_head.out_features == min(num_rows, VOCAB)
        and head.embed_tokens is not None
        and head.embed_tokens.num_embeddings >= VOCAB
    )
    assert head.target_ids is None if expected is None else torch.equal(head.target_ids, torch.arange(expected))


@pytest.mark.parametrize("kind", HEADS)
def test_kept_logits_are_of_the_heads_words(kind, tmp_path):
    """The rejection rule would divide by a probability of words that the head cannot draft, or drafts have other noise
    than the target."""
    config = {**SPECULATORS[kind], "draft_vocab_size": 96}
    folder = save(
        tmp_path / "head",
        config,
        eagle3_tensors(LAYERS, config) if kind == "eagle3" else dflash_tensors(LAYERS, config),
    )
    ids = torch.arange(96) + tensors_of(folder)["d2t"]
    for temperature in (0.0, 0.9):
        drafter = drafters.make(
            f"{kind}:{folder}", context(formats_target(), 4, temperature=temperature, keep_logits=True)
        )
        drafter.prefill([1, 2, 3], torch.randn(2, 3 * SIZE))
        draft = drafter.propose([1, 2, 3], None, 4)
        assert draft.logits.shape == (4, VOCAB)
        assert torch.equal(draft.logits.isfinite(), torch.zeros(4, VOCAB, dtype=torch.bool).index_fill_(1, ids, True))
        assert all(row[token].isfinite() for row, token in zip(draft.logits, draft.token_ids, strict=True))
        sample = context(formats_target(), 4, temperature=temperature).sample
        assert draft.token_ids == tuple(
            sample(row, i) for i, row in enumerate(draft.logits)
        )  # the target's own noise at those places
        rows = draft.logits.clone()
        later = drafter.propose([1, 2, 3, 4, 5], torch.randn(2, 3 * SIZE), 4)
        assert torch.equal(draft.logits, rows)
        assert later.token_ids == tuple(sample(row, 2 + i) for i, row in enumerate(later.logits))
        assert drafters.make(f"{kind}:{folder}", context(formats_target(), 4)).propose([1], None, 0).logits is None


def test_an_automatic_k_takes_what_the_block_holds(tmp_path):
    """`auto` would be refused where a wide step may pay, although it was nobody's wish."""
    folder = save(tmp_path / "head", {**SPECULATORS["dflash"], "block_size": 4}, TENSORS["dflash"])
    with pytest.raises(UsageError, match="at most 3 tokens at a time, not k=7"):
        made(f"dflash:{folder}", formats_target(), 7)
    drafter = made(f"dflash:{folder}", formats_target(), 7, auto_k=True)
    drafter.prefill([1, 2], torch.randn(1, 3 * SIZE))
    assert drafter.max_k == 3 and len(drafter.propose([1, 2], None, 7).token_ids) == 3
