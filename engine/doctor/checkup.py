"""The whole check-up of a target and a drafter: first their files, then a trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from ..drafters import check
from ..drafters import parse as parse_drafter
from ..errors import PhotofinishError
from ..heads.names import HeadName, parse_name
from ..heads.spec import KINDS
from ..loading.heads import BUNDLED, load_head, read_tensors
from ..loading.loading import LoadedModel
from ..loading.sources import find
from ..progress import Progress, silent
from ..spec import SamplingParams
from .files import Files, read_files
from .findings import Finding, is_faulty
from .fits import head_findings, model_findings, target_findings
from .places import placed, slowest, struck, uncovered
from .trial import ToEncode, covered, draft_findings, failed, run
from .variants import Variant, variants
from .worth import worth


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
            shipped = None if self._name.source else BUNDLED / self._kind
            self._head = read_files(self._name.source or self._kind, shipped)
        elif self._kind == "draft_model":
            self._head = read_files(self._argument)

    def before_weights(self) -> Iterator[Finding]:
        """From configuration files and the shapes of tensors."""
        yield from target_findings(self._target)
        if self._head is None:
            return
        if self._kind == "draft_model":
            yield from model_findings(self._head, self._target)
        else:
            yield from head_findings(self._kind, self._name, self._head, self._target)

    def with_tokens(
        self,
        load: Callable[[], LoadedModel],
        prompts: Sequence[ToEncode],
        params: SamplingParams,
        progress: Progress = silent,
    ) -> Iterator[Finding]:
        """From a race of the drafter on a few prompts. load: loads the target. Raises UsageError if the target cannot
        be loaded."""
        loaded = load()
        with ExitStack() as stack:
            found: list[Variant] = []
            if self._head is not None and self._kind in KINDS:
                folder = self._folder(progress)
                found = stack.enter_context(variants(self._kind, self._name, folder, self._head, self._target))
            try:
                trial = run(loaded, self.drafter, prompts, params, [each.drafter for each in found], progress)
            except PhotofinishError as error:
                yield failed(error)
                return
            tried = [each for each in found if each.drafter in trial.variants]
            drafts = list(draft_findings(trial, tried, self._is_untrained))
        if self._kind in KINDS:
            ids = load_head(self._kind, self._name, loaded, progress).target_ids
            words = None if ids is None else set(ids.tolist())
            yield from placed(covered(trial, words), uncovered(trial.found, words))
        yield from placed(drafts, struck(trial.found, self.drafter))
        if not is_faulty(drafts):
            pays = worth(trial.found, trial.plain_s, self.drafter)
            yield from placed(pays, slowest(trial.found, trial.plain_s, self.drafter))

    def _folder(self, progress: Progress) -> Path:
        return find(self._name.source, progress).folder if self._name.source else BUNDLED / self._kind

    def _is_untrained(self) -> bool:
        """Whether every norm of the head is still 1, as before the first step of training."""
        if self._kind not in KINDS:
            return False
        tensors = read_tensors(self._folder(silent))
        norms = [value for name, value in tensors.items() if "norm" in name and value.dim() == 1]
        return bool(norms) and all(bool((value == 1).all()) for value in norms)
