"""Runs the programs of a grid: one numpy lane per thread, interleaved by a seed, each with its
own registers and barriers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from tests.emulator.memory import UINT, Memory
from tests.emulator.ptx import Instruction, Kernel, PtxError, Unknown, parse

SHARED_BYTES = 99 << 10
SHARED_BASE = 1 << 16  # so that address 0 is nowhere
BYTES = {f"{sort}{8 * size}": size for sort in "bus" for size in (1, 2, 4, 8)} | {"f32": 4}
POISON = 0xDB


def _poisoned(kind: str, threads: int) -> np.ndarray:
    if kind == "pred":
        return np.ones(threads, bool)
    return np.full(threads * BYTES[kind], POISON, np.uint8).view(UINT[BYTES[kind]])


class Program:
    """One program (a block of threads) between two basic blocks."""

    def __init__(
        self,
        kernel: Kernel,
        code: list[list[Callable]],
        memory: Memory,
        place: tuple[int, int, int],
        number: int,
        grid: tuple[int, int, int],
        params: dict[str, int],
        programs: int,
    ) -> None:
        self.kernel, self.code, self.memory, self.params, self.number = (
            kernel,
            code,
            memory,
            params,
            number,
        )
        self.threads = kernel.threads
        self.thread = np.arange(self.threads, dtype=np.uint32)
        self.registers = {
            name: _poisoned(kind, self.threads) for name, kind in kernel.registers.items()
        }
        self.special = {
            "%tid.x": self.thread,
            "%ntid.x": np.full(self.threads, self.threads, np.uint32),
        }
        for axis, at, size in zip("xyz", place, grid, strict=True):
            self.special[f"%ctaid.{axis}"] = np.full(self.threads, at, np.uint32)
            self.special[f"%nctaid.{axis}"] = np.full(self.threads, size, np.uint32)
        self.shared = Memory()
        self.shared.place(np.full(SHARED_BYTES, POISON, np.uint8), SHARED_BASE)
        self.block = np.zeros(self.threads, np.int64)  # the next one, by thread
        self.waiting, self.ended = np.zeros(self.threads, bool), np.zeros(self.threads, bool)
        self.epoch = 0  # barriers passed
        self.phase = np.zeros(self.threads, np.int64)  # warp barriers passed
        self.clock = np.zeros(programs, np.int64)  # releases of every program that are visible here
        self.clock[number] = 1

    def step(self) -> bool:
        """One basic block, for the threads that are furthest behind. False when the program has
        ended."""
        able = ~self.ended & ~self.waiting
        if not able.any():
            if self.ended.all():
                return False
            self._pass_barrier()
            return True
        block = int(self.block[able].min())
        active = able & (self.block == block)
        if block >= len(self.code):
            raise PtxError(f"{self.kernel.name} runs past its end")
        self.block[active] = block + 1
        for run in self.code[block]:
            run(self, active)
        return True

    def _pass_barrier(self) -> None:
        if self.ended.any() or len(set(self.block[self.waiting].tolist())) > 1:
            raise PtxError(f"{self.kernel.name}: not every thread arrives at the barrier")
        self.waiting[:] = False
        self.epoch += 1
        for segment in self.shared.segments:
            segment.reads.clear()
            segment.writes.clear()


def run(
    ptx: str,
    grid: Sequence[int],
    args: Sequence[Any],
    *,
    seed: int | None = None,
    memory: Memory | None = None,
    programs: Iterable[tuple[int, int, int]] | None = None,
) -> None:
    """Run a kernel. args: CPU tensors or integers (with `memory`, also addresses), in the order
    of its parameters; those that Triton adds may be missing. seed: interleaves the programs;
    None: one after another. programs: only these of the grid."""
    from tests.emulator.instructions import decode

    kernel = parse(ptx)
    memory = memory or Memory()
    params = dict.fromkeys((name for name, _ in kernel.params), 0)
    for (name, _), value in zip(kernel.params, args, strict=False):
        params[name] = memory.add(value) if isinstance(value, torch.Tensor) else int(value)
    x, y, z = (*grid, 1, 1)[:3]
    places = (
        list(programs)
        if programs
        else [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    )
    code = _decoded(ptx, decode)
    order = [
        Program(kernel, code, memory, place, n, (x, y, z), params, len(places))
        for n, place in enumerate(places)
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        if seed is None:
            for program in order:
                while program.step():
                    pass
        else:
            _interleave(order, random.Random(seed))


def _interleave(running: list[Program], chance: random.Random) -> None:
    """Random priorities; the one that runs now and then falls behind others."""
    chance.shuffle(running)
    demote = chance.choice((0.0, 0.05, 0.5))
    while running:
        if not running[-1].step():
            running.pop()
        elif len(running) > 1 and chance.random() < demote:
            running.insert(chance.randrange(len(running) - 1), running.pop())


_code: dict[str, list[list[Callable]]] = {}


def _decoded(ptx: str, decode: Callable[[Instruction, Kernel], Callable]) -> list[list[Callable]]:
    if ptx not in _code:
        kernel = parse(ptx)
        _code[ptx] = [
            [decode(instruction, kernel) for instruction in block] for block in kernel.blocks
        ]
    return _code[ptx]


__all__ = ["Program", "Unknown", "run"]
