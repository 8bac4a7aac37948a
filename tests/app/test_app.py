"""Every value that a race cannot have."""

import json
import re

import pytest

from app.catalogue.catalogue import load
from app.catalogue.machine import Machine
from app.catalogue.request import read_request
from engine.core.errors import UsageError
from tests.helpers.pageserver import ORDER, TARGET


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": None}, "prompt must be text"),
        ({"prompt": "a\0b"}, "NUL"),
        ({"prompt": "x" * 20_001}, "20000"),
        ({"pair": "/etc"}, "unknown pair"),
        ({"pair": "gpt-oss-120b-eagle3"}, "cannot run here"),
        ({"drafter": "draft_model:/etc"}, "unknown drafter"),
        ({"drafter": "draft_model:owner/name"}, "unknown drafter"),
        ({"drafter": "synthetic:7"}, "synthetic"),
        ({"temperature": "hot"}, "hot"), ({"top_p": None}, "top_p is empty"), ({"seed": None}, "seed is empty"),
        ({"k": "many"}, "many"), ({"max_new_tokens": 1001}, "1000"), ({"width": {}}, "width"),
        ({"audit": "yes"}, "audit"), ({"chat": 1}, "chat"), ({"rule": ["coupled"]}, "unknown rule"),
        ({"more": "ngram"}, "more must be a list of at most 3"),
        ({"more": ["ngram"] * 4}, "more must be a list of at most 3"),
        ({"more": ["draft_model:/etc"]}, "unknown drafter"),
        ({"more": [["ngram"]]}, "drafter"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)  # fmt: skip
def test_every_value_is_checked_on_the_server(changes, words) -> None:
    """Whoever calls the API reads one sentence that names the value or the limit, and never a traceback."""
    with pytest.raises(UsageError, match=re.escape(words)):
        read_request(load(Machine(), TARGET), {**ORDER, **changes})
