"""The lanes of a race: one speculative lane from --drafter and --k, or one for each --lane, here or on a server."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.errors import UsageError
from ..core.spec import AUTO, BASELINE, MAX_AUTO_K, MAX_K, PLAIN, SPECULATIVE, LaneSpec, SamplingParams, lanes_of
from ..drafters import check as check_drafter
from ..remote.endpoint import PREFIX, Endpoint, endpoints_of
from ..remote.request import Question
from .arguments import draft_size, number, setting, shown, switch, words

if TYPE_CHECKING:
    from ..remote.server_race import RemoteRace

DEFAULT_DRAFTER, DEFAULT_K = "ngram", 7
MAX_NAME = 40
TIMEOUT_S, TOTAL = 60.0, 10


def authority(file: str) -> str:
    """Trust the servers whose certificates this file's authority has signed, from now on."""
    from ..remote.client import trust

    try:
        trust(words(file))
    except UsageError as error:
        raise ArgumentTypeError(str(error)) from error
    return file


CACERT = setting("--cacert FILE", authority, "servers: the certificate (PEM) of the authority of theirs (https)")
SERVERS = (
    setting(
        "--model NAME",
        words,
        "servers: the model as they call it; LANE=NAME where lanes have different ones",
        [],
        action="append",
    ),
    CACERT,
    switch("--same-device", "servers: they share a device, so lanes run one after the other"),
    setting(
        "--timeout S",
        number(0.1, 3600),
        f"servers: the longest silence in seconds, and {TOTAL} times that for the whole (default {TIMEOUT_S:g})",
    ),
)
LOCAL_LANES = ("target", "drafter", "k")  # options for lanes on this machine in addition to those on servers
LOCAL = ("audit", "tables", "threads")  # options of the local engine, which mean nothing for a server
LOCAL_WORDS = {"rule": "coupled", "width": "auto", "dtype": "auto", "device": "auto"}


def given_lane(text: str) -> tuple[str, str, int | str]:
    """NAME=DRAFTER[@K] -> (name, drafter, k). A server's URL is kept whole, and out of errors."""
    name, _, drafting = words(text).partition("=")
    if drafting.startswith(PREFIX) and name:
        return _named(name), drafting, AUTO
    drafter, _, k = drafting.rpartition("@") if "@" in drafting else (drafting, "", AUTO)
    if not (name and drafter):
        given = "" if PREFIX in text else f", not {shown(text)}"
        raise ArgumentTypeError(f"must be NAME=DRAFTER or NAME=DRAFTER@K{given}")
    if _named(name) in (PLAIN, BASELINE):
        raise ArgumentTypeError(f"NAME must not be {PLAIN} or {BASELINE}: both lanes run in every race")
    try:
        return name, drafter, draft_size(0, MAX_K)(k)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"K, after the last @ of {shown(text)}, {error}") from error


def _named(name: str) -> str:
    if len(name) > MAX_NAME or not name.isprintable():
        raise ArgumentTypeError(f"NAME must have at most {MAX_NAME} characters, all visible, not {shown(name)}")
    return name


LANES = (
    setting("--drafter D", words, f"name or name:argument (default {DEFAULT_DRAFTER})"),
    setting(
        "--k K",
        draft_size(0, MAX_K),
        f"draft tokens a step, or auto: as many as pay, up to {MAX_AUTO_K} (default {DEFAULT_K})",
    ),
    setting(
        "--lane NAME=SPEC",
        given_lane,
        "a speculative lane of that name, instead of --drafter and --k; SPEC is DRAFTER@K, or DRAFTER for k auto, "
        f"or {PREFIX}URL for a server, with or without --drafter; may be given again",
        [],
        action="append",
    ),
)


def lanes_from(options: Namespace) -> tuple[LaneSpec, ...]:
    """The local lanes of the race that these options define, their drafters checked. Raises UsageError."""
    own = [lane for lane in options.lane if not lane[1].startswith(PREFIX)]
    if own and (options.drafter, options.k) != (None, None):
        raise UsageError("--lane says which drafters race and with which k: give it without --drafter and --k")
    k = DEFAULT_K if options.k is None else options.k
    drafting = own or [(SPECULATIVE, options.drafter or DEFAULT_DRAFTER, k)]
    for _, drafter, _ in drafting:
        check_drafter(drafter)
    return lanes_of(drafting, options.width, options.rule)


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
    from ..remote.server_race import RemoteRace

    timeout_s = options.timeout or TIMEOUT_S
    question = Question(messages=(("user", text),)) if options.chat else Question(text)
    patience = Patience(timeout_s, TOTAL * timeout_s)
    return RemoteRace(endpoints, question, params, patience, options.same_device or options.solo)
