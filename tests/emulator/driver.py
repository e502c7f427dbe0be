"""A Triton driver without a GPU: `kernel[grid](cpu_tensors)` is specialised, compiled for an NVIDIA architecture by the real
compiler, and then executed by the emulator - or only recorded. For an AMD one it is compiled only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.cache import get_cache_manager

from tests.emulator.machine import run


@dataclass(frozen=True)
class Launch:
    """files: what the compiler made, by kind (ptx, cubin, ...); shared: bytes of shared memory a program."""

    kernel: str
    grid: tuple[int, int, int]
    warps: int
    shared: int
    files: dict[str, Path]

    @property
    def ptx(self) -> str:
        return self.files["ptx"].read_text()


class _Utils:
    """What Triton asks of a device's driver when it loads a kernel."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        shared = {80: 163, 90: 227, 100: 227, 120: 99}.get(device, 64)  # KB
        return {"max_shared_mem": shared << 10, "max_num_regs": 65536, "multiprocessor_count": 132, "warpSize": 32}

    def load_binary(self, name: str, binary: bytes, shared: int, device: int, *_: Any) -> tuple[object, str, int, int, int]:
        return object(), name, 0, 0, 1024  # module, function, registers, spills, threads at most

    def unload_module(self, module: object) -> None: ...


class _Launcher:
    def __init__(self, source: Any, metadata: Any) -> None:
        self.types, self.warps, self.shared = list(source.signature.values()), metadata.num_warps, metadata.shared
        group = get_cache_manager(metadata.hash).get_group(f"{metadata.name}.json") or {}
        self.files = {name.rpartition(".")[2]: Path(path) for name, path in group.items()}

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: str, packed: Any, info: Any, enter: Any, leave: Any, *args: Any
    ) -> None:
        given = [value for value, kind in zip(args, self.types, strict=True) if kind != "constexpr"]
        triton.runtime.driver.active.launch(Launch(function, (x, y, z), self.warps, self.shared, self.files), given)


@dataclass
class EmulatorDriver(DriverBase):
    """arch: 80, 90, ..., or "gfx942"; seed: order of the programs (None: one after another); execute=False: compile and record only."""

    arch: int | str
    seed: int | None = None
    execute: bool = True
    launches: list[Launch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.utils, self.launcher_cls = _Utils(), _Launcher

    @property
    def number(self) -> int:
        return int(str(self.arch).removeprefix("gfx"))

    def launch(self, launch: Launch, args: list[Any]) -> None:
        self.launches.append(launch)
        if self.execute:
            run(launch.ptx, launch.grid, args, seed=self.seed)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, 32) if isinstance(self.arch, int) else GPUTarget("hip", self.arch, 64)

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
        raise RuntimeError("nothing is timed in the emulator")


@contextlib.contextmanager
def emulated(arch: int | str, *, seed: int | None = None, execute: bool = True) -> Iterator[EmulatorDriver]:
    """Every Triton launch inside runs in the emulator, on CPU tensors."""
    driver, config = EmulatorDriver(arch, seed, execute), triton.runtime.driver
    before, config._active = config._active, driver
    try:
        yield driver
    finally:
        config._active = before
