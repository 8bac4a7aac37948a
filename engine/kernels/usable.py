"""Why torch does not use this machine's NVIDIA GPU, and the command that changes it. Imports only the standard
library."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from ..core.errors import in_a_line

GPU_TOOL = "nvidia-smi"
# For nvidia-smi: with eight GPUs and no persistence daemon it takes seconds, and with a hung driver for ever.
ANSWER_S = 15.0
# The version that requirements.txt pins. Its builds: cu126, cu129, cu130 (the package index's) and cu132.
TORCH = "2.13.0"
INDEX = "https://download.pytorch.org/whl"
RUN = "run: "  # precedes the command at the end of a sentence
# CUDA's major version -> the oldest driver that runs it (NVIDIA's minor version compatibility).
LEAST_DRIVER = {11: 450, 12: 525, 13: 580}


@dataclass(frozen=True)
class Gpu:
    """This machine's first GPU. capability: its compute capability, such as (9, 0)."""

    name: str
    driver: str
    capability: tuple[int, int]


def may_have_gpu() -> bool:
    """Whether this machine seems to have an NVIDIA GPU that is visible to this program. Takes no time."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") and shutil.which(GPU_TOOL) is not None


def why_unused(index: int = 0) -> str:
    """A sentence on why torch cannot use CUDA device `index` although there is an NVIDIA GPU, and what to do. "" if
    torch can use it, and without a GPU."""
    import torch

    version, cuda = torch.__version__, torch.version.cuda
    if torch.cuda.is_available():
        if cuda is None or index >= torch.cuda.device_count():
            return ""
        name, capability = torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index)
        archs = torch.cuda.get_arch_list()
        if not archs or has_code(archs, capability):
            return ""
        driver = LEAST_DRIVER.get(_major(cuda), LEAST_DRIVER[13])  # at least: CUDA has started
        return without_code(Gpu(name, str(driver), capability), version)
    if not may_have_gpu():
        return ""
    gpu = ask_tool()
    if not isinstance(gpu, Gpu):
        return gpu and f"The NVIDIA GPU of this machine is not used: {gpu}"
    try:
        torch.cuda.init()
        error = "it finds no device"
    except Exception as raised:  # a CPU build raises AssertionError, others what CUDA says
        error = in_a_line(raised)
    return unusable(gpu, version, cuda, error)


def unusable(gpu: Gpu, version: str, cuda: str | None, error: str) -> str:
    """The sentence for torch `version`, built for CUDA `cuda` (None: without), that finds no device and reports
    `error`."""
    least, newest = LEAST_DRIVER.get(_major(cuda or "")), LEAST_DRIVER[13]
    updated = replace(gpu, driver=str(newest))
    remedies = []
    if cuda is None:
        cause = f"this torch ({version}) is built without CUDA"
        if build(gpu):
            remedies = [RUN + command(gpu)]
        elif build(updated):
            remedies = [f"update its driver ({gpu.driver}) to {newest} or newer and {RUN}{command(updated)}"]
    elif least is not None and _major(gpu.driver) < least:
        cause = f"its driver is {gpu.driver}, and this torch ({version}, for CUDA {cuda}) needs {least} or newer"
        if build(updated) == "cu130":
            remedies.append(f"update the driver to {newest} or newer")
        if build(gpu):
            remedies.append(RUN + command(gpu))
    else:
        cause = f"torch ({version}, for CUDA {cuda}) cannot start it: {error}"
    return _sentence(gpu, cause, remedies)


def without_code(gpu: Gpu, version: str) -> str:
    """The sentence for a torch that finds the GPU, but has no code for it."""
    major, minor = gpu.capability
    cause = f"this torch ({version}) has no code for its compute capability {major}.{minor}"
    return _sentence(gpu, cause, [RUN + command(gpu)] if build(gpu) else [])


def has_code(archs: Sequence[str], capability: tuple[int, int]) -> bool:
    """Whether a build whose code is for `archs` (as `torch.cuda.get_arch_list` names them) runs on a device of that
    compute capability. sm_XY: machine code, runs on X.Y and later of the same X; compute_XY: PTX, runs on X.Y and all
    later. With "a" it is for X.Y alone, with "f" for later ones of the same X."""
    for arch in archs:
        if (match := re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", arch)) is None:
            continue
        kind, own, suffix = match[1], (int(match[2]), int(match[3])), match[4]
        if suffix == "a":
            runs = own == capability
        elif kind == "sm" or suffix == "f":
            runs = own[0] == capability[0] and own <= capability
        else:
            runs = own <= capability
        if runs:
            return True
    return False


def build(gpu: Gpu) -> str:
    """The build of torch TORCH that runs on this GPU with its driver; "" if there is none."""
    driver = _major(gpu.driver)
    if driver >= LEAST_DRIVER[13] and gpu.capability >= (7, 5):
        return "cu130"
    if driver < LEAST_DRIVER[12] or gpu.capability < (5, 0):
        return ""
    return "cu126" if gpu.capability <= (9, 0) else "cu129"  # CUDA 12.6 has no code for Blackwell


def command(gpu: Gpu) -> str:
    """The command that installs that build, by name: pip accepts any build of the same version."""
    return f"pip install torch=={TORCH}+{build(gpu)} --index-url {INDEX}/{build(gpu)}"


@cache
def ask_tool() -> Gpu | str:
    """The first GPU, by nvidia-smi; "" if there is none; else why it does not work."""
    query = [GPU_TOOL, "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, errors="replace", timeout=ANSWER_S)
    except subprocess.TimeoutExpired:
        return f"{GPU_TOOL} does not answer within {ANSWER_S:.0f} s; the driver hangs"
    except OSError as error:
        return f"{GPU_TOOL} cannot be run: {error.strerror}"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if not lines or "No devices" in lines[0]:
        return ""
    match = re.fullmatch(r"(.+), ([\d.]+), (\d+)\.(\d+)", lines[0].strip())
    if done.returncode or match is None:
        return f"{GPU_TOOL} says: {lines[0].strip()[:200]}"
    return Gpu(match[1].strip(), match[2], (int(match[3]), int(match[4])))


def _sentence(gpu: Gpu, cause: str, remedies: Sequence[str]) -> str:
    return f"{gpu.name} is not used: {cause}" + (f". To use it, {', or '.join(remedies)}" if remedies else "")


def _major(version: str) -> int:
    """535 of 535.104.05; 0 if it is not a version."""
    number = version.partition(".")[0]
    return int(number) if number.isdecimal() else 0
