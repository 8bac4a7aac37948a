"""What takes time to find out of the pairs on the hub, beside the page: their config.json alone, and what
torch says is free on the GPU. Torch is imported here, in a thread, and only where there may be a GPU.

What is asked for is what `assets/pairs.json` names. No visitor's request leads here."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from engine.errors import PhotofinishError, UsageError, in_a_line
from engine.models.random_targets import MAX_CONFIG_BYTES
from engine.strict_json import parse

from .catalogue import Catalogue
from .fits import DAMAGED, repository
from .machine import Machine

CHECK_S = 30.0
"""After which the page goes on with what is known: importing torch takes seconds, and a broken driver for ever."""
HUB_TIMEOUT_S = 5.0
NO_HUB = "needs the model hub, which does not answer from here"
GATED = "is gated: accept its terms on the hub, then start this page with HF_TOKEN set to a token that may read it"
NOT_THERE = "is not on the hub, or private; a private one needs HF_TOKEN set to a token that may read it"
NO_CONFIG = "has no config.json on the hub"
HEADS = ("eagle3:", "dflash:")
TORCH = object()
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
log = logging.getLogger(__name__)


class Check:
    """Finds out in a thread of its own what is on offer: `found`, None until then. Then calls `then` with it. Where
    that fails, it is what was on offer `at_first`."""

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


def look(machine: Machine, pairs: Iterable[tuple[str, str]], gpu_bytes: Callable[[], int]) -> Machine:
    """The same machine with all that can be found out about these pairs of target and drafter. Takes at most
    CHECK_S."""
    pairs = list(pairs)
    names = {name for target, drafter in pairs for name in (target, repository(drafter)) if name}
    jobs: dict[Any, Callable[[], Any]] = {name: partial(ask_hub, name) for name in names}
    answers: dict[Any, Any] = beside({**jobs, TORCH: partial(_ask_torch, gpu_bytes)}, CHECK_S)
    free, why = answers.pop(TORCH, (0, f"torch did not say within {CHECK_S:.0f} s"))
    configs = {name: answers.get(name, NO_HUB) for name in names}
    if free:
        heads = [(target, drafter) for target, drafter in pairs if drafter.startswith(HEADS)]
        configs |= {repository(drafter): _head(configs, target, drafter) for target, drafter in heads}
    return replace(machine, gpu_bytes=free, no_gpu=why, configs=configs)


def ask_hub(name: str) -> Mapping[str, Any] | str:
    """A repository's config.json, or why it cannot be had, as it follows on "it". One request: what the hub's client
    has in its cache says nothing of whether the hub answers now."""
    from huggingface_hub import get_session, get_token, hf_hub_url

    token = get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = get_session().get(
            hf_hub_url(name, "config.json"), headers=headers, timeout=HUB_TIMEOUT_S, follow_redirects=True
        )
    except Exception:  # whatever the network or the hub's client come up with
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


def _ask_torch(gpu_bytes: Callable[[], int]) -> tuple[int, str]:
    try:
        return gpu_bytes(), ""
    except PhotofinishError as error:
        return 0, str(error)
    except Exception as error:  # torch may be missing, or not fit the driver
        log.info("torch cannot be asked for the GPU's memory", exc_info=True)
        return 0, f"torch cannot be asked: {in_a_line(error)}"


def _head(configs: Mapping[str, Mapping[str, Any] | str], target: str, drafter: str) -> Mapping[str, Any] | str:
    """The configuration of a pair's head; if the engine does not do it, why not."""
    name = repository(drafter)
    config, of_target = configs[name], configs[target]
    if isinstance(config, str) or isinstance(of_target, str):
        return config
    from engine.heads.formats import spec_of
    from engine.heads.names import parse_name
    from engine.model.published import text_part

    kind, _, argument = drafter.partition(":")
    given = parse_name(kind, argument)
    try:
        spec_of(config, name, kind, text_part(of_target)["num_hidden_layers"], given.aux, given.causal)
    except PhotofinishError as error:
        return f"this engine does not read: {error}"
    except Exception:  # a target's configuration can be wrong in any way
        return DAMAGED
    return config


def beside(jobs: Mapping[K, Callable[[], V]], timeout_s: float) -> dict[K, V]:
    """What each job returned, of those that did by then: a look-up of a name or a broken driver know no timeout of
    their own."""
    found: dict[K, V] = {}
    threads = [
        threading.Thread(target=lambda key=key, job=job: found.update({key: job()}), name="ask", daemon=True)
        for key, job in jobs.items()
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(found)
