"""The lanes of a race: one speculative lane from --drafter and --k, or one for each --lane."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace

from ..drafters import check as check_drafter
from ..errors import UsageError
from ..remote.endpoint import PREFIX
from ..spec import AUTO, BASELINE, MAX_AUTO_K, MAX_K, PLAIN, SPECULATIVE, LaneSpec, lanes_of
from .arguments import draft_size, setting, shown, words

DEFAULT_DRAFTER, DEFAULT_K = "ngram", 7
MAX_NAME = 40


def _lane(text: str) -> tuple[str, str, int | str]:
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
        _lane,
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
