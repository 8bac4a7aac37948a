"""A race as one HTML file that plays it in any browser, without a server and without a network. Pure.

The file holds the page's own race view (app/web/main.js), and the recording, as gzip in base64, so no
recording can become markup. Its Content-Security-Policy allows the one script and the one style of the file, by their
hashes, and no request at all. It is ASCII, the same text under any charset that a host names.
"""

import gzip
import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path

from engine.analysis.metrics import race_speedup
from engine.analysis.verdict_words import VERDICTS
from engine.core.spec import BASELINE, PLAIN, SPECULATIVE
from engine.recordings.recording import Recording

from .. import CONSTANTS, PRINT_CSS, RACE_VIEW_CSS, RACE_VIEW_TEMPLATE
from ..bundle import GR_HTML, bundle
from ..colours import variables

FOLDER = Path(__file__).parent
# A page without a server has no properties, no events and nothing to watch.
_BUNDLE = re.sub(r"[^\0-\x7f]", lambda sign: json.dumps(sign[0])[1:-1], bundle("player/player.js", constants=CONSTANTS))
PROGRAM = f"""(({", ".join(GR_HTML)}) => {{
{_BUNDLE}}})(document.getElementById("page"), {{}}, () => 0, () => 0);"""

WHY = '<section class="pf-why-cheats"'  # the part of the tab Why that needs a server


def player(recording: Recording, why: str = "") -> str:
    """The page that plays the race of this recording. why: HTML for the tab Why, below its sentence."""
    title, says = describe(recording)
    race = b64encode(gzip.compress(recording.text.encode(), mtime=0)).decode("ascii")
    page = _filled(SHELL, title=escape(title), says=escape(says), race=race, why=why)
    return page.encode("ascii", "xmlcharrefreplace").decode()


def describe(recording: Recording) -> tuple[str, str]:
    """The page's title, and what it shows unless its program draws the race."""
    spec = recording.spec
    name, plain, baseline = map(spec.first, (SPECULATIVE, PLAIN, BASELINE))
    drafter = next((f", {lane.drafter}" for lane in spec.lanes if lane.name == name), "")
    ratio = race_speedup(recording.events, name, plain, baseline)
    title = "SYNTHETIC: " if recording.get("synthetic") else ""
    cautions = [caution for caution in recording["cautions"] if caution["lane"] in (None, name)]
    verdict = recording["verdicts"].get(name, {"kind": "", "sentence": "no verdict"})
    words = VERDICTS.get(verdict["kind"])
    is_none = bool(words and words.no_result) or any(caution["kind"] == "loop" for caution in cautions)
    gain = "" if ratio is None else f": {'no result, ' * is_none}{ratio:.2f}× as fast as plain"
    title += recording["model"]["name"] + drafter + gain
    says = "".join(f" {caution['short']}" for caution in cautions)
    return title, (
        f"A recorded race of Photofinish: {title}; {verdict['sentence']}.{says} Recorded {recording['created']} on "
        f"{recording['device']['name']}. If it does not play here, open the file from a disk, in a browser "
        "of 2024 or later with JavaScript."
    )


def _filled(page: str, **parts: str) -> str:
    """The page with its places filled, @@name@@ by the part of that name. Parts are not looked through again."""
    return re.sub(f"@@({'|'.join(parts)})@@", lambda place: parts[place[1]], page)


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode('ascii')).digest()).decode('ascii')}'"


def _shell() -> str:
    """The page but for its race. What needs a server is not shown."""
    read = {name: (FOLDER / f"player.{name}").read_text(encoding="utf-8") for name in ("html", "css")}
    style = variables(":root") + RACE_VIEW_CSS + read["css"] + PRINT_CSS
    policy = f"default-src 'none'; script-src {_hash(PROGRAM)}; style-src {_hash(style)}"
    view = RACE_VIEW_TEMPLATE.replace(" data-served", " hidden").replace(WHY, f"@@why@@{WHY}")
    return _filled(
        read["html"], policy=f"{policy}; base-uri 'none'; form-action 'none'", style=style, view=view, program=PROGRAM
    )


SHELL = _shell()  # every exported page, apart from @@title@@, @@says@@, @@why@@ and @@race@@
