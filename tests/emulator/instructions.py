"""What each instruction does. An opcode is known as a whole, with its modifiers and types, or not at all.

To add one: a maker under `@known("name.{modifier,...}.{type,...}")` gets the instruction and what stood in the braces, and
returns a function of (program, mask of threads); `elementwise` makes those that work lane by lane.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.emulator.machine import BYTES, SHARED_BASE, Program
from tests.emulator.memory import UINT, Memory
from tests.emulator.ptx import Instruction, Kernel, PtxError, Unknown

Run = Callable[[Program, np.ndarray], None]
NUMPY: dict[str, Any] = {"b8": np.uint8, "u8": np.uint8, "s8": np.int8}
NUMPY |= {"b16": np.uint16, "u16": np.uint16, "s16": np.int16, "b32": np.uint32, "u32": np.uint32, "s32": np.int32}
NUMPY |= {"b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16, "pred": np.bool_}
REGISTRY: dict[str, tuple[Callable[..., Run], tuple[str, ...]]] = {}
ADDRESS = re.compile(r"\[ ?(%\w+|global_smem) ?(?:\+ ?(-?\d+))? ?\]$")


def decode(instruction: Instruction, kernel: Kernel) -> Run:
    if instruction.opcode not in REGISTRY:
        raise Unknown(str(instruction))
    maker, parts = REGISTRY[instruction.opcode]
    run = maker(_Operands(instruction, kernel), *parts)
    if instruction.guard is None:
        return run
    predicate, negated = instruction.guard

    def guarded(program: Program, active: np.ndarray) -> None:
        mask = active & (program.registers[predicate] != negated)
        if mask.any():
            run(program, mask)

    return guarded


def known(*patterns: str) -> Callable[[Callable[..., Run]], Callable[..., Run]]:
    def register(maker: Callable[..., Run]) -> Callable[..., Run]:
        for pattern in patterns:
            pieces = re.split(r"\{([^}]*)\}", pattern)
            for chosen in itertools.product(*(piece.split(",") for piece in pieces[1::2])):
                opcode = "".join(itertools.chain(*itertools.zip_longest(pieces[::2], chosen, fillvalue="")))
                REGISTRY[opcode] = maker, chosen
        return maker

    return register


class _Operands:
    """An instruction's operands, read and written with the type that its opcode names."""

    def __init__(self, instruction: Instruction, kernel: Kernel) -> None:
        self.instruction, self.kernel = instruction, kernel

    def expect(self, count: int) -> tuple[str, ...]:
        if len(self.instruction.operands) != count:
            raise Unknown(str(self.instruction))
        return self.instruction.operands

    def source(self, text: str, kind: str) -> Callable[[Program], np.ndarray]:
        """The operand's value by thread; bf16 and f16 as float32."""
        want = NUMPY[kind]
        if text in self.kernel.registers:
            self._fits(text, kind)
            if kind == "bf16":
                return lambda program: (program.registers[text].astype(np.uint32) << np.uint32(16)).view(np.float32)
            if kind == "f16":
                return lambda program: program.registers[text].view(np.float16).astype(np.float32)
            return lambda program: program.registers[text].view(want)
        if text.startswith("%") and kind in ("u32", "b32"):
            return lambda program: program.special[text]
        value = self.number(text, want)
        return lambda program: np.full(program.threads, value)

    def number(self, text: str, want: Any) -> Any:
        if text == "global_smem":
            return want(SHARED_BASE)
        if re.fullmatch(r"0f[0-9A-Fa-f]{8}", text) and want is np.float32:
            return np.uint32(int(text[2:], 16)).view(np.float32)
        if re.fullmatch(r"-?(\d+|0x[0-9A-Fa-f]+)", text) and want not in (np.float32, np.float16):
            bits = 8 * want().itemsize
            return want(int(text, 0)) if want is np.bool_ else UINT[bits // 8](int(text, 0) % (1 << bits)).view(want)
        raise Unknown(f"operand {text}: {self.instruction}")

    def target(self, text: str, kind: str) -> Callable[[Program, np.ndarray, np.ndarray], None]:
        if text == "_":
            return lambda program, value, mask: None
        self._fits(text, kind)

        def write(program: Program, value: np.ndarray, mask: np.ndarray) -> None:
            if value.dtype != NUMPY[kind]:
                raise PtxError(f"the emulator made {value.dtype} of {self.instruction}")
            bits = value if kind == "pred" else value.view(UINT[value.itemsize])
            program.registers[text] = np.where(mask, bits, program.registers[text])

        return write

    def _fits(self, register: str, kind: str) -> None:
        declared = self.kernel.registers.get(register)
        if declared is None or (declared == "pred") != (kind == "pred"):
            raise Unknown(f"register {register}: {self.instruction}")
        if kind != "pred" and BYTES[declared] != np.dtype(NUMPY[kind]).itemsize:
            raise Unknown(f"register {register} is {declared}: {self.instruction}")

    def address(self, text: str, space: str) -> Callable[[Program], np.ndarray]:
        match = ADDRESS.match(text)
        if match is None:
            raise Unknown(f"address {text}: {self.instruction}")
        base = self.source(match[1], "u64" if space == "global" else "u32")
        offset = np.uint64(int(match[2] or 0) % (1 << 64))
        return lambda program: base(program).astype(np.uint64) + offset


def elementwise(operands: _Operands, out: str, kinds: Sequence[str], function: Callable[..., np.ndarray]) -> Run:
    target, *sources = operands.expect(len(kinds) + 1)
    read = [operands.source(text, kind) for text, kind in zip(sources, kinds, strict=True)]
    write = operands.target(target, out)
    return lambda program, mask: write(program, function(*(value(program) for value in read)), mask)


# ---- arithmetic

BINARY = {"add": operator.add, "sub": operator.sub, "mul.lo": operator.mul, "min": np.minimum, "max": np.maximum}
BINARY |= {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


@known("{add,sub,mul.lo,min,max}.{s32,u32,s64,u64}", "{and,or,xor}.{pred,b16,b32,b64}", "{min,max}.{s16,u16}", "{add,sub}.{s16,u16}")
def binary(operands: _Operands, name: str, kind: str) -> Run:
    return elementwise(operands, kind, (kind, kind), BINARY[name])


@known("{neg.s32,neg.s64,not.b16,not.b32,not.b64,not.pred}")
def unary(operands: _Operands, name: str) -> Run:
    kind = name.split(".")[1]
    return elementwise(operands, kind, (kind,), operator.neg if name.startswith("neg") else operator.invert)


@known("mad.lo.{s32,u32,s64}")
def multiply_add(operands: _Operands, kind: str) -> Run:
    return elementwise(operands, kind, (kind,) * 3, lambda a, b, c: a * b + c)


@known("{mul,mad}.wide.{s32,u32}")
def wide(operands: _Operands, name: str, kind: str) -> Run:
    twice = {"s32": "s64", "u32": "u64"}[kind]
    kinds = (kind, kind, twice) if name == "mad" else (kind, kind)
    return elementwise(operands, twice, kinds, lambda a, b, c=0: a.astype(NUMPY[twice]) * b.astype(NUMPY[twice]) + NUMPY[twice](0) + c)


@known("shl.{b16,b32,b64}", "shr.{u16,s16,u32,s32,u64,s64,b32,b64}")
def shift(operands: _Operands, kind: str) -> Run:
    left, bits = operands.instruction.opcode.startswith("shl"), 8 * np.dtype(NUMPY[kind]).itemsize

    def function(value: np.ndarray, amount: np.ndarray) -> np.ndarray:
        near = np.minimum(amount, bits - 1).astype(value.dtype)
        moved = value << near if left else value >> near
        return np.where(amount < bits, moved, value >> near if kind[0] == "s" and not left else value.dtype.type(0))

    return elementwise(operands, kind, (kind, "u32"), function)


@known("bfe.{u32,s32}")
def extract_bits(operands: _Operands, kind: str) -> Run:
    def function(value: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        if ((start + length > 32) | (length == 0)).any():
            raise Unknown(str(operands.instruction))
        return (value << (32 - start - length).astype(value.dtype)) >> (32 - length).astype(value.dtype)

    return elementwise(operands, kind, (kind, "u32", "u32"), function)


@known("prmt.b32")
def permute_bytes(operands: _Operands) -> Run:
    """Each half-byte of the third operand chooses a byte of the other two; its highest bit spreads that byte's sign."""

    def function(low: np.ndarray, high: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        source = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        result = np.zeros_like(low)
        for i in range(4):
            which = (chosen >> np.uint32(4 * i)) & np.uint32(15)
            byte = (source >> (np.uint64(8) * (which & np.uint32(7)))).astype(np.uint8)
            byte = np.where(which & np.uint32(8), np.where(byte & np.uint8(128), np.uint8(255), np.uint8(0)), byte)
            result |= byte.astype(np.uint32) << np.uint32(8 * i)
        return result

    return elementwise(operands, "b32", ("b32",) * 3, function)


@known("selp.{b16,b32,b64,f32}")
def select(operands: _Operands, kind: str) -> Run:
    return elementwise(operands, kind, (kind, kind, "pred"), lambda a, b, choose: np.where(choose, a, b))


COMPARE = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
COMPARE["nan"] = lambda a, b: np.isnan(a) | np.isnan(b)


@known("setp.{eq,ne}.{b16,b32,b64}", "setp.{eq,ne,lt,le,gt,ge}.{s16,u16,s32,u32,s64,u64}", "setp.nan.{f32,f16,bf16}")
def compare(operands: _Operands, name: str, kind: str = "") -> Run:
    if name in ("f32", "f16", "bf16"):
        name, kind = "nan", name
    return elementwise(operands, "pred", (kind, kind), COMPARE[name])


@known("cvt.{f32}.{bf16,f16}", "cvt.{u64,u32,u16}.{u64,u32,u16}", "cvt.{s64,s32,s16}.{s32,s16,s64}")
def convert(operands: _Operands, out: str, kind: str) -> Run:
    return elementwise(operands, out, (kind,), lambda value: value.astype(NUMPY[out]))


@known("mov.{pred,b16,u16,b32,u32,b64,u64,s32,f32}")
def move(operands: _Operands, kind: str) -> Run:
    """Also packs {low, high} into one register, and unpacks."""
    target, source = operands.expect(2)
    if not (target + source).count("{"):
        return elementwise(operands, kind, (kind,), np.copy)
    parts = [part.strip() for part in (target + source)[(target + source).index("{") + 1 :].split("}")[0].split(",")]
    bits = 8 * np.dtype(NUMPY[kind]).itemsize // len(parts)
    part = f"b{bits}"
    if target.startswith("{"):
        read, writes = operands.source(source, kind), [operands.target(name, part) for name in parts]

        def unpack(program: Program, mask: np.ndarray) -> None:
            value = read(program)
            for i, write in enumerate(writes):
                write(program, (value >> value.dtype.type(i * bits)).astype(NUMPY[part]), mask)

        return unpack
    reads, write = [operands.source(name, part) for name in parts], operands.target(target, kind)

    def pack(program: Program, mask: np.ndarray) -> None:
        write(
            program, sum((read(program).astype(NUMPY[kind]) << NUMPY[kind](i * bits) for i, read in enumerate(reads)), NUMPY[kind](0)), mask
        )

    return pack


# ---- memory


def _space(program: Program, space: str) -> Memory:
    return program.memory if space == "global" else program.shared


def _vector(operands: _Operands, text: str, vector: str) -> list[str]:
    parts = [part.strip() for part in text.strip("{} ").split(",")]
    if len(parts) != int(vector[2:] or 1):
        raise Unknown(str(operands.instruction))
    return parts


@known("ld.param.{b32,b64,u32,u64}")
def load_param(operands: _Operands, kind: str) -> Run:
    target, source = operands.expect(2)
    name, write = source.strip("[]"), operands.target(target, kind)
    if name not in dict(operands.kernel.params):
        raise Unknown(str(operands.instruction))
    number = NUMPY["u64"]
    return lambda program, mask: write(
        program, np.full(program.threads, number(program.params[name] % (1 << 64)).astype(NUMPY[kind])), mask
    )


@known("ld.{global,shared}{,.v2,.v4}.{b8,b16,b32,b64,u8,u16,u32,s8,s16,s32}")
def load(operands: _Operands, space: str, vector: str, kind: str) -> Run:
    """A register that is wider than the type is filled with its sign, or with zeros."""
    target, source = operands.expect(2)
    names, address = _vector(operands, target, vector), operands.address(source, space)
    size = BYTES[kind]
    declared = BYTES[operands.kernel.registers[names[0]]]
    held = f"{kind[0]}{8 * declared}" if size < declared else kind
    writes = [operands.target(name, held) for name in names]

    def run(program: Program, mask: np.ndarray) -> None:
        threads = np.flatnonzero(mask)
        content = _space(program, space).load(program, threads, address(program)[mask], size * len(names), operands.instruction)
        for i, write in enumerate(writes):
            value = np.zeros(program.threads, NUMPY[held])
            value[mask] = np.ascontiguousarray(content[:, i * size : (i + 1) * size]).view(NUMPY[kind])[:, 0]
            write(program, value, mask)

    return run


@known("st.{global,shared,shared::cta}{,.v2,.v4}.{b8,b16,b32,b64}")
def store(operands: _Operands, space: str, vector: str, kind: str) -> Run:
    target, source = operands.expect(2)
    names, address = _vector(operands, source, vector), operands.address(target, space)
    size = BYTES[kind]
    reads = [operands.source(name, "b16" if kind == "b8" else kind) for name in names]

    def run(program: Program, mask: np.ndarray) -> None:
        values = [read(program)[mask].astype(UINT[size])[:, None].view(np.uint8) for read in reads]
        threads = np.flatnonzero(mask)
        _space(program, space).store(program, threads, address(program)[mask], np.concatenate(values, 1), operands.instruction)

    return run


UPDATE: dict[str, Callable[[Any, Any], Any]] = {"add": operator.add, "max": max, "exch": lambda old, new: new}


@known("atom.global.gpu.{relaxed,acq_rel}.{add.u32,max.s64,exch.b64}", "red.global.gpu.{relaxed}.{max.s64}")
def atomic(operands: _Operands, order: str, update: str) -> Run:
    name, kind = update.split(".")
    returns = operands.instruction.opcode.startswith("atom")
    *target, place, value = operands.expect(3 if returns else 2)
    address, read = operands.address(place, "global"), operands.source(value, kind)
    write = operands.target(target[0], kind) if returns else None

    def run(program: Program, mask: np.ndarray) -> None:
        addresses, values, old = address(program), read(program), np.zeros(program.threads, NUMPY[kind])
        for thread in np.flatnonzero(mask):
            cell = program.memory.atomic(program, thread, int(addresses[thread]), BYTES[kind], operands.instruction, order).view(
                NUMPY[kind]
            )
            old[thread] = cell[0]
            cell[0] = UPDATE[name](cell[0], values[thread])
        if write:
            write(program, old, mask)

    return run


# ---- threads together


def _whole_warps(operands: _Operands, program: Program, mask: np.ndarray) -> None:
    warps = mask.reshape(-1, 32)
    if (warps.any(1) != warps.all(1)).any():
        raise PtxError(f"only a part of a warp arrives: {operands.instruction}")


def _all_lanes(operands: _Operands, text: str) -> None:
    """The member mask: -1 as a number, or a register that holds it (checked when it runs by whole warps)."""
    if text != "-1" and operands.kernel.registers.get(text) != "b32":
        raise Unknown(f"member mask {text}: {operands.instruction}")


@known("shfl.sync.{up,down,bfly,idx}.b32")
def shuffle(operands: _Operands, mode: str) -> Run:
    target, source, lane_operand, clamp_operand, members = operands.expect(5)
    _all_lanes(operands, members)
    value, by = operands.source(source, "b32"), operands.source(lane_operand, "u32")
    clamp, write = operands.source(clamp_operand, "u32"), operands.target(target, "b32")

    def run(program: Program, mask: np.ndarray) -> None:
        _whole_warps(operands, program, mask)
        lane, step = program.thread.astype(np.int64) % 32, by(program).astype(np.int64) % 32
        limit = clamp(program).astype(np.int64)
        segment, end = (limit >> 8) & 31, limit & 31
        lowest, highest = lane & segment, (lane & segment) | (end & ~segment)
        at = {"up": lane - step, "down": lane + step, "bfly": lane ^ step, "idx": lowest | (step & ~segment)}[mode]
        inside = at >= highest if mode == "up" else at <= highest
        write(program, value(program)[np.where(inside, at, lane) + program.thread.astype(np.int64) // 32 * 32], mask)

    return run


REDUCE = {"add": np.add, "max": np.maximum, "min": np.minimum}


@known("redux.sync.{add,max,min}.{s32,u32}")
def reduce_warp(operands: _Operands, name: str, kind: str) -> Run:
    target, source, members = operands.expect(3)
    _all_lanes(operands, members)
    value, write = operands.source(source, kind), operands.target(target, kind)

    def run(program: Program, mask: np.ndarray) -> None:
        _whole_warps(operands, program, mask)
        reduced = REDUCE[name].reduce(value(program).reshape(-1, 32), 1, dtype=NUMPY[kind])
        write(program, np.repeat(reduced, 32), mask)

    return run


@known("bar.sync")
def barrier(operands: _Operands) -> Run:
    if operands.expect(1) != ("0",):
        raise Unknown(str(operands.instruction))

    def run(program: Program, mask: np.ndarray) -> None:
        program.waiting |= mask

    return run


@known("bar.warp.sync")
def warp_barrier(operands: _Operands) -> Run:
    _all_lanes(operands, *operands.expect(1))

    def run(program: Program, mask: np.ndarray) -> None:
        _whole_warps(operands, program, mask)
        program.phase[mask] += 1

    return run


@known("bra{,.uni}")
def branch(operands: _Operands, uniform: str) -> Run:
    (label,) = operands.expect(1)

    def run(program: Program, mask: np.ndarray) -> None:
        program.block[mask] = operands.kernel.labels[label]

    return run


@known("ret")
def end(operands: _Operands) -> Run:
    operands.expect(0)

    def run(program: Program, mask: np.ndarray) -> None:
        program.ended |= mask

    return run
