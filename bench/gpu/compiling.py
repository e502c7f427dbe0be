"""Kernels compiled for a GPU on a machine without one, and the compiler's own figures from the
binaries. Nothing is executed or timed.

Imports torch and Triton alone: a peer's process loads this file by its path. The tools come inside
the Triton wheel.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.cache import get_cache_manager

ARCHITECTURES: tuple[int | str, ...] = (80, 90, 100, 120, "gfx942")
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE
)
AMD_INSTRUCTION = re.compile(r"^\s+((?:s|v|ds|global|buffer|flat|scratch)_\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Launch:
    """files: what the compiler made, by kind (ptx, cubin, ...); shared: bytes of shared memory a
    program."""

    kernel: str
    grid: tuple[int, int, int]
    warps: int
    shared: int
    files: dict[str, Path]

    @property
    def ptx(self) -> str:
        return self.files["ptx"].read_text()


# ---- a driver that compiles and records


class _Utils:
    """What Triton asks of a device's driver when it loads a kernel."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        shared = {80: 163, 90: 227, 100: 227, 120: 99}.get(device, 64)  # KB
        return {
            "max_shared_mem": shared << 10,
            "max_num_regs": 65536,
            "multiprocessor_count": 132,
            "warpSize": 32,
        }

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int, *_: Any
    ) -> tuple[object, str, int, int, int]:
        return object(), name, 0, 0, 1024  # module, function, registers, spills, threads at most

    def unload_module(self, module: object) -> None: ...


class _Launcher:
    def __init__(self, source: Any, metadata: Any) -> None:
        self.types, self.warps, self.shared = (
            list(source.signature.values()),
            metadata.num_warps,
            metadata.shared,
        )
        group = get_cache_manager(metadata.hash).get_group(f"{metadata.name}.json") or {}
        self.files = {name.rpartition(".")[2]: Path(path) for name, path in group.items()}

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        function: str,
        packed: Any,
        info: Any,
        enter: Any,
        leave: Any,
        *args: Any,
    ) -> None:
        given = [value for value, kind in zip(args, self.types, strict=True) if kind != "constexpr"]
        triton.runtime.driver.active.launch(
            Launch(function, (x, y, z), self.warps, self.shared, self.files), given
        )


@dataclass
class CompilingDriver(DriverBase):
    """`kernel[grid](cpu_tensors)` is specialised and compiled for `arch` (80, 90, ..., or
    "gfx942") and recorded in `launches`."""

    arch: int | str
    launches: list[Launch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.utils, self.launcher_cls = _Utils(), _Launcher

    @property
    def number(self) -> int:
        return int(str(self.arch).removeprefix("gfx"))

    def launch(self, launch: Launch, args: list[Any]) -> None:
        self.launches.append(launch)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return (
            GPUTarget("cuda", self.arch, 32)
            if isinstance(self.arch, int)
            else GPUTarget("hip", self.arch, 64)
        )

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return self.number  # Triton keeps its variants by device

    def set_current_device(self, device: int) -> None: ...

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(self.number, 10)

    def get_benchmarker(self) -> Any:
        raise RuntimeError("nothing is timed without a device")


Driver = TypeVar("Driver", bound=CompilingDriver)


@contextlib.contextmanager
def active(driver: Driver) -> Iterator[Driver]:
    """Every Triton launch inside is the driver's."""
    config = triton.runtime.driver
    before, config._active = config._active, driver
    try:
        yield driver
    finally:
        config._active = before


class Operations(TorchDispatchMode):
    """torch's own operations inside that would launch something: neither views nor allocations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        views = any(
            value.alias_info and not value.alias_info.is_write for value in func._schema.returns
        )
        if not views and not re.match(r"aten::(new_)?empty|aten::_to_copy", name):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


# ---- what the compiler made of it


@dataclass(frozen=True)
class Resources:
    """stack, local: bytes a thread; opcodes: of the machine code, NOPs left out."""

    registers: int
    stack: int
    local: int
    opcodes: Counter[str]

    @property
    def instructions(self) -> int:
        return self.opcodes.total()

    def count(self, *prefixes: str) -> int:
        return sum(n for opcode, n in self.opcodes.items() if opcode.startswith(prefixes))


@lru_cache
def resources(cubin: Path) -> Resources:
    usage = _tool("cuobjdump", "-res-usage", cubin)
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    if found is None:
        raise ValueError(f"cuobjdump said {usage!r}")
    opcodes = Counter(
        opcode for opcode in INSTRUCTION.findall(_tool("nvdisasm", "-c", cubin)) if opcode != "NOP"
    )
    registers, stack, local = map(int, found.groups())
    return Resources(registers, stack, local, opcodes)


def _tool(name: str, *arguments: str | Path) -> str:
    return subprocess.run(
        [TOOLS / name, *arguments], capture_output=True, text=True, check=True
    ).stdout


def compiled(run: Callable[[], Any], architecture: int | str) -> dict[str, Any]:
    """architecture; launches: the figures of every launch of one run; operations: torch's own
    beside them."""
    with active(CompilingDriver(architecture)) as driver, Operations() as beside:
        run()
    return {
        "architecture": architecture,
        "launches": [stats(launch) for launch in driver.launches],
        "operations": beside.names,
    }


def stats(launch: Launch) -> dict[str, Any]:
    """registers a thread, instructions, spills to memory (NVIDIA: instructions, AMD: registers),
    stack and shared memory in bytes."""
    if "cubin" in launch.files:
        used = resources(launch.files["cubin"])
        found = {
            "registers": used.registers,
            "instructions": used.instructions,
            "spills": used.count("LDL", "STL"),
            "stack": used.stack,
        }
    else:
        text = launch.files["amdgcn"].read_text()
        said = {name: int(re.findall(rf"\.{name}:\s+(\d+)", text)[0]) for name in _AMD}
        found = {
            "registers": said["vgpr_count"],
            "instructions": len(AMD_INSTRUCTION.findall(text)),
        }
        found |= {"spills": said["vgpr_spill_count"], "stack": said["private_segment_fixed_size"]}
    programs = launch.grid[0] * launch.grid[1] * launch.grid[2]
    return {
        "kernel": launch.kernel,
        "programs": programs,
        "warps": launch.warps,
        **found,
        "shared": launch.shared,
    }


_AMD = ("vgpr_count", "vgpr_spill_count", "private_segment_fixed_size")
