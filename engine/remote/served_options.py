"""How each server is made to speculate and to report its drafts: one list, for the doctor's remedies and for the page's
tab "Decide" (app/web/tabs/production.js). Pure.

A server of served_options.json has the version whose parser takes its options (tests/fixtures/server_options, recorded
by tools/servers/parsers.py of 9d69270d), the words that start it, the options that name the target, and those of each
kind of drafter. `{k}` stands for a value; an option whose value is "" is left out; true stands for no value. With
"file", this option names a file that holds them.
"""

import json
import shlex
from pathlib import Path
from typing import Any

CHECKED = "2026-11-28"  # when the parsers were recorded
SERVED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
USUAL = {"k": 4, "k+1": 5, "least": 1, "most": 4, "match": 4, "head": "OWNER/HEAD", "head_file": "HEAD.gguf"}


def option_words(name: str, *kinds: str) -> str:
    """What makes this server speculate with drafters of these kinds, or "report" its drafts, as a shell takes it; what
    makes every server, if nothing is known of this one."""
    if own := list(filter(None, (_words(name, kind) for kind in kinds))):
        return " or ".join(own)
    return "; ".join(f"{server}: {words}" for server in SERVED if (words := _words(server, kinds[0])))


def _words(name: str, kind: str) -> str:
    server = SERVED.get(name, {"options": {}})
    options = _filled(server["options"].get(kind, {}))
    if "file" in server and options:
        return f"{server['file']} FILE, with {json.dumps(options)} in it"
    words = [word for pair in options.items() for word in pair if word is not True]
    return shlex.join(json.dumps(word) if isinstance(word, dict) else str(word) for word in words)


def _filled(value: Any) -> Any:
    """With the usual values. Twin of `withValues` in app/web/tabs/production.js."""
    if isinstance(value, dict):
        return {name: member for name, inner in value.items() if (member := _filled(inner)) != ""}
    return USUAL.get(value[1:-1], "") if str(value).startswith("{") else value
