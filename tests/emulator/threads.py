"""Instructions by which threads exchange values, wait for each other, part and end."""

from __future__ import annotations

import numpy as np

from tests.emulator.machine import Program
from tests.emulator.operands import NUMPY, Operands, Run, known, whole_warps
from tests.emulator.ptx import Unknown


def _all_lanes(operands: Operands, text: str) -> None:
    """The member mask: -1 as a number, or a register that holds it (checked when it runs by
    whole warps)."""
    if text != "-1" and operands.kernel.registers.get(text) != "b32":
        raise Unknown(f"member mask {text}: {operands.instruction}")


@known("shfl.sync.{up,down,bfly,idx}.b32")
def shuffle(operands: Operands, mode: str) -> Run:
    target, source, lane_operand, clamp_operand, members = operands.expect(5)
    _all_lanes(operands, members)
    value, by = operands.source(source, "b32"), operands.source(lane_operand, "u32")
    clamp, write = operands.source(clamp_operand, "u32"), operands.target(target, "b32")

    def run(program: Program, mask: np.ndarray) -> None:
        whole_warps(operands, program, mask)
        lane, step = program.thread.astype(np.int64) % 32, by(program).astype(np.int64) % 32
        limit = clamp(program).astype(np.int64)
        segment, end = (limit >> 8) & 31, limit & 31
        lowest, highest = lane & segment, (lane & segment) | (end & ~segment)
        at = {
            "up": lane - step,
            "down": lane + step,
            "bfly": lane ^ step,
            "idx": lowest | (step & ~segment),
        }[mode]
        inside = at >= highest if mode == "up" else at <= highest
        write(
            program,
            value(program)[np.where(inside, at, lane) + program.thread.astype(np.int64) // 32 * 32],
            mask,
        )

    return run


REDUCE = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@known("redux.sync.{add,max,min}.{s32,u32}", "redux.sync.{and,or,xor}.{b32}")
def reduce_warp(operands: Operands, name: str, kind: str) -> Run:
    target, source, members = operands.expect(3)
    _all_lanes(operands, members)
    value, write = operands.source(source, kind), operands.target(target, kind)

    def run(program: Program, mask: np.ndarray) -> None:
        whole_warps(operands, program, mask)
        reduced = REDUCE[name].reduce(value(program).reshape(-1, 32), 1, dtype=NUMPY[kind])
        write(program, np.repeat(reduced, 32), mask)

    return run


@known("bar.sync")
def barrier(operands: Operands) -> Run:
    if operands.expect(1) != ("0",):
        raise Unknown(str(operands.instruction))

    def run(program: Program, mask: np.ndarray) -> None:
        program.waiting |= mask

    return run


@known("bar.warp.sync")
def warp_barrier(operands: Operands) -> Run:
    _all_lanes(operands, *operands.expect(1))

    def run(program: Program, mask: np.ndarray) -> None:
        whole_warps(operands, program, mask)
        program.phase[mask] += 1

    return run


@known("bra{,.uni}")
def branch(operands: Operands, uniform: str) -> Run:
    (label,) = operands.expect(1)

    def run(program: Program, mask: np.ndarray) -> None:
        program.block[mask] = operands.kernel.labels[label]

    return run


@known("ret")
def end(operands: Operands) -> Run:
    operands.expect(0)

    def run(program: Program, mask: np.ndarray) -> None:
        program.ended |= mask

    return run
