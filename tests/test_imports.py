"""The rooms of the engine and who may import whom: arrows point down, kernels are known to the seam alone, and nothing
else asks for a device's type."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = (
    "engine",
    "measure.roofline",
    "recordings",
    "remote",
    "model",
    "choice",
    "kernels",
    "measure",
    "target",
    "exactness",
    "models",
    "heads",
    "drafters",
    "session",
    "what_if",
    "cli",
    "traffic",
    "under_load",
    "bench",
    "training",
)
"""Rooms from the ground up. "engine": the files at its root but `session` and `__main__`."""
SEAM = ("kernels.cpu", "kernels.cuda")
CHOOSES = "engine.kernels.choose"
"""The one file that knows the kinds of kernels."""
DEVICE_TYPES = {"cpu", "cuda", "mps"}


@cache
def modules() -> dict[str, ast.Module]:
    """Name -> tree of every file of the engine."""
    found = {}
    for path in sorted((ROOT / "engine").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


def is_package(name: str) -> bool:
    return (ROOT / name.replace(".", "/") / "__init__.py").exists()


def runs(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node but what stands under `if TYPE_CHECKING`."""
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        queue += ast.iter_child_nodes(node)


def imports(name: str, tree: ast.Module) -> Iterator[str]:
    """The engine's modules that a module imports when it runs, in functions too, and those that its tables of
    `module:attribute` name."""
    for node in runs(tree):
        if isinstance(node, ast.ImportFrom):
            package = name.split(".") if is_package(name) else name.split(".")[:-1]
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module.split(".")[0] == "engine":
                yield from (full if (full := f"{module}.{alias.name}") in modules() else module for alias in node.names)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.startswith("engine.")
            and ":" in node.value
        ):
            yield node.value.partition(":")[0]


@cache
def arrows() -> dict[str, set[str]]:
    return {name: set(imports(name, tree)) - {name} for name, tree in modules().items()}


def floor(name: str) -> int:
    inner = name.removeprefix("engine").removeprefix(".")
    rooms = [room for room in FLOORS if inner == room or inner.startswith(f"{room}.")]
    if inner == "__main__":
        return len(FLOORS)
    return FLOORS.index(max(rooms, key=len)) if rooms else FLOORS.index("engine")


def test_every_arrow_points_down():
    """Whoever wants to understand a room would have to know those above it first."""
    # a table of plug-ins names what lies above it: that is what a table is for
    tables = {"engine.cli.main", "engine.drafters"}
    upward = [
        f"{name} -> {other}"
        for name, others in arrows().items()
        if name not in tables
        for other in others
        if floor(other) > floor(name)
    ]
    assert not upward


def test_there_are_no_circles():
    """Two files that need each other are one that nobody can read on its own."""
    done: set[str] = set()
    circles = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circles.append(" -> ".join((*path[path.index(name) :], name)))
        elif name not in done:
            for other in sorted(arrows().get(name, ())):
                if other != "engine.drafters":  # a table, and what every plug-in needs of it
                    visit(other, (*path, name))
            done.add(name)

    for name in modules():
        visit(name, ())
    assert not circles


def test_kernels_are_imported_by_the_seam_alone():
    """A neutral file that knows a kernel has to ask whether it runs here, and the next one too."""

    def kinds(name: str) -> set[str]:
        return {kind for kind in SEAM if name.startswith(f"engine.{kind}")}

    wrong = [
        f"{name} -> {other}"
        for name, others in arrows().items()
        if name != CHOOSES
        for other in others
        if kinds(other) - kinds(name)
    ]
    assert not wrong


def asks(node: ast.AST) -> bool:
    """Whether that is a question for a device's type, or to torch.cuda."""
    if isinstance(node, ast.Attribute):
        if node.attr in ("is_cuda", "is_cpu", "is_mps"):
            return True
        return (
            node.attr in ("cuda", "mps")
            and isinstance(node.value, ast.Name | ast.Attribute)
            and ast.unparse(node.value) in ("torch", "torch.backends")
        )
    if isinstance(node, ast.Compare):
        texts = {
            part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        return bool(texts & DEVICE_TYPES) and any(
            isinstance(part, ast.Attribute) and part.attr == "type" for part in ast.walk(node)
        )
    return False


def test_a_devices_type_is_asked_behind_the_seam_alone():
    """Each such question is a place to change for the next kind of device."""
    found = [
        f"{name}, line {node.lineno}"
        for name, tree in modules().items()
        if not name.startswith("engine.kernels")
        for node in ast.walk(tree)
        if asks(node)
    ]
    assert not found


@pytest.mark.parametrize(
    "code", ["x.device.type == 'cuda'", "x.is_cuda", "torch.cuda.synchronize()", "if x.type in ('cpu', 'mps'): pass"]
)
def test_such_a_question_is_noticed(code):
    """The test above would find nothing."""
    assert any(asks(node) for node in ast.walk(ast.parse(code)))


def test_the_view_has_no_torch_and_the_engine_no_view():
    """The page would take seconds to open; the engine would need gradio on a bare GPU machine."""

    def named(path: Path) -> set[str]:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        return {
            name.split(".")[0]
            for name in names
            | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
        }

    assert not [path for path in (ROOT / "engine").rglob("*.py") if named(path) & {"gradio", "plotly", "app"}]
    assert not [path for path in (ROOT / "app").rglob("*.py") if named(path) & {"torch", "transformers"}]


def test_no_test_imports_another():
    """Whoever changes a test would change tests that are not theirs; what two share belongs to tests/helpers."""
    trees = {path: ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("*.py")}
    nodes = [
        (path, node)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    named = [(path, alias.name) for path, node in nodes for alias in node.names]
    named += [(path, node.module or "") for path, node in nodes if isinstance(node, ast.ImportFrom)]
    wrong = [
        f"{path.name}: {name}" for path, name in named if any(part.startswith("test_") for part in name.split("."))
    ]
    assert not wrong
