"""What a check-up found. Standard library only."""

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ..core.errors import UsageError, is_out_of_memory, sentence, words
from ..core.values import one_of
from ..recordings.recording import OUTPUT_SCHEMA
from ..remote.endpoint import Endpoint
from ..strict_json import COUNT, NAME, TEXT, AtMost, IfThere, fits, parse

log = logging.getLogger(__name__)

# untested: nothing could be compared, so it says nothing for or against.
Level = Literal["fault", "doubt", "ok", "untested"]
FORMAT, MAX_BYTES = "photofinish-checkup", 16 * 1024**2
FINDING = {
    "level": one_of(get_args(Level)),
    "check": NAME,
    "says": TEXT,
    "change": IfThere(TEXT),
    "prompt": IfThere(COUNT),
    "position": IfThere(COUNT),
}
SIDES = IfThere(AtMost(2, NAME))
# What a report is of: a pair on this machine, or servers.
ABOUT = {"target": IfThere(TEXT), "drafter": IfThere(TEXT), "lanes": SIDES, "models": SIDES}
# Checks of servers that say nothing about their speed.
OF_TEXTS = ("repeats", "seed", "sampling", "sampled as reported", "texts", "batches", "JSON schema", "tool calls",
            "cold and warm")  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One line of the checklist.

    check: what was looked at, in a word or two.
    says: the evidence, a sentence with figures.
    change: what to do about it, the exact option or edit; "" for nothing.
    prompt, position: where it shows, if it does: the indexes of the prompt in the check-up and of the token in its
        text, both from 0. Without a position it is the whole text."""

    level: Level
    check: str
    says: str
    change: str = ""
    prompt: int | None = None
    position: int | None = None


BROKE, REPORT = "This check failed: ", "Report the failed check, with its traceback in the log of this program"


def broke(check: str, error: Exception, hide: Callable[[str], str] = str) -> Finding:
    """A check that raised, which says nothing for or against what it examines. Logs the traceback. hide: removes
    secrets from a text."""
    log.warning("the check %r failed\n%s", check, hide("".join(traceback.format_exception(error))))
    return Finding("untested", check, BROKE + hide(sentence(words(error))), REPORT)


def guarded(check: str, examine: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of a check; if it raises, those before, and a last one that says so."""
    try:
        yield from examine()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        yield broke(check, error)


def is_broken(findings: Sequence[Finding]) -> bool:
    """Whether a check failed."""
    return any(finding.says.startswith(BROKE) for finding in findings)


def first(findings: Sequence[Finding]) -> Finding | None:
    """The finding to act on: a fault; else a doubt about speed, then one about texts; else what would make a test
    possible; None for nothing to do. Of equals the earliest: checks come in the order of causes, so an earlier fault
    explains later ones."""
    worth = (line for line in findings if line.level in ("fault", "doubt") or line.change)
    return min(worth, key=_rank, default=None)


def _rank(finding: Finding) -> int:
    if finding.level == "doubt":
        return 2 if finding.check in OF_TEXTS else 1
    return 0 if finding.level == "fault" else 3


def is_faulty(findings: Sequence[Finding]) -> bool:
    return any(finding.level == "fault" for finding in findings)


def to_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Without the members that are None."""
    return [{name: value for name, value in asdict(finding).items() if value is not None} for finding in findings]


def about_servers(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """What a report on servers says they are, without their addresses."""
    return {"lanes": [endpoint.lane for endpoint in endpoints], "models": [endpoint.model for endpoint in endpoints]}


def report(findings: Sequence[Finding], about: Mapping[str, Any]) -> dict[str, Any]:
    """What `doctor --json` prints. about: what was examined."""
    act = first(findings)
    known = {"schema": OUTPUT_SCHEMA, "format": FORMAT, **about, "findings": to_json(findings)}
    return known | {"first": to_json([act])[0] if act else None}


def open_report(text: str) -> dict[str, Any]:
    """The report in a file that `doctor --json` or the page made. Raises UsageError."""
    whole = parse(text.encode("utf-8", "surrogatepass"), MAX_BYTES)
    fits(whole, {"findings": [FINDING], **ABOUT})
    is_pair, num_lanes = {"target", "drafter"} <= whole.keys(), len(whole.get("lanes", ()))
    if whole.get("format") != FORMAT or not (is_pair or num_lanes == len(whole.get("models", ())) > 0):
        raise UsageError("it is no check-up, or does not say of which target and drafter, or lanes and models")
    findings = [Finding(**{name: raw[name] for name in FINDING if name in raw}) for raw in whole["findings"]]
    return report(findings, {name: whole[name] for name in ABOUT if name in whole})
