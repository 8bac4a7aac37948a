"""study-prompts --generate: transformers is timed fairly, on the model as it made it, and its tokens are compared."""

import json
import time

import pytest
import torch

from engine.cli import main as cli
from engine.core.spec import SamplingParams
from engine.loading.loading import LoadedModel, ModelInfo, load
from engine.progress import silent
from engine.session import TorchRace
from engine.studies.prompts.generate import WAYS, Generate
from tests.helpers import gpu_kernels  # noqa: F401  it switches the interpreter on
from tests.helpers.fake_cuda import CudaTensor, fake_cuda, on_cuda
from tests.helpers.tiny import TRAINED, fresh, random_ids, stock
from tests.helpers.trained import PROMPTS

NUM_NEW = 20


def prompt_of(name: str) -> list[int]:
    vocab_size = stock(name).get_output_embeddings().weight.shape[0]
    return random_ids(12, vocab_size, 4) * 2  # repeated, so that prompt lookup has something to find


def greedy(name: str) -> list[int]:
    """The model's own choice, token by token, everything computed anew each time."""
    ids, model = prompt_of(name), stock(name)
    with torch.inference_mode():
        for _ in range(NUM_NEW):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[-NUM_NEW:]


def generate_on(model, temperature: float = 0.0) -> Generate:
    generate = Generate(SamplingParams(temperature=temperature, seed=3))
    generate.make_ready(LoadedModel(model, None, ModelInfo("", "", "", "float32", "cpu", "")), silent)
    return generate


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["trained", "gemma3"])
def test_it_writes_the_stock_models_own_tokens(name, way):
    """It would be timed on another text than the lane beside it: one that stops early, or obeys penalties."""
    model, expected = fresh(name), greedy(name)
    model.generation_config.eos_token_id = model.config.eos_token_id = expected[0]
    model.generation_config.update(repetition_penalty=1.3, no_repeat_ngram_size=3, suppress_tokens=[10])
    assert generate_on(model).run(way, prompt_of(name), NUM_NEW)[0] == expected


def test_it_runs_on_a_stock_copy():
    """transformers would be timed with our attention and our packed linears, and look as fast as they are."""
    loaded, generate = load(str(TRAINED), "float32", "cpu"), Generate(SamplingParams())
    generate.make_ready(loaded, silent)
    model, untouched = generate.model, fresh("trained")
    assert model is not loaded.model and model.config._attn_implementation == "sdpa"
    assert {type(part) for part in model.modules() if hasattr(part, "in_features")} == {torch.nn.Linear}
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), untouched.parameters(), strict=True))
    assert torch.equal(model(torch.tensor([[5, 6, 7]])).logits, untouched(torch.tensor([[5, 6, 7]])).logits)


def storages(*models: torch.nn.Module) -> int:
    """Bytes of all that parameters and buffers of these models lie in, what several share once."""
    parts = [part.untyped_storage() for model in models for part in (*model.parameters(), *model.buffers())]
    return sum({part.data_ptr(): part.nbytes() for part in parts}.values())


@pytest.mark.parametrize("name", ["trained", "qwen3_5", "gemma3"])
def test_on_a_gpu_there_is_one_set_of_weights(name, monkeypatch):
    """An 8B target on a GPU would need memory for two: ours and transformers'."""
    monkeypatch.setenv("PHOTOFINISH_TRITON", "0")
    model = fresh(name)
    with fake_cuda():
        loaded = LoadedModel(on_cuda(model), None, ModelInfo(name, "", "", "float32", "cuda:0", ""))
        before, generate = storages(loaded.model), Generate(SamplingParams())
        generate.make_ready(loaded, silent)
        assert all(type(weight.data) is CudaTensor for weight in generate.model.parameters())
        assert storages(loaded.model, generate.model) - storages(loaded.model) < 0.05 * before


@pytest.mark.parametrize("way", WAYS)
def test_prefill_is_not_decoding(way):
    """A slow prefill would make it look slow, and our lanes, whose prefill is apart, fast."""
    generate, slow, prompt = generate_on(fresh("trained")), 0.3, prompt_of("trained")
    generate.run(way, prompt, 2)

    def sleep(module, args, kwargs):
        if kwargs["input_ids"].shape[1] >= len(prompt):
            time.sleep(slow)

    generate.model.register_forward_pre_hook(sleep, with_kwargs=True)
    began = time.perf_counter()
    _, tokens_per_s = generate.run(way, prompt, NUM_NEW)
    assert tokens_per_s * (time.perf_counter() - began - slow) > NUM_NEW / 2
    assert generate.run(way, prompt, 1)[1] is None, "nothing was timed"


def test_sampling_leaves_no_trace():
    """Two runs would time different texts; or change the random numbers of whoever comes after."""
    generate, before = generate_on(fresh("trained"), 0.9), torch.random.get_rng_state()
    first = generate.run("generate", prompt_of("trained"), NUM_NEW)[0]
    assert generate.run("generate", prompt_of("trained"), NUM_NEW)[0] == first != greedy("trained")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_study_says_how_fast_transformers_is(tmp_path, capsys, monkeypatch):
    """Both sides would not take turns, so that a machine that slows down disadvantages one; tokens be counted as the
    same unseen; a way that fails be passed over in silence; or all this be lost in the saved file."""
    file, saved, seen = tmp_path / "prompts.jsonl", tmp_path / "study.jsonl", []
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS[:2]))
    asked = ["--prompts", str(file), "--target", str(TRAINED), "--dtype", "float32", "--threads", "1"]
    asked += ["--drafter", "ngram", "--max-new-tokens", "12", "--generate", "--save", str(saved)]
    run, events = Generate.run, TorchRace.events

    def counted(self, name, prompt_ids, num_new):
        seen.append((name, num_new))
        if name == "prompt lookup" and len(seen) > 6:
            return run(self, name, [10**6], num_new)
        return run(self, name, prompt_ids, num_new)

    monkeypatch.setattr(Generate, "run", counted)
    monkeypatch.setattr(TorchRace, "events", lambda self: seen.append("race") or events(self))
    assert cli.main(["study-prompts", *asked]) == 0
    said = " ".join(capsys.readouterr().out.split())
    turns = ["race", ("generate", 8), ("generate", 12), ("prompt lookup", 8)]
    assert seen == [*turns, ("prompt lookup", 12), *turns], "the last one fails while it warms up"
    assert "of plain's speed (median of 2), the same tokens in 2 of 2" in said
    assert "(median of 1), the same tokens in 1 of 1, it failed in 1, first: transformers' generate" in said
    monkeypatch.setattr(TorchRace, "events", None)
    assert cli.main(["study-prompts", *asked, "--json"]) == 0
    peers = json.loads(capsys.readouterr().out)["peers"]
    assert [(peer["name"], peer["num_prompts"], peer["num_same"]) for peer in peers] == [
        ("generate", 2, 2),
        ("prompt lookup", 2, 1),
    ]
    assert all(peer["median_speed"] > 0 and peer["says"] in said for peer in peers)
