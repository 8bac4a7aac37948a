"""Training draft heads: that what is trained is what is drafted, that training learns, goes on where it stopped, and
publishes what it made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.cli.main import main
from engine.drafters.dflash import DFlashDrafter
from engine.drafters.eagle3 import Eagle3Drafter
from engine.errors import UsageError
from engine.heads.build import build
from engine.heads.formats import read_spec, read_tensors
from engine.heads.layers import rope_table
from engine.training.features import Features
from engine.training.heads import TargetWeights, begin_from, likely_words, save_head
from engine.training.losses import CROSS_ENTROPY, TEMPERATURE, _Distance, dflash_loss, eagle3_loss, mean_length
from engine.training.trainer import Schedule, Trainer
from tests.helpers.trained import context
from tests.helpers.training_heads import LAYERS, TEXT, WORDS, made, stock


def trainer(kind: str, features: Features, folder: Path, num_steps: int) -> Trainer:
    head, design = made(kind, features)
    schedule = Schedule(num_steps, batch_size=4, report_every=10, save_every_s=1e9)
    return Trainer(
        head,
        design,
        features,
        TargetWeights.of(stock().model).output[head.target_ids].float(),
        schedule,
        folder,
        torch.device("cpu"),
    )


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_what_is_trained_is_what_is_drafted(kind, num_layers, features):
    """A head would be trained on other rows, positions, masks or tokens than it drafts with: acceptance would stay low,
    with nothing to see."""
    head, design = made(kind, features, num_layers)
    head.eval().requires_grad_(False)
    output = TargetWeights.of(stock().model).output[head.target_ids]
    batch = features.batch([len(features.index) - 1]).to(torch.device("cpu"))
    ids, num_tokens = batch.ids[0].tolist(), int(batch.lengths[0])
    rope = rope_table(head.spec.layers, num_tokens + 8, torch.float32, "cpu")
    k = design.num_steps if kind == "eagle3" else design.block_size - 1
    places = list(range(2, num_tokens - k - 2, 3))
    if kind == "eagle3":
        alphas = eagle3_loss(head, batch, output, rope, k)[1][[p - 2 for p in places]]
    else:
        alphas = dflash_loss(head, batch, output, rope, torch.tensor([p - 1 for p in places]), 4.0)[1]

    target_p = torch.softmax(batch.last[0] @ output.T / TEMPERATURE, -1)
    column = {int(t): i for i, t in enumerate(head.target_ids)}
    for place, alpha in zip(places, alphas, strict=True):
        prompt = ids[:place]
        truth = ids[place:]
        here = replace(context(prompt), k=k, keep_logits=True)
        drafter = (Eagle3Drafter if kind == "eagle3" else DFlashDrafter)(head, here)
        drafter._choose = lambda row, offset, _, truth=truth: (
            truth[offset],
            0.0,
        )  # the true tokens, as training feeds them
        drafter.prefill(prompt, batch.hidden[0, : place - 1])
        logits = drafter.propose(prompt, None, k).logits[:, head.target_ids]
        p = target_p[place - 1 : place - 1 + k]
        torch.testing.assert_close(
            torch.minimum(p, (logits / TEMPERATURE).softmax(-1)).sum(-1), alpha, atol=2e-3, rtol=0
        )
    assert len(column) == WORDS


def test_the_words_are_those_the_target_says(features):
    """A head would be made of words that its target hardly ever says, and every other token end its draft."""
    output = TargetWeights.of(stock().model).output
    rows = torch.cat([features.batch([i]).last[0, : features.index[i][2]] for i in range(len(features.index))])
    mass = ((rows.float() @ output.float().T) / 0.8).softmax(-1).mean(0)
    words = likely_words(features, output, WORDS)
    assert words.tolist() == sorted(set(words.tolist())) and len(words) == WORDS
    assert float(mass[words].sum()) >= 0.97 * float(mass.topk(WORDS).values.sum())


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_head_begins_where_another_ended(kind, features, tmp_path):
    """Training that goes on from a published head would begin anew, or draft among the words of another."""
    first, _ = made(kind, features)
    for parameter in first.parameters():
        parameter.data.normal_(generator=torch.Generator().manual_seed(1))
    save_head(first, tmp_path, "t", 3, torch.float32)
    head, _ = made(kind, features)
    rows = head.lm_head.weight.clone()
    begin_from(head, tmp_path)
    own = dict(head.named_parameters())
    assert torch.equal(own.pop("lm_head.weight"), rows)
    assert all(torch.equal(own[name], value) for name, value in first.named_parameters() if name in own)
    with pytest.raises(UsageError, match="another shape"):
        begin_from(made(kind, features, num_layers=2)[0], tmp_path)


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_training_learns(kind, features, tmp_path):
    """The optimiser would run and the head stay as it was."""
    reports = []
    trainer(kind, features, tmp_path, 40).run(reports.append)
    assert [r.share for r in reports] == sorted(r.share for r in reports) and reports[-1].share == 1
    assert reports[-1].loss < 0.95 * reports[0].loss
    assert reports[-1].held_out_length > 1.05 and len(reports[-1].held_out_alphas) == (3 if kind == "eagle3" else 4)


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_stopped_training_goes_on_as_if_it_had_not_stopped(kind, features, tmp_path):
    """Hours of work would be lost, or the rest be another training."""
    whole = trainer(kind, features, tmp_path / "a", 6)
    whole.run(lambda report: None)
    first = trainer(kind, features, tmp_path / "b", 6)
    for _ in range(3):
        first._train_step()
        first.step += 1
    first.save()
    second = trainer(kind, features, tmp_path / "b", 6)
    assert second.step == 3
    second.run(lambda report: None)
    for name, value in whole.head.state_dict().items():
        torch.testing.assert_close(second.head.state_dict()[name], value, rtol=0, atol=0, msg=name)


def test_a_checkpoint_of_another_head_is_refused(features, tmp_path):
    """Weights would be loaded into another shape, or an old run be continued by mistake."""
    trainer("eagle3", features, tmp_path, 1).save()
    with pytest.raises(UsageError, match="another head"):
        trainer("dflash", features, tmp_path, 1)


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_published_head_is_the_one_that_was_trained(kind, features, tmp_path):
    """It would lose a flag, an offset or a tensor on the way to disk."""
    head, _ = made(kind, features, 2)
    save_head(head, tmp_path, "some/target", 3, torch.float32)
    spec = read_spec(tmp_path, kind, 6)
    again = build(spec, read_tensors(tmp_path), 128, 2048)
    assert again.target_ids.tolist() == head.target_ids.tolist()
    assert {n: v.tolist() for n, v in again.named_parameters()} == {n: v.tolist() for n, v in head.named_parameters()}
    for name in (
        "hidden_layers",
        "norm_before_residual",
        "norm_before_fc",
        "fc_norm",
        "norm_output",
        "block_size",
        "mask_token_id",
        "causal",
    ):
        assert getattr(spec, name) == getattr(head.spec, name), name
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["draft_vocab_size"] == WORDS and config["transformer_layer_config"]["num_hidden_layers"] == 2


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


@pytest.mark.slow
def test_the_command_trains_from_text_to_head(tmp_path, capsys):
    """A step of the whole way would be missing; or a second run would not go on."""
    (tmp_path / "text.txt").write_text(TEXT)
    out = tmp_path / "head"
    small = [
        "--windows",
        "6",
        "--written",
        "4",
        "--new-tokens",
        "40",
        "--together",
        "2",
        "--length",
        "48",
        "--vocabulary",
        "300",
        "--intermediate",
        "32",
        "--batch",
        "2",
    ]
    command = [
        "train",
        "--kind",
        "eagle3",
        "--target",
        str(stock().info.name),
        "--dtype",
        "float32",
        "--data",
        str(tmp_path / "text.txt"),
        "--out",
        str(out),
        *small,
    ]
    assert main(command) == 2
    assert "--steps" in capsys.readouterr().err
    assert main([*command, "--steps", "3"]) == 0
    assert "tokens a step" in capsys.readouterr().out
    assert read_spec(out, "eagle3", 6).hidden_layers == LAYERS
    assert main([*command, "--steps", "5"]) == 0
    steps = [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert steps == [3, 5]
