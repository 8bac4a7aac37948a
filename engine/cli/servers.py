"""`race` with some or all of its lanes on servers."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..remote.endpoint import PREFIX, Endpoint, Question, endpoints_of
from ..spec import LaneSpec, SamplingParams
from .arguments import number, setting, switch, words

if TYPE_CHECKING:
    from ..remote.race import RemoteRace

TIMEOUT_S, TOTAL = 60.0, 10
OPTIONS = (
    setting(
        "--model NAME",
        words,
        "servers: the model as they call it; LANE=NAME where lanes have different ones",
        [],
        action="append",
    ),
    switch("--same-device", "servers: they share a device, so lanes run one after the other"),
    setting(
        "--timeout S",
        number(0.1, 3600),
        f"servers: the longest silence in seconds, and {TOTAL} times that for the whole (default {TIMEOUT_S:g})",
    ),
)
LOCAL_LANES = ("target", "drafter", "k")
"""Options for lanes on this machine in addition to those on servers."""
LOCAL = ("audit", "tables", "threads")
"""Options of the local engine, without meaning for a server."""
LOCAL_WORDS = {"rule": "coupled", "width": "auto", "dtype": "auto", "device": "auto"}


def has_local_lanes(options: Namespace) -> bool:
    """Whether this machine decodes any lane of the race that these options define."""
    on_servers = [spec.startswith(PREFIX) for _, spec, _ in options.lane]
    return not on_servers or not all(on_servers) or bool(_given(options, LOCAL_LANES))


def _given(options: Namespace, names: Sequence[str]) -> list[str]:
    return [name for name in names if getattr(options, name) not in (None, False)]


def servers_from(options: Namespace, here: Sequence[LaneSpec]) -> list[Endpoint]:
    """The servers that --lane names; [] if none. here: the lanes on this machine. Raises UsageError."""
    servers = [(name, spec) for name, spec, _ in options.lane if spec.startswith(PREFIX)]
    if not servers:
        if options.model or options.same_device or options.timeout is not None:
            raise UsageError(f"--model, --same-device and --timeout are for lanes on servers: --lane NAME={PREFIX}URL")
        return []
    given = _given(options, LOCAL) + [name for name, usual in LOCAL_WORDS.items() if getattr(options, name) != usual]
    if given and not here:
        raise UsageError(
            f"--{given[0]} is for lanes on this machine; a server decides it itself. --target, --drafter or --k adds "
            "this machine's lanes"
        )
    if options.tables and here:
        raise UsageError("--tables is for races without servers; the local lanes' tokens are the same in both")
    taken = {lane.name for lane in here}
    for name, _ in servers:
        if name in taken:
            raise UsageError(f"lane {name!r} runs on this machine in this race: give the server's another name")
    return endpoints_of(servers, options.model, os.environ)


def race_of_servers(endpoints: Sequence[Endpoint], options: Namespace, params: SamplingParams, text: str) -> RemoteRace:
    """The race that these options define. Raises UsageError."""
    from ..remote.client import Patience
    from ..remote.race import RemoteRace

    timeout_s = options.timeout or TIMEOUT_S
    question = Question(messages=(("user", text),)) if options.chat else Question(text)
    patience = Patience(timeout_s, TOTAL * timeout_s)
    return RemoteRace(endpoints, question, params, patience, options.same_device or options.solo)
