"""Instructions that work thread by thread on registers."""

from __future__ import annotations

import operator

import numpy as np

from tests.emulator.machine import Program
from tests.emulator.operands import NUMPY, Operands, Run, elementwise, known
from tests.emulator.ptx import PtxError, Unknown

BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul.lo": operator.mul,
    "min": np.minimum,
    "max": np.maximum,
}
BINARY |= {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


@known(
    "{add,sub,mul.lo,min,max}.{s32,u32,s64,u64}",
    "{and,or,xor}.{pred,b16,b32,b64}",
    "{min,max}.{s16,u16}",
    "{add,sub}.{s16,u16}",
)
def binary(operands: Operands, name: str, kind: str) -> Run:
    return elementwise(operands, kind, (kind, kind), BINARY[name])


@known("{neg.s32,neg.s64,not.b16,not.b32,not.b64,not.pred}")
def unary(operands: Operands, name: str) -> Run:
    kind = name.split(".")[1]
    return elementwise(
        operands, kind, (kind,), operator.neg if name.startswith("neg") else operator.invert
    )


@known("{add,sub,mul}.rn.f32")
def rounded(operands: Operands, name: str) -> Run:
    return elementwise(operands, "f32", ("f32", "f32"), BINARY["mul.lo" if name == "mul" else name])


@known("{add,sub,mul}.rn.f32x2")
def rounded_pair(operands: Operands, name: str) -> Run:
    """Two floats in one 64-bit register."""
    function = BINARY["mul.lo" if name == "mul" else name]

    def pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return function(first.view(np.float32), second.view(np.float32)).view(np.uint64)

    return elementwise(operands, "b64", ("b64", "b64"), pairs)


@known("{ex2.approx,div.full}.f32")
def approximate(operands: Operands, name: str) -> Run:
    """Rounded to the nearest here; a GPU may be two units in the last place off. A tolerance
    must cover that."""
    if name == "div.full":
        return elementwise(operands, "f32", ("f32", "f32"), operator.truediv)
    return elementwise(
        operands,
        "f32",
        ("f32",),
        lambda value: np.exp2(value.astype(np.float64)).astype(np.float32),
    )


@known("{div,rem}.s32")
def divide(operands: Operands, name: str) -> Run:
    """Towards zero. By zero there is no result that code could rely on."""

    def function(value: np.ndarray, by: np.ndarray) -> np.ndarray:
        if (by == 0).any():
            raise PtxError(f"division by zero: {operands.instruction}")
        rest = np.fmod(value, by)
        return rest if name == "rem" else (value - rest) // by

    return elementwise(operands, "s32", ("s32", "s32"), function)


@known("mad.lo.{s32,u32,s64}")
def multiply_add(operands: Operands, kind: str) -> Run:
    return elementwise(operands, kind, (kind,) * 3, lambda a, b, c: a * b + c)


@known("{mul,mad}.wide.{s32,u32}")
def wide(operands: Operands, name: str, kind: str) -> Run:
    twice = {"s32": "s64", "u32": "u64"}[kind]
    kinds = (kind, kind, twice) if name == "mad" else (kind, kind)
    return elementwise(
        operands,
        twice,
        kinds,
        lambda a, b, c=0: a.astype(NUMPY[twice]) * b.astype(NUMPY[twice]) + NUMPY[twice](0) + c,
    )


@known("shl.{b16,b32,b64}", "shr.{u16,s16,u32,s32,u64,s64,b32,b64}")
def shift(operands: Operands, kind: str) -> Run:
    left, bits = operands.instruction.opcode.startswith("shl"), 8 * np.dtype(NUMPY[kind]).itemsize

    def function(value: np.ndarray, amount: np.ndarray) -> np.ndarray:
        near = np.minimum(amount, bits - 1).astype(value.dtype)
        moved = value << near if left else value >> near
        return np.where(
            amount < bits,
            moved,
            value >> near if kind[0] == "s" and not left else value.dtype.type(0),
        )

    return elementwise(operands, kind, (kind, "u32"), function)


@known("bfe.{u32,s32}")
def extract_bits(operands: Operands, kind: str) -> Run:
    def function(value: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        if ((start + length > 32) | (length == 0)).any():
            raise Unknown(str(operands.instruction))
        return (value << (32 - start - length).astype(value.dtype)) >> (32 - length).astype(
            value.dtype
        )

    return elementwise(operands, kind, (kind, "u32", "u32"), function)


@known("prmt.b32")
def permute_bytes(operands: Operands) -> Run:
    """Each half-byte of the third operand chooses a byte of the other two; its highest bit
    spreads that byte's sign."""

    def function(low: np.ndarray, high: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        source = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        result = np.zeros_like(low)
        for i in range(4):
            which = (chosen >> np.uint32(4 * i)) & np.uint32(15)
            byte = (source >> (np.uint64(8) * (which & np.uint32(7)))).astype(np.uint8)
            byte = np.where(
                which & np.uint32(8),
                np.where(byte & np.uint8(128), np.uint8(255), np.uint8(0)),
                byte,
            )
            result |= byte.astype(np.uint32) << np.uint32(8 * i)
        return result

    return elementwise(operands, "b32", ("b32",) * 3, function)


@known("selp.{b16,b32,b64,f32}")
def select(operands: Operands, kind: str) -> Run:
    return elementwise(
        operands, kind, (kind, kind, "pred"), lambda a, b, choose: np.where(choose, a, b)
    )


COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
COMPARE["nan"] = lambda a, b: np.isnan(a) | np.isnan(b)


@known(
    "setp.{eq,ne}.{b16,b32,b64}",
    "setp.{eq,ne,lt,le,gt,ge}.{s16,u16,s32,u32,s64,u64}",
    "setp.nan.{f32,f16,bf16}",
)
def compare(operands: Operands, name: str, kind: str = "") -> Run:
    if name in ("f32", "f16", "bf16"):
        name, kind = "nan", name
    return elementwise(operands, "pred", (kind, kind), COMPARE[name])


@known("cvt.{f32}.{bf16,f16}", "cvt.{u64,u32,u16}.{u64,u32,u16}", "cvt.{s64,s32,s16}.{s32,s16,s64}")
def convert(operands: Operands, out: str, kind: str) -> Run:
    return elementwise(operands, out, (kind,), lambda value: value.astype(NUMPY[out]))


@known("mov.{pred,b16,u16,b32,u32,b64,u64,s32,f32}")
def move(operands: Operands, kind: str) -> Run:
    """Also packs {low, high} into one register, and unpacks."""
    target, source = operands.expect(2)
    if not (target + source).count("{"):
        return elementwise(operands, kind, (kind,), np.copy)
    parts = [
        part.strip()
        for part in (target + source)[(target + source).index("{") + 1 :].split("}")[0].split(",")
    ]
    bits = 8 * np.dtype(NUMPY[kind]).itemsize // len(parts)
    part = f"b{bits}"
    if target.startswith("{"):
        read, writes = (
            operands.source(source, kind),
            [operands.target(name, part) for name in parts],
        )

        def unpack(program: Program, mask: np.ndarray) -> None:
            value = read(program)
            for i, write in enumerate(writes):
                write(program, (value >> value.dtype.type(i * bits)).astype(NUMPY[part]), mask)

        return unpack
    reads, write = [operands.source(name, part) for name in parts], operands.target(target, kind)

    def pack(program: Program, mask: np.ndarray) -> None:
        write(
            program,
            sum(
                (
                    read(program).astype(NUMPY[kind]) << NUMPY[kind](i * bits)
                    for i, read in enumerate(reads)
                ),
                NUMPY[kind](0),
            ),
            mask,
        )

    return pack
