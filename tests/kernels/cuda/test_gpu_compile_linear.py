"""What Triton compiles of the linears for an H100, without one: tensor cores, asynchronous copies of 16 bytes, no
spills, and what a launch that begins early does before it waits. In a process of its own, for an interpreted kernel
cannot be compiled."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile

import pytest

from tests.helpers.apart import run_apart

pytestmark = pytest.mark.slow
HOPPER_SHARED_BYTES = 227 << 10
CASES = {  # n, k, act, added, parts, bias, which of the candidates
    "qkv": (6144, 4096, None, False, 128, False, 0),
    "o": (4096, 4096, None, True, 0, False, 0),
    "gate_up": (12288, 4096, "silu", False, 128, False, 0),
    "gate_up, weights first": (12288, 4096, "silu", False, 64, False, 1),
    "down": (4096, 12288, None, True, 0, False, 0),
    "head": (151936, 4096, None, False, 0, False, 0),
    "split": (1024, 4096, None, True, 0, True, 0),
    "odd": (1001, 656, None, False, 7, True, 0),
}
EARLY = ("o", "gate_up, weights first", "split", "odd")
ARITHMETIC = re.compile(r"^\s*(?:@!?%p\d+ )?(\S*mma\S*|[a-z0-9]+\.\S*f(?:16|32)\S*)", re.MULTILINE)
MACHINE_CODE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]+)", re.MULTILINE)
WAIT, LET_BEGIN, FETCH = "ACQBULK", "PREEXIT", "LDG.E.U16.STRONG.SYS"
MEMORY = ("LDG", "LDS", "STG", "STS", "ATOM", "RED", "UBLK", "CCTL")


def compiled(
    n: int, k: int, act: str | None, added: bool, parts: int, bias: bool, which: int, early: bool = False
) -> dict:
    """What the compiler says of one kernel for sm_90."""
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from engine.kernels.cuda.linear_kernel import linear_rows
    from engine.kernels.cuda.tiles import candidates

    config = candidates(n, k, act is not None)[which]
    rows, is_split = "*bf16", config.split_k > 1
    kinds = {"x": rows, "weight": rows, "out": rows, "num_rows": "i32", "eps": "fp32"}
    kinds |= {"bias": rows} if bias else {}
    kinds |= {"residual": rows, "scaled": rows, "scale": "*fp32", "squares": "*fp32"} if added else {}
    kinds |= {"parts": "*fp32"} if parts else {}
    kinds |= {"partial": "*fp32", "arrivals": "*i32"} if is_split else {}
    constants = {
        "NUM": n,
        "K": k,
        "ACT": act,
        "PARTS": parts,
        "PARTS_BLOCK": triton.next_power_of_2(parts) if parts else 0,
        "SPLIT": config.split_k,
    }
    constants |= {
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "STAGES": config.num_stages,
        "WEIGHTS_FIRST": config.weights_first,
        "EARLY": early,
    }
    names = linear_rows.arg_names
    source = ASTSource(
        linear_rows,
        signature={name: kinds.get(name, "constexpr") for name in names},
        constexprs={(i,): constants.get(name) for i, name in enumerate(names) if name not in kinds},
        attrs={(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if kinds.get(name, "").startswith("*")},
    )
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages} | ({"launch_pdl": True} if early else {})
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        code = (
            subprocess.run([knobs.nvidia.nvdisasm.path, file.name], capture_output=True, text=True, check=True).stdout
            if early
            else ""
        )
    return {
        "split": is_split,
        "ptx": kernel.asm["ptx"],
        "code": MACHINE_CODE.findall(code),
        "launch_pdl": kernel.metadata.launch_pdl,
        "shared": kernel.metadata.shared,
        "estimate": config.shared_bytes(act is not None),
        "usage": usage,
        "generic": linear_rows.params[names.index("num_rows")].do_not_specialize,
    }


@pytest.fixture(scope="module")
def kernels() -> dict[str, dict]:
    return run_apart(__file__)


@pytest.mark.parametrize("name", [*CASES, *(f"{name}, early" for name in EARLY)])
def test_compiled_for_an_h100(name: str, kernels: dict[str, dict]) -> None:
    """Sums without tensor cores, loads in small pieces or waited for one by one, registers spilled to memory, more
    shared memory than there is: each makes a step many times slower, or impossible."""
    kernel = kernels[name]
    ptx = kernel["ptx"]
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global\S* \[.*?\], \[.*?\], (0x\w+|\d+)", ptx)
    assert copies and {int(size, 0) for size in copies} == {16}
    assert ("wgmma.mma_async" if "weights first" in name else "mma.sync") in ptx
    assert kernel["shared"] <= kernel["estimate"] + 4096 and kernel["shared"] <= HOPPER_SHARED_BYTES
    assert ".local" not in ptx and re.search(r"STACK:0\b", kernel["usage"]) and re.search(r"LOCAL:0\b", kernel["usage"])
    assert kernel["generic"]  # one binary for all numbers of rows
    assert kernel["split"] == ("atom.global.gpu.acq_rel" in ptx)
    assert kernel["launch_pdl"] == ("griddepcontrol" in ptx) == ("ld.volatile" in ptx) == name.endswith("early")


@pytest.mark.parametrize("name", EARLY)
def test_what_begins_early_touches_weights_alone_before_it_waits(name: str, kernels: dict[str, dict]) -> None:
    """A load of what the launch before is still writing, or a store over what it still reads, gives wrong tokens now
    and then; without fetches before the wait nothing is gained. In machine code, for each of the compilers may move a
    load."""
    code = kernels[f"{name}, early"]["code"]
    assert code.count(WAIT) == code.count(LET_BEGIN) == 1
    at = code.index(WAIT)
    fetches = [part for part in code[:at] if part.startswith(MEMORY)]
    assert fetches and set(fetches) == {FETCH} and FETCH not in code[at:]
    assert not any(part.startswith(("EXIT", "BRA")) for part in code[:at])  # all programs wait
    assert at < code.index(LET_BEGIN) and any(part.startswith("LDGSTS") for part in code[at : code.index(LET_BEGIN)])


@pytest.mark.parametrize("name", EARLY)
def test_beginning_early_changes_no_sum(name: str, kernels: dict[str, dict]) -> None:
    """Other arithmetic, or in another order, is other bits: a lane with it and a lane without would part."""
    plain, early = (ARITHMETIC.findall(kernels[each]["ptx"]) for each in (name, f"{name}, early"))
    assert len(plain) > 20 and early == plain


if __name__ == "__main__":
    early = {f"{name}, early": compiled(*CASES[name], early=True) for name in EARLY}
    print(json.dumps({name: compiled(*case) for name, case in CASES.items()} | early))
