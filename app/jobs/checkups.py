"""Check-ups on the page: each keeps the device until it is over, and its findings come one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from engine.doctor.defaults import K
from engine.doctor.findings import Finding, report
from engine.progress import Progress

from ..catalogue.request import CheckUpRequest
from .frames import ENDED
from .studies import Study
from .worker import Halt


class Backend(Protocol):
    def examined(self, request: CheckUpRequest) -> dict[str, Any]: ...
    def check_up(self, request: CheckUpRequest, progress: Progress) -> Iterator[Finding]: ...


class CheckUp(Study):
    """Its rows are findings."""

    def __init__(self, backend: Backend, request: CheckUpRequest) -> None:
        super().__init__(())
        self._backend, self._request = backend, request

    def work(self) -> None:
        self._progress("Reading the files.", None)
        try:
            for finding in self._backend.check_up(self._request, self._progress):
                self.rows.append(finding)
        except BaseExceptionGroup as group:  # of tasks that ask servers
            if self.stopped.is_set():
                raise Halt from group
            raise
        self.is_complete = True

    def frame(self) -> dict[str, Any]:
        request, findings = self._request, tuple(self.rows)
        about = self._backend.examined(request)
        return {
            "servers": about.pop("servers", None),
            "share": None if self.state in ENDED else self.share,
            "params": {name: getattr(request.params, name) for name in ("temperature", "seed", "max_new_tokens")},
            "chat": request.as_messages,
            "report": report(findings, about),
            "races": {finding.prompt: self._race(finding.prompt) for finding in findings if finding.prompt is not None},
        }

    def _race(self, index: int) -> dict[str, Any] | None:
        """The settings that race this prompt on the page as the check-up did; None for a conversation, which the prompt
        box cannot hold, and for a turn as long as it is not known whether the model has a chat template."""
        request, prompt = self._request, self._request.prompts[index]
        roles, params = [role for role, _ in prompt.messages], request.params
        if roles not in ([], ["user"]) or (roles and request.pair.chat is None):
            return None
        return {
            "prompt": prompt.text,
            "chat": bool(roles and request.pair.chat),
            "drafter": request.drafter,
            "k": str(K),
            "temperature": params.temperature,
            "top_p": params.top_p,
            "seed": params.seed + index,
            "max_new_tokens": params.max_new_tokens,
            "rule": "coupled",
        }
