"""Which room may import which: every arrow points down, the command line stands on top, kernels are known to the seam
alone, and nothing else asks for a device's type."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Rooms from the ground up; each imports from lower floors alone. "engine" is its front, engine/__init__.py; "app": the
# files at its root.
FLOORS = (
    ("engine.core", "engine.progress"),
    ("engine.cache", "engine.layers", "engine.strict_json"),
    ("engine.heads", "engine.kernels"),
    ("engine.analysis", "engine.text"),
    ("engine.recordings", "engine.runner"),
    ("engine.exactness", "engine.hardware", "engine.loading", "engine.remote"),
    ("engine.drafters", "engine.training"),
    ("engine.session",),
    ("engine", "engine.what_if"),
    ("engine.studies",),
    ("engine.doctor",),
    ("app", "app.catalogue"),
    ("app.jobs", "app.web"),
    ("app.figures",),
    ("app.page",),
    ("engine.cli",),
    ("engine.__main__",),
)
SEAM = ("engine.kernels.cpu", "engine.kernels.cuda")
CHOOSES = "engine.kernels.choose"  # the one file that knows the kinds of kernels
# The one file of the engine that names the app, by a string: an exported page is made of the page's own files.
NAMES_THE_APP = "engine.cli.export"
DEVICE_TYPES = {"cpu", "cuda", "mps"}


@cache
def modules() -> dict[str, ast.Module]:
    """Name -> tree of every file of the engine and the app."""
    trees = {}
    for path in sorted([*(ROOT / "engine").rglob("*.py"), *(ROOT / "app").rglob("*.py")]):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        trees[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    return trees


def is_package(name: str) -> bool:
    return (ROOT / name.replace(".", "/") / "__init__.py").exists()


def imports(name: str, tree: ast.Module) -> Iterator[str]:
    """The modules of the engine and the app that a module imports: in functions too, and for type checking alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            package = name.split(".") if is_package(name) else name.split(".")[:-1]
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module.split(".")[0] in ("engine", "app"):
                yield from (full if (full := f"{module}.{alias.name}") in modules() else module for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())


def named(tree: ast.Module) -> Iterator[str]:
    """The modules that a table of plug-ins names, as `module:attribute`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
            module = node.value.partition(":")[0]
            if module in modules():
                yield module


@cache
def arrows() -> dict[str, set[str]]:
    return {name: set(imports(name, tree)) - {name} for name, tree in modules().items()}


def room(name: str) -> str:
    """The room that a module stands in."""
    inside = [prefix for floor in FLOORS for prefix in floor if name == prefix or name.startswith(f"{prefix}.")]
    return max(inside, key=len)


def floor(name: str) -> int:
    return next(i for i, floor in enumerate(FLOORS) if room(name) in floor)


def test_every_arrow_points_down():
    """Whoever wants to understand a room would have to know those above it first."""
    wrong = [
        f"{name} -> {other}"
        for name, tree in modules().items()
        for other in {*arrows()[name], *named(tree)}
        if room(other) != room(name) and floor(other) >= floor(name)
    ]
    assert not wrong


def test_the_engine_names_the_app_in_one_place():
    """An engine without a page would stop working, on a machine that has nothing but torch."""
    engine = {name: tree for name, tree in modules().items() if name.split(".")[0] == "engine"}
    assert not [name for name in engine for other in arrows()[name] if other.split(".")[0] == "app"]
    by_string = [name for name, tree in engine.items() for other in named(tree) if other.split(".")[0] == "app"]
    assert by_string == [NAMES_THE_APP]


def test_there_are_no_circles():
    """Two files that need each other are one that nobody can read on its own."""
    done: set[str] = set()
    circles = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circles.append(" -> ".join((*path[path.index(name) :], name)))
        elif name not in done:
            for other in sorted(arrows().get(name, ())):
                visit(other, (*path, name))
            done.add(name)

    for name in modules():
        visit(name, ())
    assert not circles


def test_kernels_are_imported_by_the_seam_alone():
    """A neutral file that knows a kernel has to ask whether it runs here, and the next one too."""

    def kinds(name: str) -> set[str]:
        return {kind for kind in SEAM if name.startswith(kind)}

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
    places = [
        f"{name}, line {node.lineno}"
        for name, tree in modules().items()
        if name.startswith("engine.") and not name.startswith("engine.kernels")
        for node in ast.walk(tree)
        if asks(node)
    ]
    assert not places


@pytest.mark.parametrize(
    "code", ["x.device.type == 'cuda'", "x.is_cuda", "torch.cuda.synchronize()", "if x.type in ('cpu', 'mps'): pass"]
)
def test_such_a_question_is_noticed(code):
    """The test above would find nothing."""
    assert any(asks(node) for node in ast.walk(ast.parse(code)))


def named_in(folder: str) -> Iterator[tuple[str, list[str]]]:
    """Each file below a folder, and one after the other the parts of every name that it imports."""
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                where = f"{'.' * node.level}{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
                yield from ((str(path), f"{where}{alias.name}".split(".")) for alias in node.names)


def test_the_view_has_no_torch_and_the_engine_no_view():
    """The page would take seconds to open; the engine would need gradio on a bare GPU machine."""
    assert not [path for path, (package, *_) in named_in("engine") if package in ("gradio", "plotly", "app")]
    assert not [path for path, (package, *_) in named_in("app") if package in ("torch", "transformers")]


def test_no_test_imports_another():
    """Whoever changes a test would change tests that are not theirs; what two share belongs to tests/helpers."""
    assert not [path for path, parts in named_in("tests") if any(part.startswith("test_") for part in parts)]


LIGHT = (
    "core.events core.spec core.errors core.interfaces core.decode core.sampling.accept core.race exactness.widths "
    "analysis.same text cache progress "
    "loading.sources analysis.roofline analysis.metrics drafters recordings.recording cli.main "
    "cli.commands cli.verify"
)
HEAVY = {"torch", "transformers", "plotly"}
# Code that needs no second -> the packages that it must not import.
QUICK = {
    f"import engine, {', '.join(f'engine.{name}' for name in LIGHT.split())}; "
    "[engine.drafters.check(text) for text in ('ngram', 'eagle3', 'dflash:a/b#causal', 'hybrid:ngram+draft_model:a/b')]"
    "; engine.loading.sources.find('random:Qwen/Qwen3-8B')": HEAVY | {"numpy", "rich", "gradio"},
    "import app.jobs.frames, app.jobs.races, app.catalogue.request, app.page.controls, app.web.colours, "
    "app.jobs.recorded": HEAVY | {"numpy", "gradio"},
    "import runpy; space = runpy.run_path('app.py'); from app.page.ui import build; "
    "c = space['load'](space['machine'].Machine()); build(c, space['TorchBackend']('auto', 'auto', True))": HEAVY,
}


@pytest.mark.parametrize(("code", "heavy"), QUICK.items(), ids=["engine", "view", "page"])
def test_what_must_be_quick_imports_nothing_heavy(code, heavy):
    """A terminal's `replay` or a typo, the page's state, and the page itself would take seconds more."""
    code = f"import sys; {code}; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1:] == ["set()"], done.stderr
