"""The words and limits of every result: are two texts the same, and does speculation pay? Standard library only.

Terminal, page, exported page, stage, studies, servers and check-up take them from here; the page's programs get them as
the constant SAYS. docs/read_a_race.md lists them, compared by test_docs_list_the_words_of_verdicts."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class VerdictWords:
    """A verdict on two texts.

    sign: its mark on the board.
    head: the verdict.
    means: what it means to someone who has never seen it.
    is_same: whether the texts are the same; None if that is not compared.
    so_far: `head` while a lane still writes; "" if it is the same.
    no_result: why the ratio next to it is no result; "" if it may be one."""

    sign: str
    head: str
    means: str
    is_same: bool | None
    so_far: str = ""
    no_result: str = ""


FAULT, NOT_COMPARED = "a fault", "not compared"
UNCHANGED = "Guesses changed no token: right or wrong, the text is the model's own."
VERDICTS = {
    "identical_bits": VerdictWords(
        "\u2261", "identical, bit for bit", UNCHANGED, True, "identical so far, bit for bit"
    ),
    "identical_tokens": VerdictWords("=", "identical tokens", UNCHANGED, True, "identical so far"),
    "near_tie": VerdictWords(
        "\u2248", "near-tie flip", "Two tokens were so close that rounding decided. Neither text is wrong.", False
    ),
    "different": VerdictWords(
        "\u2715",
        f"different: {FAULT}",
        "This should never happen. Please report it and attach the race file.",
        False,
        no_result=FAULT,
    ),
    "same_distribution": VerdictWords(
        "\u223c",
        "same probabilities, different text",
        "Expected under this rule: every token is as likely as without guesses, but drawn separately.",
        None,
    ),
    "same_text": VerdictWords("=", "the same text", "Both wrote exactly the same.", True, "the same text so far"),
    "other_text": VerdictWords(
        "\u2260",
        "different texts",
        "Rounding, random numbers or a wrong setup: the check-up looks for the cause.",
        False,
    ),
    "not_compared": VerdictWords("?", NOT_COMPARED, "", None, no_result="the texts are not compared"),
}  # by kind, see `analysis/same.py`; the first two are for lanes here, `same_text` and `other_text` for servers
LOOPS = "the text repeats itself"  # why a ratio is no result although the texts are the same

THRESHOLD = 1.3  # the median speed-up that justifies another model, its memory and its configuration
LITTLE = "little gain"
RULE_OF_THUMB = f"{THRESHOLD} is a rule of thumb: a smaller gain is not worth what a drafter takes to run and maintain."
ONE_TEXT = (
    "One text at a time; servers batch, which shrinks the gain. A load study of your servers, in \u201cTry it on "
    "yours\u201d, measures by how much."
)
# Of servers that might pay.
NOT_AS_IT_IS = "Not as it is: the check-up found a fault. Once that is fixed: {}"
PAYS = {
    # One race.
    "pays": "pays",
    "little": LITTLE,
    "differ": "pays, but the texts differ",
    "little_differ": f"{LITTLE}, but the texts differ",
    "doubtful": "doubtful",
    "even": "no difference",
    "loses": "does not pay",
    # A study of prompts. {}: with how many users.
    "ship": "yes, it pays{} (\u201cship\u201d)",
    "do not ship": "no, the gain is too small{} (\u201cdo not ship\u201d)",
    "unclear": "unclear{}",
    "faster": "faster{}",
    "uncertain": "not certain{}",
    # A check-up.
    "worth_it": "it pays",
    "not_worth_it": "it does not pay",
}


def to_json() -> dict[str, Any]:
    """The constant SAYS of the page's programs."""
    return {
        "same": {kind: asdict(words) for kind, words in VERDICTS.items()},
        "one_text": ONE_TEXT,
        "not_as_it_is": NOT_AS_IT_IS,
        "loops": LOOPS,
        "pays": PAYS,
        "rule": RULE_OF_THUMB,
        "threshold": THRESHOLD,
    }


def capital(words: str) -> str:
    """The words with a capital first letter."""
    return words[:1].upper() + words[1:]
