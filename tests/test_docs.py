"""What README and docs say of commands, options, files and tests: it must be there."""

import ast
import json
import re
import shlex
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import pytest

import engine
from engine.analysis.verdict_words import THRESHOLD, VERDICTS
from engine.cli import main
from engine.core.errors import UsageError
from engine.loading.loading import load
from engine.remote.served_options import SERVED
from tests.helpers import ROOT
from tests.helpers.tiny import TRAINED

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CURRENT = [page for page in PAGES if page.name != "log.md"]  # the log names what is gone
README_CHARACTERS = 6000
OF_OTHERS = {"--gpus", *re.findall(r"--[a-z-]+", json.dumps(SERVED))}  # options in docs that are other programs'


@cache
def commands() -> dict[str, main.Command]:
    return {name: main._command(name) for name in main.COMMANDS}


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_every_command_line_can_be_used(page: Path) -> None:
    """A newcomer copies a line and gets an error."""
    lines = re.findall(r"^\s*(python -m engine [^\n]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    lines += re.findall(r"`(python -m engine [a-z]+ [^`\n]+)`", page.read_text(encoding="utf-8"))
    for line in lines:
        name, *arguments = shlex.split(line, comments=True)[3:]
        try:
            main._parser(name, main._command(name)).parse(arguments)
        except UsageError as error:
            pytest.fail(f"{page.name}: {line}: {error}")


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_every_option_is_one(page: Path) -> None:
    """An option that was renamed or taken out would be looked for."""
    sources = [ROOT / "app.py", ROOT / "engine" / "cli" / "main.py", *(ROOT / "tools").rglob("*.py")]
    known = {name for command in commands().values() for option in command.options for name in option.names}
    known |= set(re.findall(r"\"(--[a-z-]+)[ \"]", "".join(path.read_text(encoding="utf-8") for path in sources)))
    code = re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
    named = {option for line in code if "pip" not in line for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", line)}
    assert named <= known | OF_OTHERS | {"--help"}, named - known


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_every_link_and_every_file_is_there(page: Path) -> None:
    """Files move; a page that names the old place sends its reader nowhere."""
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        place, _, anchor = link.partition("#")
        if "://" in place:
            continue
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}, link
    named = re.findall(r"`((?:app|engine|assets|tests|tools|docs)/[\w./-]*\w/?)`", text)
    made_up = {"engine/drafters/repeat.py", "assets/races/ID.json"}
    assert [name for name in named if name not in made_up and not (ROOT / name).exists()] == []
    assert not any(re.search(r'"/(home|root|tmp|work)/', path.read_text()) for path in ROOT.glob("assets/results/*"))


def test_the_recipes_name_tests_that_exist() -> None:
    """Whoever follows a recipe runs the test that it names. A slow test that is renamed would run by default."""
    text, slow = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/architecture.md", "tests/slow.txt"))
    functions = {
        (path.relative_to(ROOT / "tests").as_posix(), node.name)
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert (named := set(re.findall(r"`(test_\w+)`", text))) and named <= {name for _, name in functions}
    assert {tuple(line.split("::")) for line in slow.split()} <= functions


def test_the_readme_is_short() -> None:
    """It is the front door, not the house."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8")) <= README_CHARACTERS


def test_the_docs_list_the_words_of_verdicts() -> None:
    """A reader would look up a verdict, or the limit of one, that the page has in other words."""
    race, yours = ((ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("read_a_race", "yours"))
    here = [kind for kind in VERDICTS if kind not in ("same_text", "other_text")]  # the others are of servers
    assert [VERDICTS[kind].head for kind in here if f"- **{VERDICTS[kind].head}**: " not in race] == []
    assert f"| `ship` | lies above {THRESHOLD} |\n| `do not ship` | lies below {THRESHOLD} |" in yours


def test_the_public_names_are_there_and_cost_nothing() -> None:
    """`from engine import ...` in the example would fail, or `import engine` begin with torch."""
    assert all(callable(getattr(engine, name)) for name in engine.__all__)
    assert sorted(name for names in engine._PLACES.values() for name in names) == engine.__all__
    with pytest.raises(AttributeError, match="it has: LaneSpec, "):
        _ = engine.Decoder
    code = "import sys, engine; assert 'torch' not in sys.modules and 'engine.core.spec' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_example_runs(monkeypatch, capsys) -> None:
    """The first thing that an engineer copies; here with a smaller model than its own."""
    monkeypatch.setattr(engine, "load", partial(load, str(TRAINED), "float32"), raising=False)
    exec((ROOT / "docs/README.md").read_text(encoding="utf-8").split("```")[1].removeprefix("python"), {})
    said = capsys.readouterr().out.splitlines()
    assert VERDICTS["identical_bits"].head in said[-1] and any("of 7 guesses kept" in line for line in said)
