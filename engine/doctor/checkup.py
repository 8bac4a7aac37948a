"""The whole check-up of a target and a drafter: first their files, then a trial."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..analysis.metrics import seconds_of
from ..core.errors import PhotofinishError, TemplateError, is_out_of_memory, sentence
from ..core.spec import SamplingParams
from ..drafters import check
from ..drafters import parse as parse_drafter
from ..heads.head_spec import KINDS
from ..heads.names import HeadName, parse_name
from ..loading.random_targets import read_published
from ..loading.sources import BUNDLED_HEADS, find
from ..progress import Progress, silent
from ..studies.prompts.prompts import FilePrompt
from ..text import unapplied
from ..what_if.judged import WhatIf
from . import K
from .before_loading import head_findings, model_findings, target_findings
from .drafter_worth import worth
from .files import Files, read_files
from .findings import Finding, broke, guarded, is_faulty

if TYPE_CHECKING:
    from ..core.events import Prompt
    from ..loading.loading import LoadedModel
    from .variants import Variant

Place = tuple[int | None, int | None]  # indexes of a race and of a token in its text; None: see `Finding`
NOWHERE: Place = (None, None)


class Checkup:
    """One target and one drafter. `before_weights` needs no weights; `with_tokens` loads them."""

    def __init__(self, target: str, drafter: str) -> None:
        """Raises UsageError for a drafter or a target that does not exist."""
        check(drafter)
        self.drafter = drafter
        self._kind, self._argument = parse_drafter(drafter)
        self._target = read_files(target)
        self._head: Files | None = None
        self._name = HeadName()
        if self._kind in KINDS:
            self._name = parse_name(self._kind, self._argument)
            shipped = None if self._name.source else BUNDLED_HEADS / self._kind
            self._head = read_files(self._name.source or self._kind, shipped)
        elif self._kind == "draft_model":
            self._head = read_files(self._argument)

    def before_weights(self) -> Iterator[Finding]:
        """From configuration files and the shapes of tensors."""
        for files in (self._target, self._head):
            if files is not None and files.refused:
                says = f"{files.name} is gated: the hub gives it only to those who accepted its terms."
                change = f"Accept the terms at {files.refused}, and set HF_TOKEN to a token of that account"
                yield Finding("fault", "access", says, change)
                return
        yield from guarded("target", lambda: target_findings(self._target))
        yield from guarded("penalties", self._penalties)
        if (head := self._head) is None:
            return
        if self._kind == "draft_model":
            yield from guarded("draft model", lambda: model_findings(head, self._target))
        else:
            yield from guarded("head", lambda: head_findings(self._kind, self._name, head, self._target))

    def with_tokens(
        self,
        load: Callable[[], LoadedModel],
        prompts: Sequence[FilePrompt],
        params: SamplingParams,
        progress: Progress = silent,
    ) -> Iterator[Finding]:
        """From a race of the drafter on a few prompts. load: loads the target. Raises UsageError if the target cannot
        be loaded."""
        from ..loading.load_head import load_head
        from .text_kinds import template_findings, text_findings
        from .trial import covered, draft_findings, run
        from .variants import variants

        loaded = load()
        with ExitStack() as stack:
            heads: list[Variant] = []
            untested: list[Finding] = []
            try:
                if self._head is not None and self._kind in KINDS:
                    embedding: Any = loaded.model.get_input_embeddings().weight
                    about = self._folder(progress), self._head, self._target, embedding.detach().cpu()
                    heads, untested = stack.enter_context(variants(self._kind, self._name, *about))
                encoded = [(prompt.kind, _encoded(prompt, loaded.tokenizer)) for prompt in prompts]
                raced = [i for i, (_, prompt) in enumerate(encoded) if not isinstance(prompt, TemplateError)]
                refused = [prompt for _, prompt in encoded if isinstance(prompt, TemplateError)]
                if refused and not raced:
                    raise refused[0]
                trial = run(loaded, self.drafter, encoded, params, [variant.drafter for variant in heads], progress)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                change, is_told = "Fix this first; nothing else could be tried", isinstance(error, PhotofinishError)
                yield Finding("fault", "race", sentence(str(error)), change) if is_told else broke("race", error)
                return
            tried = [variant for variant in heads if variant.drafter in trial.tables]
            if num := len(heads) - len(tried):
                says = f"{num} of {len(heads)} changed heads could not be run: nothing is known of these changes."
                untested.append(Finding("untested", "settings", says))
            drafts = list(guarded("acceptance", lambda: draft_findings(trial, tried, self._is_untrained)))

        untested += [Finding("untested", "prompt", sentence(str(error))) for error in refused]

        def reduced() -> Iterator[Finding]:
            ids = load_head(self._kind, self._name, loaded, progress).target_ids
            words = None if ids is None else set(ids.tolist())
            return placed(covered(trial, words), uncovered(trial.races, words), raced)

        def pays() -> Iterator[Finding]:
            findings = worth(trial.races, trial.plain_s, self.drafter)
            return placed(findings, slowest(trial.races, trial.plain_s, self.drafter), raced)

        if self._kind in KINDS:
            yield from guarded("reduced vocabulary", reduced)
        yield from guarded("acceptance", lambda: placed(drafts, struck(trial.races, self.drafter), raced))
        yield from guarded("texts", lambda: text_findings(trial))
        yield from untested
        if not is_faulty(drafts):
            if self._head is not None:
                forms = partial(template_findings, loaded, self.drafter, [prompts[i] for i in raced], params, progress)
                yield from guarded("chat template", forms)
            yield from guarded("worth it", pays)

    def _penalties(self) -> Iterator[Finding]:
        given = read_published(path) if (path := self._target.file("generation_config.json")) else {}
        if says := unapplied(SimpleNamespace(**given)):
            yield Finding("untested", "penalties", sentence(says))

    def _folder(self, progress: Progress) -> Path:
        return find(self._name.source, progress).folder if self._name.source else BUNDLED_HEADS / self._kind

    def _is_untrained(self) -> bool:
        """Whether every norm of the head is still 1, as before the first step of training."""
        if self._kind not in KINDS:
            return False
        from ..loading.load_head import read_tensors

        tensors = read_tensors(self._folder(silent))
        norms = [value for name, value in tensors.items() if "norm" in name and value.dim() == 1]
        return bool(norms) and all(bool((value == 1).all()) for value in norms)


def placed(findings: Iterable[Finding], place: Place, raced: Sequence[int]) -> Iterator[Finding]:
    """The findings; those that are not ok show at this place. raced: the prompts of the races."""
    prompt = None if place[0] is None else raced[place[0]]
    for finding in findings:
        yield finding if finding.level == "ok" else replace(finding, prompt=prompt, position=place[1])


def struck(races: Sequence[WhatIf], drafter: str) -> Place:
    """The first step of the races that kept none of its guesses."""
    steps = ((i, step) for i, race in enumerate(races) for step in race.steps(drafter, K))
    return next(((i, step.position) for i, step in steps if step.num_drafted and not step.num_accepted), NOWHERE)


def uncovered(races: Sequence[WhatIf], words: Collection[int] | None) -> Place:
    """The first token of the texts that is not among these."""
    tokens = ((i, at, token) for i, race in enumerate(races) for at, token in enumerate(race.text.token_ids))
    return next(((i, at) for i, at, token in tokens if words is not None and token not in words), NOWHERE)


def slowest(races: Sequence[WhatIf], plain_s: Sequence[float], drafter: str) -> Place:
    """The prompt on which the drafter costs most time, or gains least.

    plain_s: seconds of each race's plain lane."""
    pairs = zip(races, plain_s, strict=True)
    lost_s = [seconds_of(race.steps(drafter, K)) - plain for race, plain in pairs]
    return lost_s.index(max(lost_s)), None


def _encoded(prompt: FilePrompt, tokenizer: Any) -> Prompt | TemplateError:
    try:
        return prompt.encode(tokenizer)
    except TemplateError as error:
        return error
