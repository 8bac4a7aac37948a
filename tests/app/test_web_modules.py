"""The page's program as modules: imports run one way, names are known where they are used, the bundle is a script."""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest
import tree_sitter_javascript
from tree_sitter import Language, Node, Parser

from app.page.theme import HEAD, PAGE_CSS
from app.web import CONSTANTS, PRINT_CSS, RACE_VIEW_CSS, RACE_VIEW_TEMPLATE
from app.web.bundle import FOLDER, GR_HTML, HOST, bundle
from app.web.components import LIMITS, YOURS_CSS

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
GIVEN = {*CONSTANTS, *LIMITS, "ALLOWED", "MAX_NEW_TOKENS"}
# What a browser knows by itself, as far as the page uses it.
BROWSERS = {
    "AbortController", "AbortSignal", "Array", "Blob", "Boolean", "CustomEvent", "DOMRect", "Date",
    "DecompressionStream", "Error", "Event", "Float64Array", "Infinity", "Int32Array", "Intl", "JSON", "Map", "Math",
    "MutationObserver", "Number", "Object", "Promise", "RegExp", "ResizeObserver", "Response", "Set", "String",
    "TextDecoder", "TextDecoderStream", "TextEncoder", "TypeError", "URL", "URLSearchParams", "Uint8Array", "atob",
    "cancelAnimationFrame", "clearInterval", "clearTimeout", "document", "getComputedStyle", "history",
    "innerHeight", "innerWidth", "localStorage", "location", "navigator", "performance", "requestAnimationFrame",
    "sessionStorage", "setInterval", "setTimeout", "undefined", "window",
}  # fmt: skip


PARSER = Parser(Language(tree_sitter_javascript.language()))
NAMES = {"identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"}
NAMED = {"variable_declarator", "function_declaration", "generator_function_declaration", "class_declaration"}


@dataclass
class Module:
    """The names of one module, by its syntax tree. `imports`: imported name -> module; `needs`: all modules that it
    imports; `declared`: at its top level; `used`: all names, apart from imports; `bound`: those that it declares
    anywhere."""

    imports: dict[str, str]
    needs: list[str]
    exports: set[str]
    declared: list[str]
    used: set[str]
    bound: set[str]


def text_of(node: Node | None) -> str:
    assert node is not None and node.text is not None
    return node.text.decode()


def walk(node: Node | None) -> Iterator[Node]:
    if node is not None:
        yield node
        for child in node.children:
            yield from walk(child)


def names_in(node: Node | None) -> list[str]:
    return [text_of(leaf) for leaf in walk(node) if leaf.type in NAMES]


def module_of(path: str, source: str) -> Module:
    """What the module at that path (with "/") does with names."""
    root = PARSER.parse(source.encode()).root_node
    assert not root.has_error, f"{path}: a syntax error"
    module = Module({}, [], set(), [], set(), set())
    for statement in root.children:
        if statement.type == "import_statement":
            other = text_of(statement.child_by_field_name("source"))[1:-1]
            module.needs.append(posixpath.normpath(posixpath.join(posixpath.dirname(path), other)))
            module.imports |= dict.fromkeys(names_in(statement), module.needs[-1])
            continue
        module.used |= {*names_in(statement)}
        made = statement.child_by_field_name("declaration") or statement
        names = [name for part in (made, *made.children) if part.type in NAMED
                 for name in names_in(part.child_by_field_name("name"))]  # fmt: skip
        module.declared += names
        module.exports |= {*names} if statement.type == "export_statement" else set()
    for node in walk(root):
        fields = ["parameters", "parameter", *["name"] * (node.type in NAMED)]
        fields += ["left"] * (node.type == "for_in_statement")
        module.bound |= {name for field in fields for name in names_in(node.child_by_field_name(field))}
    return module


@cache
def sources() -> dict[str, str]:
    paths = sorted(FOLDER.rglob("*.js"))
    return {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@cache
def modules() -> dict[str, Module]:
    return {name: module_of(name, source) for name, source in sources().items()}


def folder(name: str) -> str:
    return name.rpartition("/")[0] or name


def faults(name: str, module: Module) -> list[str]:
    """What is wrong with a module's names."""
    known = {*module.imports, *module.bound, *BROWSERS, *["fetch"] * (name == "base/dom.js")}  # see fetchOurs
    errors = [f"{name}: {symbol} is unknown" for symbol in module.used - known]
    errors += [f"{name}: {symbol} is imported and not used" for symbol in module.imports if symbol not in module.used]
    for symbol, other in module.imports.items():
        if symbol not in (modules()[other].exports if other != HOST else {*GR_HTML, *GIVEN}):
            errors.append(f"{name}: {other} does not export {symbol}")
    return errors


def test_imports_run_one_way():
    """A board that imports a feature: the circles are back, and nobody can read one file without all the others."""
    needs = [(name, other) for name, module in modules().items() for other in module.needs if other != HOST]
    assert [pair for pair in needs if folder(pair[1]) not in BELOW[folder(pair[0])] | {folder(pair[0])}] == []


def loaded(name: str, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The modules that a program has, each as often as it is imported. Fails where imports run in a circle."""
    assert name not in path, f"circular import: {path}"
    yield name
    for other in modules()[name].needs:
        if other != HOST:
            yield from loaded(other, (*path, name))


def test_every_module_is_in_a_program_and_each_is_a_script():
    """A file that no program loads, or a program that cannot begin: circular imports, a name twice, an odd form."""
    assert {*loaded(PROGRAMS[0]), *loaded(PROGRAMS[1])} == set(modules())
    for program in PROGRAMS:
        names = Counter([*GIVEN, *GR_HTML, *(name for file in {*loaded(program)} for name in modules()[file].declared)])
        assert [name for name, num in names.items() if num > 1] == []
        made = bundle(program, constants={"WORDS": "\u2028"})
        assert made.startswith('"use strict";\nconst WORDS = "\\u2028";\n')
        assert re.findall(r"^(?:import|export)\b.*", made, re.MULTILINE) == []


def test_every_name_is_known():
    """In one scope a name that is not imported works all the same, until its file is in a program without the other."""
    assert [fault for name, module in modules().items() for fault in faults(name, module)] == []


def test_no_name_is_the_whole_pages():
    """What two modules share would show in no import, and meet whatever else is in the page."""
    own = re.compile(r"window\.photofinish|window\.\w+ \S*=(?![=>])|globalThis\.")
    assert {name: matches for name, source in sources().items() if (matches := own.findall(source))} == {}


STYLE, PROGRAM = HEAD.replace(PRINT_CSS, "") + RACE_VIEW_CSS + YOURS_CSS + PAGE_CSS, "".join(sources().values())
STYLES = "".join(path.read_text(encoding="utf-8") for path in sorted((FOLDER.parent).rglob("*.css")))


@pytest.mark.parametrize(
    ("text", "form", "allowed"),
    [
        (RACE_VIEW_TEMPLATE, r"\$\{|\{\{|`|\\", set()),
        (PROGRAM, r"innerHTML|outerHTML(?!\})|insertAdjacentHTML|document\.write|eval\(|new Function", set()),
        (RACE_VIEW_CSS, r"@(?:container|supports|layer|import)|url\(|:(?:is|not|where|has)\([^)]*,", set()),
        (STYLE, r"[^\s,{}]*:has\(", {"#page-top:has(", "#page-model:has(", "#page-presets:not(:has(", ".pf-left:has("}),
        (STYLE, r"(?<!--screen, )(?<![\d.])[\d.]+[dsl]?v(?:h|b|max|min)\b[^;]*", set()),
        (STYLES, r"text-decoration: [\w-]+ [^;]+|(?<!-)(?:user-select|box-decoration-\w+): \w+;(?!\s*-webkit-)", set()),
    ],
    ids=["evaluated", "run", "dropped", "searched for every word", "as high as the screen", "dropped by Safari"],
)
def test_what_gradio_or_a_stranger_would_turn_against_the_page(text: str, form: str, allowed: set[str]) -> None:
    """gr.HTML runs the template through Handlebars and a template literal; innerHTML and its kin would run what a model
    writes. gradio drops @container, @supports and @layer rules and splits selectors at every comma, also inside :is().
    With `:has` on what the race is in, Chromium restyles the page whenever a word is added: 8 ms of each frame. A frame
    may be as high as its page: where the page's height follows the frame's, both grow without end; what is a share of
    the screen goes by `--screen`, which is fixed there. Safari takes only the line in `text-decoration`, and drops what
    says more: dropped guesses were not struck out."""
    assert {*re.findall(form, text)} == allowed
