"""ES modules into one classic script, which is all that gr.HTML and an exported page can run.

The modules of app/web are valid ES modules. The bundle puts each one behind those that it imports, without its `import`
and `export`, all in one scope: a name means the same thing everywhere, and an exported `let` stays live. So only these
forms are allowed, each at the beginning of a line (tests/app/test_web_modules.py looks):

    import { a, b } from "../base/x.js";    import "./x.js";    export function a ...    (also const, let, class)

`host.js` is no file: it exports what the program gets from outside, which is the constants that Python passes and the
parameters of the function around the program.
"""

import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
HOST = "host.js"
GR_HTML = ("element", "props", "trigger", "watch")  # what gr.HTML gives to `js_on_load`, by these names

_IMPORT = re.compile(r'^import (?:\{\s*\w+(?:,\s*\w+)*,?\s*\} from )?"(\.[\w./]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|class|const|let)", re.MULTILINE)


def bundle(*entries: str, constants: Mapping[str, Any], folder: Path = FOLDER) -> str:
    """The script of these modules and all that they import. It is the body of a function that has the names in GR_HTML.

    Args:
        entries: Paths below `folder`, with "/" on every system.
        constants: What `host.js` exports besides GR_HTML, as JSON.
    """
    seen, texts = {HOST}, [f"const {name} = {json.dumps(value)};\n" for name, value in constants.items()]

    def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        source = (folder / name).read_text(encoding="utf-8")
        for path in _IMPORT.findall(source):
            visit(posixpath.normpath(posixpath.join(posixpath.dirname(name), path)))
        texts.append(_EXPORT.sub("", _IMPORT.sub("", source)))

    for entry in entries:
        visit(entry)
    return "".join(['"use strict";\n', *texts])
