"""ES modules into one classic script, which is all that gr.HTML and an exported page can run.

The modules of app/web are valid ES modules. The bundle puts each one behind those that it imports, without its `import`
and `export`, all in one scope: a name means the same thing everywhere, and an exported `let` stays live. So only these
forms are allowed, each at the beginning of a line:

    import { a, b } from "../base/x.js";    import "./x.js";    export function a ...    (also const, let, class)

`host.js` is no file: it exports what the program gets from outside, which is the constants that Python passes and the
parameters of the function around the program.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
HOST = "host.js"
GR_HTML = ("element", "props", "trigger", "watch")  # what gr.HTML gives to `js_on_load`, by these names

_IMPORT = re.compile(r'^import (?:\{\s*(\w+(?:,\s*\w+)*),?\s*\} from )?"(\.[\w./]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:(?:async )?function|class|const|let) (\w+))", re.MULTILINE)
_DECLARED = re.compile(r"^(?:(?:async )?function\*?|class|const|let|var) (\w+)", re.MULTILINE)
_OTHER = re.compile(r"^(?:(?:import|export)\b|(?:const|let|var) [\[{]).*", re.MULTILINE)


@dataclass(frozen=True)
class _Module:
    imports: Sequence[tuple[str, Sequence[str]]]  # (module, names) of each import, in their order
    exports: frozenset[str]
    declared: Sequence[str]
    text: str


def bundle(
    *entries: str, constants: Mapping[str, Any] | None = None, given: Sequence[str] = GR_HTML, folder: Path = FOLDER
) -> str:
    """The script of these modules and all that they import. It is the body of a function that has the names in `given`.

    Args:
        entries: Paths below `folder`, with "/" on every system.
        constants: What `host.js` exports besides `given`, as JSON.

    Raises:
        ValueError: A form that is not allowed, an import of something that is not exported or of a file that is not
            there, a circle of imports, or a name that two modules declare at their top level.
    """
    known = dict(constants or {})
    host = _Module((), frozenset([*given, *known]), [*given, *known], "")
    done: dict[str, _Module] = {HOST: host}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"circular import: {' -> '.join((*path[path.index(name) :], name))}")
        if name in done:
            return
        module = _module(name, folder)
        for imported, names in module.imports:
            visit(imported, (*path, name))
            if missing := [wanted for wanted in names if wanted not in done[imported].exports]:
                raise ValueError(f"{name} imports {', '.join(missing)}, which {imported} does not export")
        done[name] = module

    for entry in entries:
        visit(entry, ())
    owners: dict[str, str] = {}
    for name, module in done.items():
        for declared in module.declared:
            if declared in owners:
                raise ValueError(f"{owners[declared]} and {name} both declare {declared}")
            owners[declared] = name
    lines = [f"const {name} = {json.dumps(value)};\n" for name, value in known.items()]
    return "".join(['"use strict";\n', *lines, *(module.text for module in done.values())])


@cache
def _module(name: str, folder: Path) -> _Module:
    try:
        source = (folder / name).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"no module {name}") from error
    at = partial(posixpath.join, posixpath.dirname(name))
    imports = [(posixpath.normpath(at(path)), re.findall(r"\w+", names)) for names, path in _IMPORT.findall(source)]
    text = _EXPORT.sub("", _IMPORT.sub("", source))
    if fault := _OTHER.search(text):
        raise ValueError(f"{name} has a form that is not allowed: {fault[0]}")
    return _Module(imports, frozenset(_EXPORT.findall(source)), _DECLARED.findall(text), text)
