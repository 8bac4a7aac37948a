"""Training draft heads: what is trained is what drafts; it learns, goes on, publishes what it made; and its texts."""

import itertools
import json
import shlex
from functools import cache
from pathlib import Path

import pytest
import torch

from engine.cli.main import main
from engine.core.errors import UsageError
from engine.drafters.eagle3 import Eagle3Drafter
from engine.heads.build_head import build
from engine.heads.eagle3 import Eagle3Head
from engine.heads.formats import spec_of
from engine.heads.head_layers import rope_table
from engine.loading.load_head import read_tensors
from engine.loading.loading import LoadedModel, load
from engine.loading.random_targets import read_published
from engine.progress import silent
from engine.training import losses
from engine.training.features import Features
from engine.training.losses import CROSS_ENTROPY, TEMPERATURE, _Distance, eagle3_loss, mean_length
from engine.training.new_head import (
    Design,
    TargetWeights,
    begin_from,
    default_layers,
    likely_words,
    new_head,
    new_spec,
    save_head,
)
from engine.training.openings import openings
from engine.training.trainer import Schedule, Trainer
from engine.training.written import Writer, Writing, write_features
from tests.helpers import tiny
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import PROMPTS, context, trained

LAYERS = default_layers(6)
WORDS = 600


@cache
def stock() -> LoadedModel:
    """The trained fixture as transformers runs it: never prepared for fixed steps."""
    return load(str(TRAINED), "float32", "cpu")


def writer(writing: Writing) -> Writer:
    """One that writes with all words of the trained fixture."""
    model = tiny.fresh("trained")
    output = TargetWeights.of(model).output
    return Writer(model, output, torch.arange(len(output)), LAYERS, writing)


@pytest.fixture(scope="module")
def features(tmp_path_factory) -> Features:
    """Windows that the fixture wrote, with its hidden states."""
    folder = tmp_path_factory.mktemp("features")
    write_features(writer(Writing(48, 64)), openings(stock().tokenizer, 1), 64, folder, 1, silent)
    return Features(folder)


def made(features: Features, intermediate_size: int = 64) -> tuple[Eagle3Head, Design]:
    """A head with random first weights, and its design."""
    torch.manual_seed(0)
    target = TargetWeights.of(stock().model)
    words = likely_words(features, target.output, WORDS)
    head = new_head(new_spec(intermediate_size, target, LAYERS), target, words, torch.ones(len(LAYERS) * 128))
    return head, Design(intermediate_size, WORDS, 3)


def trainer(features: Features, folder: Path, num_steps: int, intermediate_size: int = 64) -> Trainer:
    head, design = made(features, intermediate_size)
    schedule = Schedule(num_steps, batch_size=4, report_every=10, save_every_s=1e9)
    output = TargetWeights.of(stock().model).output[head.target_ids].float()
    return Trainer(head, design, features, output, schedule, folder, torch.device("cpu"))


def test_what_is_trained_is_what_is_drafted(features):
    """A head would be trained on other rows, positions, masks or tokens than it drafts with."""
    head, design = made(features)
    head.eval().requires_grad_(False)
    output = TargetWeights.of(stock().model).output[head.target_ids]
    batch = features.batch([len(features.index) - 1]).to(torch.device("cpu"))
    ids, num_tokens = batch.ids[0].tolist(), int(batch.lengths[0])
    rope = rope_table(head.spec.layers, num_tokens + 8, torch.float32, "cpu")
    k = design.num_steps
    places = list(range(2, num_tokens - k - 2, 3))
    alphas = eagle3_loss(head, batch, output, rope, k)[1][[p - 2 for p in places]]

    target_p = torch.softmax(batch.last[0] @ output.T / TEMPERATURE, -1)
    for place, alpha in zip(places, alphas, strict=True):
        prompt = ids[:place]
        truth = ids[place:]
        here = context(trained(), k, prompt, keep_logits=True)
        drafter = Eagle3Drafter(head, here)
        drafter._best = lambda rows, depths, num, truth=truth: [[(truth[depth], 0.0)] for depth in depths]
        # the true tokens, as training feeds them
        drafter.prefill(prompt, batch.hidden[0, : place - 1])
        logits = drafter.propose(prompt, None, k).logits[:, head.target_ids]
        p = target_p[place - 1 : place - 1 + k]
        overlap = torch.minimum(p, (logits / TEMPERATURE).softmax(-1)).sum(-1)
        torch.testing.assert_close(overlap, alpha, atol=2e-3, rtol=0)
    assert len({*head.target_ids.tolist()}) == WORDS


def test_words_that_are_drawn_stand_for_the_others(features, monkeypatch):
    """A head with many words would learn that most of them do not exist."""
    head, design = made(features)
    output = TargetWeights.of(stock().model).output[head.target_ids].float()
    batch = features.batch([0, 1]).to(torch.device("cpu"))
    rope = rope_table(head.spec.layers, batch.ids.shape[1] + 8, torch.float32, "cpu")
    head.requires_grad_(True)

    def gradient() -> torch.Tensor:
        head.zero_grad()
        eagle3_loss(head, batch, output, rope, design.num_steps)[0].backward()
        return head.fc.weight.grad.flatten().clone()

    whole, some_words, draws = gradient(), losses._some_words, itertools.count()
    monkeypatch.setattr(losses, "NUM_CERTAIN", WORDS // 30)
    monkeypatch.setattr(losses, "NUM_DRAWN", WORDS // 8)
    monkeypatch.setattr(losses, "_some_words", lambda p, _: some_words(p, next(draws)))
    mean = torch.stack([gradient() for _ in range(40)]).mean(0)
    assert torch.cosine_similarity(whole, mean, 0) > 0.98
    assert 0.9 < float(mean.norm() / whole.norm()) < 1.1


def test_the_words_are_those_the_target_says(features):
    """A head would be made of words that its target hardly ever says, and every other token end its draft."""
    output = TargetWeights.of(stock().model).output
    rows = torch.cat([features.batch([i]).last[0, : features.index[i][2]] for i in range(len(features.index))])
    mass = ((rows.float() @ output.float().T) / 0.8).softmax(-1).mean(0)
    words = likely_words(features, output, WORDS)
    assert words.tolist() == sorted(set(words.tolist())) and len(words) == WORDS
    assert float(mass[words].sum()) >= 0.97 * float(mass.topk(WORDS).values.sum())


def test_a_head_begins_where_another_ended(features, tmp_path):
    """Training on from a published head would begin anew, draft other words, or lose a flag, an offset or a tensor."""
    first, _ = made(features)
    for parameter in first.parameters():
        parameter.data.normal_(generator=torch.Generator().manual_seed(1))
    save_head(first, tmp_path, "t", 3, torch.float32)
    spec = spec_of(read_published(tmp_path / "config.json"), "", "eagle3", 6)
    again = build(spec, read_tensors(tmp_path), 128, 2048)
    assert again.target_ids.tolist() == first.target_ids.tolist()
    assert {n: v.tolist() for n, v in again.named_parameters()} == {n: v.tolist() for n, v in first.named_parameters()}
    norms = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
    for name in (*norms, "hidden_layers"):
        assert getattr(spec, name) == getattr(first.spec, name), name
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["draft_vocab_size"] == WORDS and config["transformer_layer_config"]["num_hidden_layers"] == 1
    head, _ = made(features)
    rows = head.lm_head.weight.clone()
    begin_from(head, tmp_path)
    own = dict(head.named_parameters())
    assert torch.equal(own.pop("lm_head.weight"), rows)
    assert all(torch.equal(own[name], value) for name, value in first.named_parameters() if name in own)
    with pytest.raises(UsageError, match="another shape"):
        begin_from(made(features, intermediate_size=32)[0], tmp_path)


def test_training_learns(features, tmp_path):
    """The optimiser would run and the head stay as it was."""
    reports = []
    trainer(features, tmp_path, 40).run(reports.append)
    assert [r.share for r in reports] == sorted(r.share for r in reports) and reports[-1].share == 1
    assert reports[-1].loss < 0.95 * reports[0].loss
    assert reports[-1].held_out_length > 1.05 and len(reports[-1].held_out_alphas) == 3


def test_a_stopped_training_goes_on_as_if_it_had_not_stopped(features, tmp_path):
    """Hours of work would be lost, or the rest be another training, or one of another head."""
    whole = trainer(features, tmp_path / "a", 6)
    whole.run(lambda report: None)
    first = trainer(features, tmp_path / "b", 6)
    for _ in range(3):
        first._train_step()
        first.step += 1
    first.save()
    second = trainer(features, tmp_path / "b", 6)
    assert second.step == 3
    second.run(lambda report: None)
    with pytest.raises(UsageError, match="another head"):
        trainer(features, tmp_path / "b", 6, intermediate_size=32)
    for name, value in whole.head.state_dict().items():
        torch.testing.assert_close(second.head.state_dict()[name], value, rtol=0, atol=0, msg=name)


def test_the_loss_is_what_it_says_and_so_is_its_slope():
    """Training would run down another hill than the acceptance's."""
    generator = torch.Generator().manual_seed(3)
    logits, other = (3 * torch.randn(5, 40, generator=generator, dtype=torch.float64) for _ in range(2))
    p, weights = (other / TEMPERATURE).softmax(-1), torch.rand(5, generator=generator, dtype=torch.float64)

    def plainly(x):
        log_q = (x / TEMPERATURE).log_softmax(-1)
        return (weights * (CROSS_ENTROPY * -(p * log_q).sum(-1) - torch.minimum(p, log_q.exp()).sum(-1).log())).sum()

    ours, theirs = logits.float().requires_grad_(), logits.clone().requires_grad_()
    loss, wanted = _Distance.apply(ours, p.float(), weights.float()), plainly(theirs)
    loss.backward()
    wanted.backward()
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-3, atol=1e-6)


def test_mean_length_counts_the_targets_own_token():
    """Published figures would be off by one."""
    assert mean_length(torch.tensor([[1.0, 1.0, 0.5]])) == pytest.approx(3.5)
    assert mean_length(torch.tensor([[0.0, 1.0]])) == 1.0


def test_the_command_trains_from_text_to_head(tmp_path, capsys):
    """A step of the whole way would be missing; or a second run would not go on."""
    (tmp_path / "text.txt").write_text(PROMPTS[0])
    out = tmp_path / "head"
    command = shlex.split(
        f"train --target {stock().info.name} --dtype float32 --data {tmp_path} --out {out} "
        "--windows 10 --new-tokens 40 --together 2 --vocabulary 300 --intermediate 32 --batch 2"
    )
    assert main(command) == 2
    assert "--steps" in capsys.readouterr().err
    assert main([*command, "--steps", "3"]) == 0
    assert "tokens a step" in capsys.readouterr().out
    assert spec_of(read_published(out / "config.json"), "", "eagle3", 6).hidden_layers == LAYERS
    assert main([*command, "--steps", "5"]) == 0
    assert [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()] == [3, 5]


# The text: what the target writes itself, and openings for it to continue


@pytest.mark.parametrize("name", ["trained", *tiny.NAMES])
def test_what_the_target_writes_is_its_own(name):
    """A head would learn states that no step of the target ever has, or text that it does not write."""
    model, stock_forward = tiny.fresh(name), tiny.stock(name)
    output = TargetWeights.of(model).output
    words = torch.arange(3, len(output))
    warm = Writer(model, output, words, LAYERS, Writing(24, 8, (1e-4, 1.0)))
    beginnings = [[5, 9, 11 + i] for i in range(8)]
    batch = warm.write(beginnings, 1)
    assert batch["ids"].shape == (8, 26) and batch["hidden"].shape[:2] == batch["last"].shape[:2] == (8, 26)
    assert batch["ids"][:, :3].tolist() == beginnings and int(batch["ids"].min()) >= 3
    again = warm.write(beginnings, 1)
    assert torch.equal(batch["ids"], again["ids"]) and not torch.equal(batch["ids"], warm.write(beginnings, 2)["ids"])
    with torch.inference_mode():
        out = stock_forward.get_decoder()(input_ids=batch["ids"], use_cache=False, output_hidden_states=True)
    for ours, theirs in (
        (batch["last"], out.last_hidden_state),
        (batch["hidden"], torch.cat([out.hidden_states[i] for i in LAYERS], -1)),
    ):
        torch.testing.assert_close(ours.float(), theirs.bfloat16().float(), atol=0.02, rtol=0.02)
    cold = Writer(model, output, words, LAYERS, Writing(24, 8, (1e-4,), num_free=0)).write(beginnings, 1)["ids"]
    with torch.inference_mode():
        greedy = stock_forward(input_ids=cold, use_cache=False).logits[:, 2:-1, 3:].argmax(-1) + 3
    assert float((greedy == cold[:, 3:]).float().mean()) > 0.99


def test_samples_have_the_targets_distribution():
    """Heads would learn another distribution than the one they are judged at."""
    bare = object.__new__(Writer)
    scores = torch.tensor([2.0, 0.0, -1.0, 1.0])
    chosen = bare._sample(scores.repeat(20_000, 1), torch.Generator().manual_seed(5))
    shares = torch.bincount(chosen[:, 0], minlength=4) / len(chosen)
    torch.testing.assert_close(shares, scores.softmax(-1), atol=0.01, rtol=0)


def test_what_ends_early_counts_to_its_end():
    """What the target says after the end of a text would be trained on."""
    free = writer(Writing(40, 8, (1.0,)))
    free._ends = torch.tensor([7, 8, 9, 10])
    batch = free.write([[5, 9]] * 8, 3)
    for ids, length in zip(batch["ids"].tolist(), batch["lengths"].tolist(), strict=True):
        first = next((i for i, token in enumerate(ids[2:], 2) if token in (7, 8, 9, 10)), len(ids) - 1)
        assert length == first + 1


def test_writing_goes_on_where_it_stopped(tmp_path):
    """Hours of writing would be lost with a stopped run, or written twice."""

    def write(folder: Path) -> list[bytes]:
        write_features(writer(Writing(40, 4)), openings(stock().tokenizer, 3), 10, folder, 3, silent)
        return [path.read_bytes() for path in sorted(folder.glob("features-*"))]

    whole = write(tmp_path / "a")
    assert len(whole) == 3 and all(32 <= n <= 140 for _, _, n in Features(tmp_path / "a").index)
    (tmp_path / "a" / "features-written-00001.safetensors").unlink()
    assert write(tmp_path / "a") == whole == write(tmp_path / "b")


def test_openings_are_many_and_repeatable():
    """A head would see the same few beginnings again and again, or two runs learn from different ones."""

    def begun(seed: int) -> list[list[int]]:
        return list(itertools.islice(openings(stock().tokenizer, seed), 400))

    some = begun(4)
    assert some == begun(4) != begun(5)
    assert len({tuple(ids) for ids in some}) > 250 and max(map(len, some)) <= 128 and min(map(len, some)) >= 1


def test_a_folder_gives_a_third_of_the_openings(tmp_path):
    """A user's own texts would be read and never begin anything, or a folder without any train as if it had some."""
    with pytest.raises(UsageError, match=r"no training text.*\.txt"):
        next(openings(stock().tokenizer, 0, tmp_path))
    (tmp_path / "own.txt").write_text("zyx " * 999)
    some = [stock().tokenizer.decode(ids) for ids in itertools.islice(openings(stock().tokenizer, 0, tmp_path), 300)]
    assert 60 < sum("zyx" in text for text in some) < 140
