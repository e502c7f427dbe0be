"""Instructions that read and write memory."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.emulator.machine import BYTES, Program
from tests.emulator.memory import UINT, Memory, MemoryFault
from tests.emulator.operands import NUMPY, Operands, Run, known, whole_warps
from tests.emulator.ptx import Unknown


def _space(program: Program, space: str) -> Memory:
    return program.memory if space == "global" else program.shared


def _vector(operands: Operands, text: str, vector: str) -> list[str]:
    parts = [part.strip() for part in text.strip("{} ").split(",")]
    if len(parts) != int(vector[2:] or 1):
        raise Unknown(str(operands.instruction))
    return parts


@known("ld.param.{b32,b64,u32,u64}")
def load_param(operands: Operands, kind: str) -> Run:
    target, source = operands.expect(2)
    name, write = source.strip("[]"), operands.target(target, kind)
    if name not in dict(operands.kernel.params):
        raise Unknown(str(operands.instruction))
    number = NUMPY["u64"]
    return lambda program, mask: write(
        program,
        np.full(program.threads, number(program.params[name] % (1 << 64)).astype(NUMPY[kind])),
        mask,
    )


@known("ld.{global,shared}{,.v2,.v4}.{b8,b16,b32,b64,u8,u16,u32,s8,s16,s32}")
def load(operands: Operands, space: str, vector: str, kind: str) -> Run:
    """A register that is wider than the type is filled with its sign, or with zeros."""
    target, source = operands.expect(2)
    names, address = _vector(operands, target, vector), operands.address(source, space)
    size = BYTES[kind]
    declared = BYTES.get(operands.kernel.registers.get(names[0], ""), 0)
    held = f"{kind[0]}{8 * declared}" if size < declared else kind
    writes = [operands.target(name, held) for name in names]

    def run(program: Program, mask: np.ndarray) -> None:
        threads = np.flatnonzero(mask)
        content = _space(program, space).load(
            program, threads, address(program)[mask], size * len(names), operands.instruction
        )
        for i, write in enumerate(writes):
            value = np.zeros(program.threads, NUMPY[held])
            value[mask] = np.ascontiguousarray(content[:, i * size : (i + 1) * size]).view(
                NUMPY[kind]
            )[:, 0]
            write(program, value, mask)

    return run


@known("st.{global,shared,shared::cta}{,.v2,.v4}.{b8,b16,b32,b64}")
def store(operands: Operands, space: str, vector: str, kind: str) -> Run:
    target, source = operands.expect(2)
    names, address = _vector(operands, source, vector), operands.address(target, space)
    size = BYTES[kind]
    reads = [operands.source(name, "b16" if kind == "b8" else kind) for name in names]

    def run(program: Program, mask: np.ndarray) -> None:
        values = [read(program)[mask].astype(UINT[size])[:, None].view(np.uint8) for read in reads]
        threads = np.flatnonzero(mask)
        _space(program, space).store(
            program,
            threads,
            address(program)[mask],
            np.concatenate(values, 1),
            operands.instruction,
        )

    return run


@known("stmatrix.sync.aligned.m8n8.{x1,x2,x4}.shared.b16")
def store_matrices(operands: Operands, count: str) -> Run:
    """Matrices of 8 rows of 16 bytes in shared memory. Lane 8 m + r names the address of row r
    of matrix m; a lane's register m holds two elements of it, at row lane / 4."""
    target, source = operands.expect(2)
    reads = [operands.source(name, "b32") for name in _vector(operands, source, f".v{count[1:]}")]
    address = operands.address(target, "shared")

    def run(program: Program, mask: np.ndarray) -> None:
        whole_warps(operands, program, mask)
        threads = np.flatnonzero(mask)
        lane, warp = threads % 32, threads // 32 * 32
        named = address(program)
        for m, read in enumerate(reads):
            row = named[warp + 8 * m + lane // 4]
            if (row % np.uint64(16)).any():
                raise MemoryFault(f"a row is not aligned by 16 bytes: {operands.instruction}")
            content = np.ascontiguousarray(read(program)[mask])[:, None].view(np.uint8)
            program.shared.store(
                program,
                threads,
                row + (4 * (lane % 4)).astype(np.uint64),
                content,
                operands.instruction,
            )

    return run


UPDATE: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "max": max,
    "exch": lambda old, new: new,
}


@known(
    "atom.global.gpu.{relaxed,acq_rel}.{add.u32,max.s64,exch.b64}",
    "red.global.gpu.{relaxed}.{max.s64}",
)
def atomic(operands: Operands, order: str, update: str) -> Run:
    name, kind = update.split(".")
    returns = operands.instruction.opcode.startswith("atom")
    *target, place, value = operands.expect(3 if returns else 2)
    address, read = operands.address(place, "global"), operands.source(value, kind)
    write = operands.target(target[0], kind) if returns else None

    def run(program: Program, mask: np.ndarray) -> None:
        addresses, values, old = (
            address(program),
            read(program),
            np.zeros(program.threads, NUMPY[kind]),
        )
        for thread in np.flatnonzero(mask):
            cell = program.memory.atomic(
                program, thread, int(addresses[thread]), BYTES[kind], operands.instruction, order
            ).view(NUMPY[kind])
            old[thread] = cell[0]
            cell[0] = UPDATE[name](cell[0], values[thread])
        if write:
            write(program, old, mask)

    return run
