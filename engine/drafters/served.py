"""Which drafters a server can run, to this project's knowledge. Standard library only. Twin of `canServe` in
app/web/tabs/production.js, which makes the commands; compared by test_both_sides_know_the_same_servers."""

from ..core.spec import RANDOM
from . import parse
from .hybrid import parts_of

HEADS = ("eagle3", "dflash")
SERVED = ("ngram", "draft_model", *HEADS)


def is_served(target: str, drafter: str) -> bool:
    """Whether a server runs exactly this drafter for this target, at a fixed number of drafted tokens. None runs the
    heads that ship with this project."""
    name, argument = parse(drafter)
    if name == "hybrid":
        return is_served(target, parts_of(argument)[1])
    ships = name in HEADS and not argument.partition("#")[0]
    return name in SERVED and not ships and not target.startswith(RANDOM)


def served_parts(target: str, drafter: str) -> list[str]:
    """What a server runs of this drafter: a hybrid's parts, and itself."""
    name, argument = parse(drafter)
    parts = [*parts_of(argument), drafter] if name == "hybrid" else [drafter]
    return [part for part in parts if is_served(target, part)]
