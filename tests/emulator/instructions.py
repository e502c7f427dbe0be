"""What each instruction does. An opcode is known as a whole, with its modifiers and types, or not
at all.

To add one, in the file it fits: a maker under `@known("name.{modifier,...}.{type,...}")` gets the
instruction's operands and what stood in the braces, and returns a function of (program, mask of
threads); `elementwise` makes those that work thread by thread.
"""

from __future__ import annotations

import numpy as np

from tests.emulator import access, arithmetic, threads
from tests.emulator.machine import Program
from tests.emulator.operands import REGISTRY, Operands, Run
from tests.emulator.ptx import Instruction, Kernel, Unknown

__all__ = ["REGISTRY", "access", "arithmetic", "decode", "threads"]


def decode(instruction: Instruction, kernel: Kernel) -> Run:
    if instruction.opcode not in REGISTRY:
        raise Unknown(str(instruction))
    maker, parts = REGISTRY[instruction.opcode]
    run = maker(Operands(instruction, kernel), *parts)
    if instruction.guard is None:
        return run
    predicate, negated = instruction.guard

    def guarded(program: Program, active: np.ndarray) -> None:
        mask = active & (program.registers[predicate] != negated)
        if mask.any():
            run(program, mask)

    return guarded
