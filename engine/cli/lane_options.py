"""The lanes of a race: one speculative lane from --drafter and --k, or one for each --lane, all here or all on
servers."""

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence

from ..core.errors import UsageError
from ..core.spec import AUTO, BASELINE, MAX_AUTO_K, MAX_K, MAX_LANES, PLAIN, SPECULATIVE, LaneSpec, lanes_of
from ..drafters import check as check_drafter
from ..remote.endpoint import PREFIX, Endpoint, endpoints_of
from .arguments import draft_size, model, number, repeated, setting, shown, switch, words

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
MODEL = repeated("--model NAME", words, "servers: the model as they call it; LANE=NAME where lanes have different ones")
SAME_DEVICE = switch("--same-device", "servers: they share a device, so lanes run one after the other")
MESSAGES = switch("--chat", "servers: send each prompt as a user's message, to the chat endpoint")
SERVERS = (
    MODEL,
    CACERT,
    SAME_DEVICE,
    setting(
        "--timeout S",
        number(0.1, 3600),
        f"servers: the longest silence in seconds, and {TOTAL} times that for the whole (default {TIMEOUT_S:g})",
    ),
)
# Options for a model on this machine, which mean nothing for a server, as they are if nobody gives them.
LOCAL = {
    **dict.fromkeys(("target", "drafter", "k", "threads")),
    **dict.fromkeys(("audit", "tables", "files_only", "generate", "no_thinking"), False),
    **dict.fromkeys(("width", "dtype", "device"), "auto"),
    "rule": "coupled",
}


def given_lane(text: str) -> tuple[str, str, int | str]:
    """NAME=DRAFTER[@K] -> (name, drafter, k). A server's URL is kept whole, and out of errors."""
    name, _, drafting = model(text).partition("=")
    if drafting.startswith(PREFIX) and name:
        return _named(name), drafting, AUTO
    drafter, _, k = drafting.rpartition("@") if "@" in drafting else (drafting, "", AUTO)
    if not (name and drafter):
        given = "" if PREFIX in text else f", not {shown(text)}"
        raise ArgumentTypeError(f"must be NAME=DRAFTER, NAME=DRAFTER@K or NAME={PREFIX}URL{given}")
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
    setting("--drafter D", model, f"name or name:argument (default {DEFAULT_DRAFTER})"),
    setting(
        "--k K",
        draft_size(0, MAX_K),
        f"draft tokens a step, or auto: as many as pay, up to {MAX_AUTO_K} (default {DEFAULT_K})",
    ),
    repeated(
        "--lane NAME=SPEC",
        given_lane,
        "a speculative lane of that name, instead of --drafter and --k; SPEC is DRAFTER@K, or DRAFTER for k auto, "
        f"or {PREFIX}URL for a server if all lanes are on servers; may be given again",
    ),
)


def lanes_from(options: Namespace) -> tuple[LaneSpec, ...]:
    """The lanes on this machine that these options define, their drafters checked. Raises UsageError."""
    if options.lane and (options.drafter, options.k) != (None, None):
        raise UsageError("--lane says which drafters race and with which k: give it without --drafter and --k")
    k = DEFAULT_K if options.k is None else options.k
    drafting = options.lane or [(SPECULATIVE, options.drafter or DEFAULT_DRAFTER, k)]
    for _, drafter, _ in drafting:
        check_drafter(drafter)
    return lanes_of(drafting, options.width, options.rule)


def servers_from(options: Namespace) -> list[Endpoint]:
    """The servers that --lane of a race names; [] if its lanes are on this machine. Raises UsageError."""
    lanes = options.lane if any(spec.startswith(PREFIX) for _, spec, _ in options.lane) else []
    return servers_of(lanes, options, ("model", "same_device", "timeout"))


def servers_of(
    lanes: Sequence[tuple[str, str, int | str]],
    options: Namespace,
    of_servers: Sequence[str] = (),
    most: int = MAX_LANES,
    with_plain: bool = False,
    one_model: bool = False,
) -> list[Endpoint]:
    """The servers that these lanes name. of_servers: options that mean nothing without any. most: how many there may
    be. with_plain: whether one of them must have a plain lane's name. one_model: whether all must have one model, since
    texts are compared. Raises UsageError for an option of the other kind, for a lane on this machine and for other
    lanes."""
    if not lanes and (given := [name for name in of_servers if getattr(options, name)]):
        raise UsageError(f"{_flag(given[0])} is for servers: --lane NAME={PREFIX}URL")
    if not all(spec.startswith(PREFIX) for _, spec, _ in lanes):
        raise UsageError(f"every --lane must be NAME={PREFIX}http://HOST:PORT/v1: servers do not mix with lanes here")
    if lanes and (given := [name for name, usual in LOCAL.items() if getattr(options, name, usual) != usual]):
        raise UsageError(f"{_flag(given[0])} is for a model on this machine: give it without a server's --lane")
    names = {name: spec for name, spec, _ in lanes}
    if len(names) < len(lanes) or len(lanes) > most or (lanes and with_plain and not {PLAIN, BASELINE} & names.keys()):
        plain = f", one of them {PLAIN} or {BASELINE}" * with_plain
        named = ", ".join(name for name, _, _ in lanes)
        raise UsageError(f"there must be at most {most} lanes with different names{plain}, not {named}")
    endpoints = endpoints_of(list(names.items()), options.model or (), os.environ)
    models = dict.fromkeys(endpoint.model for endpoint in endpoints)
    if one_model and len(models) > 1:
        raise UsageError(f"a study compares texts, so all lanes must have one --model, not {', '.join(models)}")
    return endpoints


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
