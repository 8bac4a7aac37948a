"""Names in an ES module, by its syntax tree: what it imports, exports and declares, and which names it takes from
nowhere."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

import tree_sitter_javascript
from tree_sitter import Language, Node, Parser

PARSER = Parser(Language(tree_sitter_javascript.language()))
FUNCTIONS = {"function_declaration", "function_expression", "arrow_function", "method_definition",
             "generator_function", "generator_function_declaration"}  # fmt: skip
SCOPES = FUNCTIONS | {"program", "statement_block", "for_statement", "for_in_statement", "catch_clause", "switch_body"}
# Statements whose name belongs to the scope around them.
NAMED = {"function_declaration", "generator_function_declaration", "class_declaration"}
NAMES = {"identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"}


@dataclass
class Module:
    """The names of one module. Lines count from 1."""

    imports: dict[str, str] = field(default_factory=dict)
    """Imported name -> module."""
    needs: list[str] = field(default_factory=list)
    """All modules that it imports, in order."""
    exports: set[str] = field(default_factory=set)
    declared: list[str] = field(default_factory=list)
    """At the top level, imports apart."""
    used: set[str] = field(default_factory=set)
    """Those of the imported names that it uses."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Names that are neither declared nor imported -> first line."""
    assigned: dict[str, int] = field(default_factory=dict)
    """Imported names that it assigns to, which no module may -> first line."""


def text_of(node: Node | None) -> str:
    assert node is not None and node.text is not None
    return node.text.decode()


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from walk(child)


def bound_in(pattern: Node) -> Iterator[Node]:
    """The nodes of a declaration's pattern that name something new: no default values, no keys."""
    if pattern.type in ("identifier", "shorthand_property_identifier_pattern"):
        yield pattern
    elif pattern.type in ("assignment_pattern", "object_assignment_pattern"):
        yield from bound_in(pattern.children[0])
    elif pattern.type == "pair_pattern":
        yield from bound_in(pattern.children[-1])
    else:
        for child in pattern.named_children:
            yield from bound_in(child)


def scope_of(node: Node) -> Node:
    """The innermost scope around a node."""
    at = node.parent
    while at is not None and at.type not in SCOPES:
        at = at.parent
    assert at is not None
    return at


def declarations(root: Node) -> Iterator[tuple[Node, Node]]:
    """(scope, name's node) of everything that is declared, imports apart."""
    for node in walk(root):
        field_ = node.child_by_field_name
        if node.type in NAMED:
            yield scope_of(node), field_("name")  # type: ignore[misc]
        elif node.type == "variable_declarator":
            yield from ((scope_of(node), each) for each in bound_in(field_("name")))  # type: ignore[arg-type]
        elif node.type == "for_in_statement" and field_("kind") is not None:
            yield from ((node, each) for each in bound_in(field_("left")))  # type: ignore[arg-type]
        elif node.type == "catch_clause" and (parameter := field_("parameter")) is not None:
            yield from ((node, each) for each in bound_in(parameter))
        if node.type in FUNCTIONS:
            for name in ("parameters", "parameter"):
                if (given := field_(name)) is not None:
                    yield from ((node, each) for each in bound_in(given))


def names_of(path: str, source: str) -> Module:
    """What the module at that path (with "/") does with names. Raises ValueError for a syntax error."""
    root = PARSER.parse(source.encode()).root_node
    if root.has_error:
        line = next(node.start_point[0] + 1 for node in walk(root) if node.is_error or node.is_missing)
        raise ValueError(f"{path}, line {line}: a syntax error")
    module, folder = Module(), posixpath.dirname(path)
    for statement in root.children:
        if statement.type == "import_statement":
            other = posixpath.normpath(posixpath.join(folder, text_of(statement.child_by_field_name("source"))[1:-1]))
            module.needs.append(other)
            for node in walk(statement):
                if node.type == "import_specifier":
                    module.imports[text_of(node.child_by_field_name("name"))] = other
    scopes: dict[int, set[str]] = {}
    names: set[int] = set()
    for scope, node in declarations(root):
        scopes.setdefault(scope.id, set()).add(text_of(node))
        names.add(node.id)
        if scope == root:
            module.declared.append(text_of(node))
            statement = node
            while statement.parent != root:
                assert statement.parent is not None
                statement = statement.parent
            if statement.type == "export_statement":
                module.exports.add(text_of(node))
    for node in walk(root):
        if node.type not in NAMES or node.id in names or inside_import(node):
            continue
        name, line, at = text_of(node), node.start_point[0] + 1, node.parent
        while at is not None and name not in scopes.get(at.id, ()):
            at = at.parent
        if at is not None:
            continue
        if name not in module.imports:
            module.unknown.setdefault(name, line)
            continue
        module.used.add(name)
        if is_assigned(node):
            module.assigned.setdefault(name, line)
    return module


def inside_import(node: Node) -> bool:
    return node.parent is not None and node.parent.type == "import_specifier"


def is_assigned(node: Node) -> bool:
    """Whether a name's value is replaced here: `x = 1`, `x += 1`, `x++`, `[x] = list`."""
    parent = node.parent
    assert parent is not None
    if parent.type == "update_expression" or node.type == "shorthand_property_identifier_pattern":
        return True
    if parent.type in ("assignment_expression", "augmented_assignment_expression"):
        return parent.child_by_field_name("left") == node
    return parent.type == "array_pattern"
