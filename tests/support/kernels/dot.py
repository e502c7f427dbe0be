"""Triton's interpreter multiplies matrices with numpy's BLAS, whose sums depend on a row's place
on some processors (OpenBLAS on AMD's). Here every sum is taken in order, so that what a test
finds about places is the kernel's doing."""

from __future__ import annotations

from typing import Any

import numpy as np
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


def sum_in_order() -> None:
    """Every `tl.dot` of this process, of tiles of 16-bit or 32-bit floats."""
    InterpreterBuilder.create_dot = _dot  # type: ignore[method-assign]


def _dot(self: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
    left, right = a.data.astype(d.data.dtype), b.data.astype(d.data.dtype)
    total = np.zeros_like(d.data)
    for place in range(left.shape[-1]):
        total += left[..., :, place, None] * right[..., place, None, :]
    return TensorHandle(total + d.data, d.dtype.scalar)
