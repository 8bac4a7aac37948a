"""The training loss of EAGLE-3 heads: match the target's distribution at every place of the draft, from what is known
when drafting.

It returns (loss, alphas): alphas [rows, k] are expected acceptances 1 - TV(p, q) by place in the draft, at
TEMPERATURE and over the head's vocabulary; None while gradients are recorded. The loss is the negative logarithm of
that acceptance (Samarin et al. 2026, "LK losses", arXiv 2602.23881) plus a share of the cross entropy, which leads
while p and q hardly overlap."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..heads.eagle3 import Eagle3Head
from ..heads.head_layers import Rope
from .features import Batch

Loss = tuple[Tensor, Tensor | None]
TEMPERATURE = 0.8  # p and q are compared at it; it is the temperature at which heads are evaluated
CROSS_ENTROPY = 0.3  # its weight relative to the negative log acceptance
TINY = 1e-6
# Words of an EAGLE-3 head that count in a training step: the likeliest of its rows, and as many drawn from all others,
# which stand for those (sampled softmax: Jean et al. 2015, arXiv 1412.2007).
NUM_CERTAIN, NUM_DRAWN = 6144, 2048


def eagle3_loss(head: Eagle3Head, batch: Batch, output: Tensor, rope: Rope, num_steps: int, decay: float = 0.9) -> Loss:
    """Training-time test (Li et al. 2025): step j reads what step j - 1 fed back, like a chain of drafts; the mean over
    steps of the loss against the target, step j weighted by decay ** j.

    output [draft vocabulary, size]: the target's output rows of the head's words. Row i of step j is the j-th token
    drafted after row i: it sees the target's rows up to i and its own chain."""
    ids, (_, num_tokens) = batch.ids, batch.ids.shape
    num_rows = num_tokens - num_steps - 1
    is_training = torch.is_grad_enabled()
    with torch.no_grad():
        p = _probabilities(batch.last @ output.T)
        words = _some_words(p, int(ids.sum())) if is_training else None
        if words is not None:
            p = p.index_select(-1, words[0]).mul_(words[1])
    hidden = head.fuse(batch.hidden)[:, :num_rows]
    causal = torch.ones(num_rows, num_rows, dtype=torch.bool, device=ids.device).tril()
    valid = batch.valid
    chain: list[tuple[Tensor, Tensor]] = []
    losses, alphas = [], []
    for j in range(num_steps):

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            chain.append((key, value))
            return chain_attention(query, chain, causal)

        angles = tuple(part[None, j : j + num_rows] for part in rope)
        embedded = head.embed(ids[:, 1 + j : 1 + j + num_rows])
        hidden, out = head.step(embedded, hidden, angles, attend)  # type: ignore[arg-type]
        rows = slice(1 + j, 1 + j + num_rows)
        logits = head.lm_head(out) if words is None else _of_some(head, out, *words)
        loss, alpha = _against(p[:, rows], logits, valid[:, rows])
        losses.append(decay**j * loss)
        alphas.append(alpha)
    whole = valid[:, num_steps : num_steps + num_rows]
    return torch.stack(losses).sum() / sum(decay**j for j in range(num_steps)), _stacked(alphas, whole)


def chain_attention(query: Tensor, chain: list[tuple[Tensor, Tensor]], causal: Tensor) -> Tensor:
    """Row i of query [B, heads, n, dim] over the first step's keys and values up to i, and over row i alone of every
    later step's [B, kv_heads, n, dim]."""
    groups = query.shape[1] // chain[0][0].shape[1]
    keys, values = ([part[i].repeat_interleave(groups, 1) for part in chain] for i in (0, 1))
    scale = query.shape[-1] ** -0.5
    scores = [(query @ keys[0].transpose(-1, -2) * scale).masked_fill(~causal, -torch.inf)]
    scores += [(query * key).sum(-1, keepdim=True) * scale for key in keys[1:]]
    weights = torch.cat(scores, -1).float().softmax(-1).to(query.dtype)
    out = weights[..., : causal.shape[1]] @ values[0]
    for j, value in enumerate(values[1:]):
        out = out + weights[..., causal.shape[1] + j, None] * value
    return out


class _Distance(torch.autograd.Function):
    """sum of weights [...] * (CROSS_ENTROPY * -(p . log q) - log A), q = softmax(logits / TEMPERATURE), A = sum of
    min(p, q), in few passes. The derivative of A by a scaled logit is q * ([q < p] - sum of q where q < p)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, p: Tensor, weights: Tensor) -> Tensor:
        log_q = F.log_softmax(logits.float().div(TEMPERATURE), -1)
        cross = -_dot(p, log_q)
        q = log_q.exp_()
        below = q * (q < p)
        missing = below.sum(-1)
        accepted = torch.minimum(p, q).sum(-1).clamp(min=TINY)
        ctx.save_for_backward(q, p, below, missing, accepted, weights)
        ctx.dtype = logits.dtype
        return ((CROSS_ENTROPY * cross - accepted.log()) * weights).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        q, p, below, missing, accepted, weights = ctx.saved_tensors
        out = q * (CROSS_ENTROPY + missing / accepted)[..., None]
        out.sub_(p, alpha=CROSS_ENTROPY).sub_(below.div_(accepted[..., None]))
        return out.mul_((weights * grad / TEMPERATURE)[..., None]).to(ctx.dtype), None, None


def _probabilities(logits: Tensor) -> Tensor:
    return (logits.float() / TEMPERATURE).softmax(-1)


def _some_words(p: Tensor, seed: int) -> tuple[Tensor, Tensor] | None:
    """Columns of p [..., vocab] and the words each stands for, [NUM_CERTAIN + NUM_DRAWN]; None if p has no more."""
    vocab_size = p.shape[-1]
    if vocab_size <= NUM_CERTAIN + NUM_DRAWN:
        return None
    ranked = p.flatten(0, -2).amax(0).argsort(descending=True)
    drawn = torch.randperm(vocab_size - NUM_CERTAIN, generator=torch.Generator().manual_seed(seed))[:NUM_DRAWN]
    words = torch.cat([ranked[:NUM_CERTAIN], ranked[NUM_CERTAIN:][drawn.to(p.device)]])
    weights = torch.ones(len(words), device=p.device)
    weights[NUM_CERTAIN:] = (vocab_size - NUM_CERTAIN) / NUM_DRAWN
    return words, weights


def _of_some(head: Eagle3Head, out: Tensor, words: Tensor, weights: Tensor) -> Tensor:
    """Logits of some words; how many words each stands for is in its logit."""
    return F.linear(out, head.lm_head.weight[words]) + TEMPERATURE * weights.log()


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """(left * right).sum(-1), row by row as products: half the traffic."""
    return (left.flatten(0, -2)[:, None] @ right.flatten(0, -2)[:, :, None]).view(left.shape[:-1])


def _against(p: Tensor, logits: Tensor, weights: Tensor) -> tuple[Tensor, Tensor | None]:
    """p, and logits of q [..., vocab] -> the mean loss of rows by their weights, and 1 - TV, without gradients."""
    weights = weights / weights.sum().clamp(min=1e-9)
    with torch.autocast(logits.device.type, enabled=False):
        loss = _Distance.apply(logits, p, weights)
        if logits.requires_grad:
            return loss, None
        return loss, torch.minimum(p, _probabilities(logits)).sum(-1)


def _stacked(alphas: list[Tensor | None], rows: Tensor) -> Tensor | None:
    """The rows of each, side by side."""
    kept = [alpha[rows] for alpha in alphas if alpha is not None]
    return torch.stack(kept, -1) if kept else None


def mean_length(alphas: Tensor) -> float:
    """Expected tokens per step, the target's own included, of drafts whose i-th token is accepted with probability
    alphas [rows, k]."""
    return 1.0 + float(alphas.cumprod(-1).sum(-1).mean()) if len(alphas) else 1.0
