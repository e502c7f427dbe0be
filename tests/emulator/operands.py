"""How an instruction is made known, and how its operands are read and written."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.emulator.machine import BYTES, SHARED_BASE, Program
from tests.emulator.memory import UINT
from tests.emulator.ptx import Instruction, Kernel, PtxError, Unknown

Run = Callable[[Program, np.ndarray], None]
NUMPY: dict[str, Any] = {"b8": np.uint8, "u8": np.uint8, "s8": np.int8}
NUMPY |= {
    "b16": np.uint16,
    "u16": np.uint16,
    "s16": np.int16,
    "b32": np.uint32,
    "u32": np.uint32,
    "s32": np.int32,
}
NUMPY |= {
    "b64": np.uint64,
    "u64": np.uint64,
    "s64": np.int64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": np.uint16,
    "pred": np.bool_,
}
REGISTRY: dict[str, tuple[Callable[..., Run], tuple[str, ...]]] = {}
SPECIAL = {"%tid.x", "%ntid.x"} | {
    f"%{what}.{axis}" for what in ("ctaid", "nctaid") for axis in "xyz"
}
ADDRESS = re.compile(r"\[ ?(%\w+|global_smem) ?(?:\+ ?(-?\d+))? ?\]$")


def known(*patterns: str) -> Callable[[Callable[..., Run]], Callable[..., Run]]:
    def register(maker: Callable[..., Run]) -> Callable[..., Run]:
        for pattern in patterns:
            pieces = re.split(r"\{([^}]*)\}", pattern)
            for chosen in itertools.product(*(piece.split(",") for piece in pieces[1::2])):
                opcode = "".join(
                    itertools.chain(*itertools.zip_longest(pieces[::2], chosen, fillvalue=""))
                )
                REGISTRY[opcode] = maker, chosen
        return maker

    return register


class Operands:
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
                return lambda program: (
                    program.registers[text].astype(np.uint32) << np.uint32(16)
                ).view(np.float32)
            if kind == "f16":
                return lambda program: program.registers[text].view(np.float16).astype(np.float32)
            return lambda program: program.registers[text].view(want)
        if text in SPECIAL and kind in ("u32", "b32"):
            return lambda program: program.special[text]
        value = (
            self.number(text, np.float32).view(want)
            if kind == "b32" and text.startswith("0f")
            else self.number(text, want)
        )
        return lambda program: np.full(program.threads, value)

    def number(self, text: str, want: Any) -> Any:
        if text == "global_smem":
            return want(SHARED_BASE)
        if re.fullmatch(r"0f[0-9A-Fa-f]{8}", text) and want is np.float32:
            return np.uint32(int(text[2:], 16)).view(np.float32)
        if re.fullmatch(r"-?(\d+|0x[0-9A-Fa-f]+)", text) and want not in (np.float32, np.float16):
            bits = 8 * want().itemsize
            return (
                want(int(text, 0))
                if want is np.bool_
                else UINT[bits // 8](int(text, 0) % (1 << bits)).view(want)
            )
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


def elementwise(
    operands: Operands, out: str, kinds: Sequence[str], function: Callable[..., np.ndarray]
) -> Run:
    target, *sources = operands.expect(len(kinds) + 1)
    read = [operands.source(text, kind) for text, kind in zip(sources, kinds, strict=True)]
    write = operands.target(target, out)
    return lambda program, mask: write(program, function(*(value(program) for value in read)), mask)


def whole_warps(operands: Operands, program: Program, mask: np.ndarray) -> None:
    warps = mask.reshape(-1, 32)
    if (warps.any(1) != warps.all(1)).any():
        raise PtxError(f"only a part of a warp arrives: {operands.instruction}")
