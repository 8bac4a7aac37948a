"""The session that asks a bare GPU machine everything: what happens in one part does not cost the others, and both
calls run through on the stand-in for CUDA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.helpers import (
    ROOT,
    gpu_kernels,  # noqa: F401  it switches the interpreter on
)

sys.path.append(str(ROOT / "tools"))

import gpu_session
from gpu_part import Part, run
from gpu_summary import summary


@pytest.fixture(autouse=True)
def own_paths(monkeypatch) -> None:
    """Parts find the tests' modules."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def part(name: str, limit_s: float = 60, least_s: float = 0) -> gpu_session.Part:
    return gpu_session.Part(f"tests.helpers.gpu_session_faults:{name}", limit_s, least_s)


def held(out: Path, parts: dict[str, gpu_session.Part], *more: str) -> tuple[int, dict[str, Any]]:
    """Its status and what came back, all of it in one file."""
    status = gpu_session.main(["--out", str(out), "--parts", *parts, *more], parts)
    assert sorted(path.name for path in out.iterdir()) == ["gpu_session_1.json", "gpu_session_1.log"]
    return status, json.loads((out / "gpu_session_1.json").read_text())["parts"]


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_part_that_is_killed_or_hangs_costs_no_other(tmp_path, capsys):
    """Ten minutes on a GPU would be lost: errors of CUDA stay with their process, kernels can hang for good, and a
    machine can run out of memory."""
    parts = {
        "first": part("finds"),
        "raises": part("raises"),
        "killed": part("killed"),
        "hangs": part("hangs", limit_s=4),
        "last": part("reads"),
    }
    status, found = held(tmp_path, parts)
    assert status == 3 and list(found) == list(parts)
    assert {name: each["state"] for name, each in found.items()} == {
        "first": "done",
        "raises": "failed",
        "killed": "killed",
        "hangs": "timed out",
        "last": "done",
    }
    assert [row["number"] for row in found["first"]["rows"]] == [1, 2]
    assert all(found[name]["rows"][0]["number"] == 1 for name in ("raises", "killed", "hangs")), (
        "what was measured before is kept"
    )
    assert found["raises"]["exit_code"] == 1 and "illegal memory access" in found["raises"]["last_lines"][-1]
    assert found["killed"]["signal"] == "SIGKILL" and found["hangs"]["why"] == "it was killed after 4 s"
    assert any("in hangs" in line for line in found["hangs"]["last_lines"]), "where it hung"
    assert not is_alive(found["hangs"]["rows"][0]["child"]), "the next part would share the device with what it started"
    assert (
        found["last"]["earlier"] == ["first", "hangs", "killed", "raises"]
        and found["last"]["of_the_first"] == found["first"]["rows"]
    )
    said = capsys.readouterr().out
    assert all(f"{name}: {each['state']}" in said.partition("=== summary")[2] for name, each in found.items())


def test_the_session_ends_in_its_time(tmp_path):
    """Run over, it would be killed with all that it holds; a part that cannot be begun must say so, one that can is
    told how long it has."""
    started = time.monotonic()
    status, found = held(tmp_path, {"slow": part("slow"), "late": part("finds", least_s=30)}, "--seconds", "12")
    assert time.monotonic() - started < 12 and status == 1
    assert found["slow"]["state"] == "done" and found["slow"]["rows"] and "s were left" in found["slow"]["left_out"][0]
    assert found["late"]["state"] == "skipped" and found["late"]["why"].endswith("and it takes 30 s at least")


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_what_was_found_is_there_when_the_session_itself_is_ended(how, tmp_path):
    """A call that is cut off would come back empty. After SIGTERM nothing runs on; after SIGKILL nobody could see to
    that."""
    code = (
        "import sys; sys.path[:0] = ['tools']; import signal, gpu_session as g; "
        "signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143)); "
        "g.main(None, {'hangs': g.Part('tests.helpers.gpu_session_faults:hangs', 60, 0)})"
    )
    process = subprocess.Popen([sys.executable, "-c", code, "--out", str(tmp_path), "--parts", "hangs"], cwd=ROOT)
    file, rows = tmp_path / "gpu_session_1.json", []
    until = time.monotonic() + 30
    while not rows and time.monotonic() < until:
        time.sleep(0.05)
        rows = json.loads(file.read_text())["parts"].get("hangs", {}).get("rows", []) if file.exists() else []
    getattr(process, {"SIGTERM": "terminate", "SIGKILL": "kill"}[how])()
    process.wait(10)
    assert json.loads(file.read_text())["parts"]["hangs"]["rows"][0]["number"] == 1
    child = rows[0]["child"]
    if how == "SIGTERM":
        assert not is_alive(child)
    else:
        os.killpg(os.getpgid(child), 9)


@pytest.mark.slow
def test_a_real_part_in_its_process(tmp_path):
    """The parts run through below share a process with this test: paths or arguments of their own process could be
    wrong."""
    status, found = held(tmp_path, {"widths": gpu_session.PARTS["widths"]}, "--small", "--pretend")
    assert status == 0, found
    assert found["widths"]["runs"]["decoder"] == "GpuDecoder" and found["widths"]["lengths"][0]["seconds"].keys() == {
        "1",
        "8",
        "16",
    }
    assert found["widths"]["device"]["name"] == "a pretended GPU"


def through(names: tuple[str, ...], folder: Path, pretend: bool) -> dict[str, Any]:
    """What these parts find with tiny shapes, one after the other in this process."""
    from gpu_pretended import pretended

    found: dict[str, Any] = {}
    for name in names:
        each = Part(folder / f"{name}.json", 600, True, found)
        function = gpu_session.PARTS[name].run
        with mock.patch.dict(os.environ), pretended(function) if pretend else nullcontext():
            run(function, each)  # it sets switches of its process, which here is all these tests'
        found[name] = {"state": "done", **json.loads((folder / f"{name}.json").read_text())}
        assert "left_out" not in found[name]
    text = summary({"parts": found})
    assert "incomplete" not in text and "FAILED" not in text, text
    return found


@pytest.fixture
def shrunk(monkeypatch, tmp_path) -> Iterator[None]:
    """Tiny probes and measurements, for this test alone: what such a probe finds must not be remembered."""
    from gpu_shapes import shrink

    from engine.bench import lanes, peers
    from engine.exactness import operators
    from engine.exactness import probe as exactness
    from engine.kernels.cpu.build import has_kernels
    from engine.kernels.cuda import graphs
    from engine.measure import bandwidth
    from engine.session import set_up as backend

    has_kernels()  # compiled once for all tests, not into this test's folder
    monkeypatch.setattr(graphs, "WARM_UPS", 1)  # test_fake_cuda.py captures with all three
    monkeypatch.setenv("PHOTOFINISH_CACHE", str(tmp_path / "cache"))
    for module in (bandwidth, exactness, operators, backend, lanes, peers):
        for name, value in list(vars(module).items()):
            if name.isupper():
                monkeypatch.setattr(module, name, value)  # put back afterwards
    bandwidth._measured.cache_clear()
    shrink()
    yield
    bandwidth._measured.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("call", gpu_session.CALLS)
def test_every_part_of_a_call_runs_through_on_the_stand_in(call, tmp_path, shrunk):
    """Minutes on a GPU would end in a word that is spelt wrong; or a part would measure torch's kernels and call them
    ours."""
    found = through(gpu_session.CALLS[call], tmp_path, pretend=True)
    assert all(each["device"]["name"] == "a pretended GPU" for each in found.values() if "device" in each)
    if call == 1:
        assert all(check["ok"] for check in found["smoke"]["checks"]) and found["smoke"]["wrong"] == []
        assert all(
            found[name]["runs"]["decoder"] == "GpuDecoder" for name in ("widths", "widths_tuned", "profile", "variants")
        )
        assert found["widths_tuned"]["num_linears_with_tuned_tiles"] > 0
        assert [
            row["verdict"] in ("identical_bits", "identical_tokens")
            for name in ("race", "race_hybrid")
            for row in found[name]["races"]
        ] == [True] * 7
        assert (
            all(row["equal"] for row in found["correctness"]["turns"])
            and found["correctness"]["total"]["num_tokens_different"] == 0
        )
        assert len(found["variants"]["variants"]) == 4 and not any(
            "failed" in row for row in found["variants"]["variants"]
        )
    else:
        assert not found["bench"]["random"]["faults"] and not found["bench"]["trained"]["faults"]
        assert found["probe"]["runs"]["decoder"] != "GpuDecoder" and len(found["probe"]["products"]) == 2


@pytest.mark.slow
def test_the_parts_run_on_the_plain_cpu(tmp_path, shrunk):
    """A dry run on a machine without a GPU would end in an error, though nothing in it is CUDA's."""
    found = through(
        ("smoke", "widths", "tuning", "correctness", "variants", "hybrid", "probe"), tmp_path, pretend=False
    )
    assert (
        found["smoke"]["skipped"]
        and found["correctness"]["total"]["num_tokens_different"] == 0
        and found["correctness"]["device"]["type"] == "cpu"
    )
