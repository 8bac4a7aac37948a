"""How acceptance depends on the text: its kind, whether it loops, and the form of its prompt."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ..analysis.loops import loop_sentence
from ..analysis.metrics import share
from ..core.errors import PhotofinishError, sentence
from ..core.events import Prompt
from ..core.spec import SamplingParams
from ..loading.loading import LoadedModel
from ..progress import Progress, silent
from ..studies.prompts.prompts import FilePrompt
from ..text import THINKING, encode_messages, encode_prompt, thinks_by_choice
from .findings import Finding
from .trial import MIN_DEVIATIONS, Trial, run

STRONG = 0.1  # two forms of a prompt differ strongly if first guesses differ by this share, and by MIN_DEVIATIONS
RAW, CHAT = "as plain text", "in the chat template"
CHANGES = {
    RAW: "Send plain text, as the drafter was trained on, or train it on text in the model's chat template",
    CHAT: "Send messages, so that the server applies the chat template that the drafter was trained with",
}


def text_findings(trial: Trial) -> Iterator[Finding]:
    """Evidence without judgement: acceptance by kind, and texts that loop."""
    if len(kinds := list(dict.fromkeys(trial.kinds))) > 1:
        shares = {kind: share([right for i, _, right in trial.positions() if trial.kinds[i] == kind]) for kind in kinds}
        says = ", ".join(f"{kind} {shares[kind]:.0%}" for kind in sorted(shares, key=lambda kind: -shares[kind]))
        yield Finding("ok", "by kind", f"First guesses are right at: {says}.")
    if num := sum(loop_sentence(race.text.token_ids) is not None for race in trial.races):
        says = f"{num} of {len(trial.races)} texts repeat themselves, which is easy to guess: acceptance is overstated."
        yield Finding("ok", "loops", says)


def template_findings(
    loaded: LoadedModel,
    drafter: str,
    prompts: Sequence[FilePrompt],
    params: SamplingParams,
    progress: Progress = silent,
) -> Iterator[Finding]:
    """The drafter on the same prompts as plain text, in the model's chat template, and with thinking on and off if the
    template knows it. Nothing for a model without a template."""
    if not getattr(loaded.tokenizer, "chat_template", None):
        return

    def trial(encode: Callable[[str], Prompt]) -> Trial:
        encoded = [(prompt.kind, encode(prompt.text)) for prompt in prompts]
        return run(loaded, drafter, encoded, params, progress=progress)

    def in_template(thinking: bool | None, text: str) -> Prompt:
        return encode_messages(loaded.tokenizer, [{"role": "user", "content": text}], thinking)

    modes = {f"{CHAT} with thinking {word}": word == "on" for word in ("on", "off")}
    try:
        trials = {RAW: trial(partial(encode_prompt, loaded.tokenizer))} | {
            name: trial(partial(in_template, thinking))
            for name, thinking in (modes if thinks_by_choice(loaded.tokenizer) else {CHAT: None}).items()
        }
    except PhotofinishError as error:
        change = "Repair the template, or serve the model with one that works"
        yield Finding("doubt", "chat template", sentence(str(error)), change)
        return
    right = {name: trial.right() for name, trial in trials.items()}
    says = "; ".join(
        f"{name} at {share(right[name]):.0%} (mean acceptance length {trial.mean_acceptance_length:.2f})"
        for name, trial in trials.items()
    )
    best, worst = (pick(right, key=lambda name: share(right[name])) for pick in (max, min))
    if not _differ(right[best], right[worst]):
        yield Finding("ok", "chat template", f"First guesses are right {says}.")
        return
    change = CHANGES[RAW] if best == RAW else CHANGES[CHAT]
    if best not in CHANGES:
        change += f", with {' or '.join(THINKING)} {'on' if best.endswith('on') else 'off'}"
    yield Finding("doubt", "chat template", f"First guesses are right {says}.", change)


def _differ(one: Sequence[bool], another: Sequence[bool]) -> bool:
    """Whether two shares differ strongly, and by more than chance would, of independent positions."""
    if not one or not another:
        return False
    together, gap = share([*one, *another]), share(one) - share(another)
    deviation = math.sqrt(together * (1 - together) * (1 / len(one) + 1 / len(another)))
    return gap > max(STRONG, MIN_DEVIATIONS * deviation)
