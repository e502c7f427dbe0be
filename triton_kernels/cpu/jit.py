"""What CPU kernels are written with: their compiler, tensors by address, bits of floats, fused
multiply-add and exp."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import carray, types
from numba.extending import overload

intrinsic: Any = numba.extending.intrinsic  # its own types know the decorator only

F32 = np.float32
WORDS = {torch.float32: np.uint32, torch.bfloat16: np.uint16}  # how kernels read a dtype
_HERE = Path(__file__).parent


def _cache() -> Path:
    """Where compiled code is kept: one folder for each version of this package's sources, since
    Numba itself looks at a kernel's own file only."""
    digest = hashlib.sha256(numba.__version__.encode())
    for file in sorted(_HERE.glob("*.py")):
        digest.update(file.read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "mtplab" / f"kernels-{digest.hexdigest()[:16]}"


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled at its first call, or loaded where an earlier process has compiled it. Releases the
    interpreter's lock."""
    return numba.njit(nogil=True, boundscheck=False, error_model="numpy")(function)


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """`compiled` for what Python calls: its machine code is kept on disk, where that is
    possible."""
    dispatcher: Any = compiled(function)
    config: Any = numba.config
    before, path = config.CACHE_DIR, _cache()
    config.CACHE_DIR = str(path)  # Numba looks at it now, not at the call
    try:
        new = not path.exists()
        dispatcher.enable_caching()
        if new:
            print(f"compiling kernels for this CPU, once, into {path}", file=sys.stderr)
    except (RuntimeError, OSError) as wrong:  # nowhere to write: compiled in every process
        print(f"kernels for this CPU are compiled in every process: {wrong}", file=sys.stderr)
    finally:
        config.CACHE_DIR = before
    return dispatcher


# ---- tensors


@intrinsic
def _pointer(context: Any, address: Any, kind: Any) -> Any:
    to = types.CPointer(kind.dtype)

    def build(lowering: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], lowering.get_value_type(to))

    return to(address, kind), build


@numba.njit(inline="always")
def tensor(address, shape, kind):
    """The array of that shape and dtype, row by row, at a tensor's `data_ptr()`."""
    return carray(_pointer(address, kind), shape)


# ---- floats


@intrinsic
def as_float(context: Any, bits: Any) -> Any:
    """The fp32 number with these bits: uint32, or the uint16 of a bf16 number."""

    def build(lowering: Any, builder: Any, _: Any, arguments: Any) -> Any:
        (word,) = arguments
        if bits.bitwidth == 16:
            word = builder.shl(builder.zext(word, ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(word, ir.FloatType())

    return types.float32(bits), build


@intrinsic
def as_bits(context: Any, number: Any) -> Any:
    def build(lowering: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), build


@intrinsic
def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c in one rounding."""

    def build(lowering: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), build


def rounded(number, like):
    """The bits of an fp32 number in the dtype of `like`: uint32, or uint16 for bf16 (to nearest,
    ties to even). Exists in compiled code only, as `_rounded` has it for each dtype."""
    raise TypeError("called outside compiled code")


@overload(rounded, inline="always")
def _rounded(number, like):
    if like == types.uint32:
        return lambda number, like: as_bits(number)

    def to_bf16(number, like):
        bits = as_bits(number)
        up = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        return np.uint16(up) if number == number else np.uint16(0x7FC0)

    return to_bf16


def finite(bits):
    """As `nan_to_num`: NaN becomes 0, an infinity the largest number of its sign. Exists in
    compiled code only, as `_finite` has it for each dtype."""
    raise TypeError("called outside compiled code")


@overload(finite, inline="always")
def _finite(bits):
    word, infinity = (np.uint32, 0x7F800000) if bits == types.uint32 else (np.uint16, 0x7F80)
    sign, inf, largest = word(2 ** (bits.bitwidth - 1)), word(infinity), word(infinity - 1)

    def cut(bits):
        magnitude = bits & word(sign - word(1))
        if magnitude < inf:
            return bits
        return word((bits & sign) | largest) if magnitude == inf else word(0)

    return cut


@numba.njit(inline="always")
def exp(x):
    """e^x of x <= 0 (below -86: that of -86) to 2 units in the last place; NaN stays NaN.

    x = n ln 2 + r; a polynomial of r (that of the Cephes library), times 2^n.
    """
    x = x if not x < F32(-86) else F32(-86)
    shifted = fma(x, F32(1.44269504), F32(12582912))  # 1.5 * 2^23: n stands in its low bits
    n = shifted - F32(12582912)
    r = fma(n, F32(2.12194440e-4), fma(n, F32(-0.693359375), x))
    y = fma(F32(1.9875691500e-4), r, F32(1.3981999507e-3))
    y = fma(y, r, F32(8.3334519073e-3))
    y = fma(y, r, F32(4.1665795894e-2))
    y = fma(y, r, F32(1.6666665459e-1))
    y = fma(y, r, F32(5.0000001201e-1))
    y = fma(y, r * r, r) + F32(1)
    return y * as_float(np.uint32((as_bits(shifted) << np.uint32(23)) + np.uint32(0x3F800000)))
