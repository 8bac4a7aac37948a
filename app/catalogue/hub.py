"""Finds out in the background what takes time: the config.json of each pair on the hub, and what torch reports about
the GPU. Torch is imported here, in a thread, and only if there may be a GPU.

Only repositories named in `assets/pairs.json` are requested, never one that a visitor names."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from engine.core.errors import PhotofinishError, UsageError, in_a_line
from engine.loading.random_targets import MAX_CONFIG_BYTES
from engine.strict_json import parse

from .catalogue import Catalogue
from .fits import DAMAGED, repository
from .machine import Machine

# Time-out for the hub. There is none for torch: its first import can take minutes, and no race here runs without it.
CHECK_S = 30.0
HUB_TIMEOUT_S = 5.0
NO_HUB = "needs the model hub, which cannot be reached"
GATED = "is gated: accept its terms on the hub, set HF_TOKEN to a token that may read it, and restart this page"
NOT_THERE = "is not on the hub, or is private. For a private repository set HF_TOKEN to a token that may read it"
NO_CONFIG = "has no config.json on the hub"
log = logging.getLogger(__name__)


class Check:
    """Works out in a thread what is on offer. `found` is None until then; afterwards `then` is called with it. If that
    fails, the offer `at_first` stays."""

    def __init__(self, at_first: Catalogue, find: Callable[[], Catalogue], then: Callable[[Catalogue], None]) -> None:
        self.found: Catalogue | None = None
        self._at_first, self._find, self._then = at_first, find, then

    def start(self) -> None:
        threading.Thread(target=self._run, name="check", daemon=True).start()

    def _run(self) -> None:
        try:
            self.found = self._find()
        except Exception:
            log.exception("checking the pairs failed")
            self.found = self._at_first
        self._then(self.found)


def look(machine: Machine, pairs: Iterable[tuple[str, str]], gpu: Callable[[], Mapping[str, Any]]) -> Machine:
    """The machine with everything that can be found out about these pairs of target and drafter. `gpu`: see
    `TorchBackend.gpu`. Waits for that without limit, and for the hub at most CHECK_S."""
    pairs = list(pairs)
    names = {name for target, drafter in pairs for name in (target, repository(drafter)) if name}
    asked: list[Machine] = []
    asking = threading.Thread(target=lambda: asked.append(_ask_torch(machine, gpu)), name="ask", daemon=True)
    asking.start()
    answers = in_parallel({name: partial(ask_hub, name) for name in names}, CHECK_S)
    configs = {name: answers.get(name, NO_HUB) for name in names}
    asking.join()
    return replace(asked[0], configs=configs)


def ask_hub(name: str) -> Mapping[str, Any] | str:
    """A repository's config.json, or why it is unavailable, to continue after "it". One request, because the cache of
    the hub's client does not tell whether the hub answers now."""
    from huggingface_hub import get_session, get_token, hf_hub_url

    token = get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = get_session().get(
            hf_hub_url(name, "config.json"), headers=headers, timeout=HUB_TIMEOUT_S, follow_redirects=True
        )
    except Exception:  # anything that the network or the hub's client may raise
        log.info("asking the hub for %s failed", name, exc_info=True)
        return NO_HUB
    error = answer.headers.get("X-Error-Code")
    if answer.status_code == 403 or error == "GatedRepo":
        return GATED
    if answer.status_code in (401, 404):
        return NO_CONFIG if error == "EntryNotFound" else NOT_THERE
    if answer.status_code != 200:
        return NO_HUB
    try:
        config = parse(answer.content, MAX_CONFIG_BYTES)
    except UsageError:
        return DAMAGED
    return config if isinstance(config, dict) else DAMAGED


def _ask_torch(machine: Machine, gpu: Callable[[], Mapping[str, Any]]) -> Machine:
    try:
        return replace(machine, **gpu())
    except PhotofinishError as error:
        return replace(machine, gpu_bytes=0, no_gpu=str(error))
    except Exception as error:  # torch may be missing, or not fit the driver
        log.info("torch cannot report the GPU's memory", exc_info=True)
        return replace(machine, gpu_bytes=0, no_gpu=f"torch failed: {in_a_line(error)}")


def in_parallel(jobs: Mapping[str, Callable[[], Any]], timeout_s: float) -> dict[str, Any]:
    """The results of the jobs that returned within that time. (Looking up a host's name has no time-out of its own.)"""
    results: dict[str, Any] = {}
    threads = [
        threading.Thread(target=lambda key=key, job=job: results.update({key: job()}), name="ask", daemon=True)
        for key, job in jobs.items()
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(results)
