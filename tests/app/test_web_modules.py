"""The page's program as modules: imports run one way, every name is known where it is used, and the bundle refuses what
would go wrong in the browser."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from app.page.theme import HEAD, PAGE_CSS
from app.web import CONSTANTS, PRINT_CSS, RACE_VIEW_CSS, RACE_VIEW_TEMPLATE
from app.web.bundle import FOLDER, GR_HTML, HOST, bundle
from app.web.components import LIMITS, YOURS_CSS
from tests.helpers.js_names import Module, names_of

PROGRAMS = ("page.js", "player/player.js")  # each is main.js and a little more
BELOW: dict[str, set[str]] = {
    "base": set(),
    "board": {"base"},
    "tabs": {"base", "board"},
    "files": {"base", "board", "tabs"},
    "shows": {"base", "board", "tabs"},
    "main.js": {"base", "board", "tabs", "files", "shows"},
    "yours": {"base", "board", "tabs", "files", "shows"},
    "page.js": {"main.js", "yours"},
    "player": {"main.js", "base", "board", "files"},
}  # by folder, those that it may import besides itself
GIVEN = {*CONSTANTS, *LIMITS, "ALLOWED", "MAX_NEW_TOKENS", "SEPARATE"}
# What a browser knows by itself, as far as the page uses it.
BROWSERS = {
    "AbortController", "AbortSignal", "Array", "Blob", "Boolean", "CustomEvent", "DOMRect", "Date",
    "DecompressionStream", "Error", "Event", "Float64Array", "Infinity", "Int32Array", "Intl", "JSON", "Map", "Math",
    "MutationObserver", "Number", "Object", "Promise", "RegExp", "ResizeObserver", "Response", "Set", "String",
    "TextDecoder", "TextDecoderStream", "TextEncoder", "TypeError", "URL", "URLSearchParams", "Uint8Array", "atob",
    "cancelAnimationFrame", "clearInterval", "clearTimeout", "document", "fetch", "getComputedStyle", "history",
    "innerHeight", "innerWidth", "localStorage", "location", "navigator", "performance", "requestAnimationFrame",
    "sessionStorage", "setInterval", "setTimeout", "undefined", "window",
}  # fmt: skip


@cache
def sources() -> dict[str, str]:
    paths = sorted(FOLDER.rglob("*.js"))
    return {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@cache
def modules() -> dict[str, Module]:
    return {name: names_of(name, source) for name, source in sources().items()}


def folder(name: str) -> str:
    return name.rpartition("/")[0] or name


def faults(name: str, module: Module) -> list[str]:
    """What is wrong with a module's names."""
    found = [f"{name}, line {line}: {each} is unknown" for each, line in module.unknown.items() if each not in BROWSERS]
    found += [f"{name}, line {line}: {each} belongs to another module" for each, line in module.assigned.items()]
    found += [f"{name}: {each} is imported and not used" for each in module.imports if each not in module.used]
    for each, other in module.imports.items():
        if each not in (modules()[other].exports if other != HOST else {*GR_HTML, *GIVEN}):
            found.append(f"{name}: {other} does not export {each}")
    return found


def test_imports_run_one_way():
    """A board that imports a feature: the circles are back, and nobody can read one file without all the others."""
    needs = [(name, other) for name, module in modules().items() for other in module.needs if other != HOST]
    assert [pair for pair in needs if folder(pair[1]) not in BELOW[folder(pair[0])] | {folder(pair[0])}] == []


def test_every_module_is_in_a_program():
    """A file that no program loads, or a program that no page can begin with: two of its files declare one name."""
    loaded, todo = set[str](), [*PROGRAMS]
    while todo:
        if (name := todo.pop()) not in loaded and name != HOST:
            loaded.add(name)
            todo += modules()[name].needs
    assert loaded == set(modules())
    for name in PROGRAMS:
        bundle(name, constants=dict.fromkeys(GIVEN, 0))


def test_every_name_is_known():
    """In one scope a name that is not imported works all the same, until its file is in a program without the other."""
    assert [fault for name, module in modules().items() for fault in faults(name, module)] == []


def test_no_name_is_the_whole_pages():
    """What two modules share would show in no import, and meet whatever else is in the page."""
    own = re.compile(r"window\.photofinish|window\.\w+ \S*=(?![=>])|globalThis\.")
    assert {name: found for name, source in sources().items() if (found := own.findall(source))} == {}


GOOD = {
    "main.js": 'import { count, twice } from "./base/a.js";\nimport "./b.js";\ncount();\ntwice();\n',
    "b.js": 'import { n } from "./base/a.js";\nimport { WORDS, element } from "./host.js";\nelement.add(n, WORDS);\n',
    "base/a.js": "export let n = 0;\nexport function count() { n += 1; }\nexport async function twice() { n *= 2; }\n",
}


def bundled(folder: Path, **changes: str) -> str:
    """The bundle of GOOD with these files (by their names, without folder and suffix) replaced."""
    for name, source in GOOD.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(changes.get(path.stem, source))
    return bundle("main.js", constants={"WORDS": ["<", "\u2028"]}, folder=folder)


def test_the_bundle_is_one_script_in_the_order_of_imports(tmp_path):
    """A module that runs before what it imports, twice, or with an `import` that a classic script cannot have."""
    assert bundled(tmp_path).splitlines() == [
        '"use strict";', r'const WORDS = ["<", "\u2028"];',
        "let n = 0;", "function count() { n += 1; }", "async function twice() { n *= 2; }",
        "element.add(n, WORDS);", "count();", "twice();",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"a": 'import "../b.js";\nexport let n = 0;\n'}, "circular import: base/a.js -> b.js -> base/a.js"),
        ({"main": 'import "./main.js";\n'}, "circular import: main.js -> main.js"),
        ({"b": 'import { m } from "./base/a.js";\n'}, "b.js imports m, which base/a.js does not export"),
        ({"b": 'import { props, other } from "./host.js";\n'}, "b.js imports other, which host.js does not export"),
        ({"b": "function count() {}\n"}, "base/a.js and b.js both declare count"),
        ({"b": "const WORDS = 1;\n"}, "host.js and b.js both declare WORDS"),
        ({"b": 'import "./c.js";\n'}, "no module c.js"),
        *(
            ({"b": f"{form}\n"}, "b.js has a form that is not allowed")
            for form in (
                'import { n as m } from "./base/a.js";', 'import * as a from "./base/a.js";', 'import a from "./b.js";',
                'import { n } from "a";', "export default 1;", "export { x };", "export const { x } = y;",
                'export * from "./base/a.js";', "const [x] = y;",
            )
        ),
    ],
)  # fmt: skip
def test_what_the_bundle_refuses(tmp_path, changes, said):
    """A program that stops in the browser, or calls the wrong function, instead of a server that does not start."""
    with pytest.raises(ValueError, match=re.escape(said)):
        bundled(tmp_path, **changes)


STYLE, PROGRAM = HEAD.replace(PRINT_CSS, "") + RACE_VIEW_CSS + YOURS_CSS + PAGE_CSS, "".join(sources().values())


@pytest.mark.parametrize(
    ("text", "form", "allowed"),
    [
        (RACE_VIEW_TEMPLATE, r"\$\{|\{\{|`|\\", set()),
        (PROGRAM, r"innerHTML|outerHTML(?!\})|insertAdjacentHTML|document\.write|eval\(|new Function", set()),
        (RACE_VIEW_CSS, r"@(?:container|supports|layer|import)|url\(|:(?:is|not|where|has)\([^)]*,", set()),
        (STYLE, r"[^\s,{}]*:has\(", {"#page-top:has(", "#page-model:has(", "#page-presets:not(:has(", ".pf-left:has("}),
        (STYLE, r"(?<!--screen, )(?<![\d.])[\d.]+[dsl]?v(?:h|b|max|min)\b[^;]*", set()),
    ],
    ids=["evaluated", "run", "dropped", "searched for every word", "as high as the screen"],
)
def test_what_gradio_or_a_stranger_would_turn_against_the_page(text: str, form: str, allowed: set[str]) -> None:
    """gr.HTML runs the template through Handlebars and a template literal; innerHTML and its kin would run what a model
    writes. gradio drops @container, @supports and @layer rules and splits selectors at every comma, also inside :is().
    With `:has` on what the race is in, Chromium restyles the page whenever a word is added: 8 ms of each frame. A frame
    may be as high as its page: where the page's height follows the frame's, both grow without end; what is a share of
    the screen goes by `--screen`, which is fixed there."""
    assert {*re.findall(form, text)} == allowed
