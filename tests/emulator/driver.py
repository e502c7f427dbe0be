"""A Triton driver without a GPU: `kernel[grid](cpu_tensors)` is specialised, compiled for an
NVIDIA architecture by the real compiler, and then executed by the emulator - or only recorded.
For an AMD one it is compiled only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.gpu.compiling import CompilingDriver, Launch, active
from tests.emulator.machine import run

__all__ = ["EmulatorDriver", "Launch", "emulated"]


@dataclass
class EmulatorDriver(CompilingDriver):
    """seed: order of the programs (None: one after another); execute=False: compile and record
    only."""

    seed: int | None = None
    execute: bool = True

    def launch(self, launch: Launch, args: list[Any]) -> None:
        super().launch(launch, args)
        if self.execute:
            run(launch.ptx, launch.grid, args, seed=self.seed)


@contextlib.contextmanager
def emulated(
    arch: int | str, *, seed: int | None = None, execute: bool = True
) -> Iterator[EmulatorDriver]:
    """Every Triton launch inside runs in the emulator, on CPU tensors."""
    with active(EmulatorDriver(arch, seed=seed, execute=execute)) as driver:
        yield driver
