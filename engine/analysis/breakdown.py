"""Where the speed of a race comes from: what the accepted tokens were copied from, and what a step costs and brings.
Pure; standard library only.

For two lanes compared over the same tokens, let p be the seconds per plain token, N the number of speculative steps, L
the tokens per step, and c the seconds per step:

    speed-up(L) = L p / c        break-even: L = c / p        ideal: N p seconds, each step as cheap as a plain one
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..core.events import LaneEvent, Step, steps
from ..core.spec import BASELINE, PLAIN, SPECULATIVE
from .loops import loop_start, with_counters
from .metrics import fastest_plain, grouped, lane_metrics, num_tokens_of, percentile, seconds_of, speedup, until

MAX_SPEEDUP = 1e6


class Origins(NamedTuple):
    """Number of tokens by origin: accepted copies of the prompt; accepted copies of the completion (or of the draft
    itself); accepted guesses of a model; the target's own."""

    prompt: int
    completion: int
    guessed: int
    target: int


def origins(done: Sequence[Step], num_prompt_tokens: int, drafter: str) -> Origins | None:
    """Where the tokens of these steps came from, according to `Step.places`. None if unknown: accepted drafts without
    token ids, a `synthetic` drafter, or an n-gram drafter whose steps record no copies."""
    parts = re.split(r"[:+]", drafter)
    accepted = [step for step in done if step.num_accepted]
    silent = "ngram" in parts and accepted and not any(step.copied or step.sources for step in accepted)
    if silent or "synthetic" in parts or any(step.num_unknown for step in accepted):
        return None
    prompt = completion = 0
    for step in accepted:
        places = step.places
        for i in step.kept:
            prompt += 0 <= places[i] < num_prompt_tokens
            completion += places[i] >= num_prompt_tokens
    num = sum(step.num_accepted for step in done)
    own = sum(len(step.token_ids) for step in done) - num
    return Origins(prompt, completion, num - prompt - completion, own)


class Costs(NamedTuple):
    """A lane's seconds: the ideal (every step as cheap as a plain one); drafting; the extra time of passes over more
    tokens, and of choosing among them; the rest, which may be negative."""

    ideal_s: float
    drafting_s: float
    wider_s: float
    rest_s: float


@dataclass(frozen=True)
class Compared:
    """The two lanes whose ratio a race shows, each cut after the step that reaches the number of tokens both wrote; see
    `compared`.

    prefill_s: of the plain lane and of the other, in seconds; None if unknown."""

    plain: Sequence[Step]
    lane: Sequence[Step]
    speedup: float
    prefill_s: tuple[float | None, float | None]

    @property
    def tokens_per_step(self) -> float:
        """L, for the speculative lane."""
        return num_tokens_of(self.lane) / len(self.lane)

    @property
    def plain_s(self) -> float:
        """p: mean seconds of a plain token."""
        return seconds_of(self.plain) / num_tokens_of(self.plain)

    def costs(self) -> Costs:
        """Where the lane's seconds went; the parts add up to the seconds of its steps. The extra cost of a wider step
        is the median verification time at its width minus the plain lane's median step."""
        by_width = grouped((step.width, step.verify_s) for step in self.lane)
        plain_s = percentile([step.seconds for step in self.plain], 0.5) or 0.0
        ideal = len(self.lane) * self.plain_s
        drafting = sum(step.draft_s for step in self.lane)
        wider = sum(len(all_s) * ((percentile(all_s, 0.5) or 0.0) - plain_s) for all_s in by_width.values())
        return Costs(ideal, drafting, wider, seconds_of(self.lane) - ideal - drafting - wider)

    @property
    def with_prefill(self) -> float | None:
        """The speed-up with both lanes' prefill; None if unknown."""
        plain_prefill, lane_prefill = self.prefill_s
        if plain_prefill is None or lane_prefill is None:
            return None
        return (plain_prefill + self.plain_s * num_tokens_of(self.lane)) / (lane_prefill + seconds_of(self.lane))

    def before_the_loop(self) -> tuple[int, float | None] | None:
        """For a looping text, the number of tokens before the loop and the speed-up over them; None for any other."""
        start = loop_start(with_counters(self.lane))
        return None if start is None else (start, speedup(until(self.plain, start), self.lane))


def compared(
    events: Sequence[LaneEvent], lane: str = SPECULATIVE, plain: str = PLAIN, baseline: str = BASELINE
) -> Compared | None:
    """A lane and the plain decoding that its `race_speedup` refers to. None if there is no such ratio, or an impossible
    one (see MAX_SPEEDUP)."""
    plain = fastest_plain(events, lane, plain, baseline)
    alone, done = steps(events, plain), steps(events, lane)
    gain, num = speedup(alone, done), min(num_tokens_of(alone), num_tokens_of(done))
    if gain is None or not 1 / MAX_SPEEDUP < gain < MAX_SPEEDUP:
        return None
    before = lane_metrics(events, plain).prefill_s, lane_metrics(events, lane).prefill_s
    return Compared(until(alone, num), until(done, num), gain, before)
