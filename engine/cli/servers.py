"""A race of servers on the command line: what `race` does where its lanes are on servers."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..remote.endpoint import PREFIX, Endpoint, Question, endpoints_of
from ..spec import SamplingParams
from .arguments import number, option, words

if TYPE_CHECKING:
    from ..remote.race import RemoteRace

TIMEOUT_S, TOTAL = 60.0, 10
OPTIONS = (
    option(
        "--model",
        metavar="NAME",
        type=words,
        action="append",
        default=[],
        help="servers: the model as they call it; LANE=NAME where lanes have different ones",
    ),
    option("--same-device", action="store_true", help="servers: they share a device, so lanes run one after the other"),
    option(
        "--timeout",
        metavar="S",
        type=number(0.1, 3600),
        help=f"servers: the longest silence in seconds, and {TOTAL} times that for the whole (default {TIMEOUT_S:g})",
    ),
)
LOCAL = ("target", "drafter", "k", "audit", "tables", "threads")
"""Options of the local engine, which mean nothing to a server."""
LOCAL_WORDS = {"rule": "coupled", "width": "auto", "dtype": "auto", "device": "auto"}


def servers_asked(options: Namespace) -> list[Endpoint]:
    """The servers that --lane names; [] where it names none. Raises UsageError."""
    servers = [(name, spec) for name, spec, _ in options.lane if spec.startswith(PREFIX)]
    if not servers:
        if options.model or options.same_device or options.timeout is not None:
            raise UsageError(f"--model, --same-device and --timeout are for lanes on servers: --lane NAME={PREFIX}URL")
        return []
    if len(servers) < len(options.lane):
        raise UsageError("all lanes of a race are on servers, or all on this machine: their times are not comparable")
    given = [name for name in LOCAL if getattr(options, name) not in (None, False)]
    given += [name for name, usual in LOCAL_WORDS.items() if getattr(options, name) != usual]
    if given:
        raise UsageError(f"--{given[0]} is for lanes on this machine; a server decides it itself")
    return endpoints_of(servers, options.model, os.environ)


def race_of_servers(endpoints: Sequence[Endpoint], options: Namespace, params: SamplingParams, text: str) -> RemoteRace:
    """The race that these options ask for. Raises UsageError."""
    from ..remote.client import Patience
    from ..remote.race import RemoteRace

    timeout_s = options.timeout or TIMEOUT_S
    question = Question(messages=(("user", text),)) if options.chat else Question(text)
    patience = Patience(timeout_s, TOTAL * timeout_s)
    return RemoteRace(endpoints, question, params, patience, options.same_device or options.solo)
