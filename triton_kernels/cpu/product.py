"""Rows times a weight on a CPU, each sum in the order of the inner size: a row's bits are the same
at every row count.

The weight is laid out in panels of LANES outputs, inner place by inner place, so that one row's
step reads LANES weights that lie together. A block of 1, 2 or 4 rows keeps LANES sums in registers,
side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from torch import Tensor

from triton_kernels.cpu.jit import F32, WORDS, entry, intrinsic, rounded, tensor

LANES = 64
SHARED = 1 << 12  # steps of panels from which on several threads pay


def panels_of(weight: Tensor) -> Tensor:
    """[out, in] -> [panels, in, LANES], outputs past the last one 0."""
    whole = len(weight) // LANES
    panels = weight.new_zeros(-(-len(weight) // LANES), weight.shape[1], LANES)
    full, rest = weight[: whole * LANES], weight[whole * LANES :]
    panels[:whole] = full.unflatten(0, (whole, LANES)).transpose(1, 2)
    if len(rest):
        panels[whole, :, : len(rest)] = rest.T
    return panels


def _block(rows: int) -> Callable[..., Any]:
    """(x, panel, word, inner, sums): the sums of LANES / rows outputs, those that `panel` begins
    with, of `rows` rows. Addresses; x [rows, inner] and sums [rows, LANES / rows] fp32; word: the
    type of a weight.

    The compiler keeps vectors of this many numbers in registers; written as loops over arrays it
    would store and load every sum at every step.
    """
    lanes = LANES // rows

    @intrinsic
    def block(context: Any, x: Any, panel: Any, word: Any, inner: Any, sums: Any) -> Any:
        bits = word.dtype.bitwidth
        floats, words, number = (
            ir.VectorType(ir.FloatType(), lanes),
            ir.VectorType(ir.IntType(bits), lanes),
            ir.IntType(64),
        )

        def build(lowering: Any, builder: Any, _: Any, arguments: Any) -> Any:
            x_at, panel_at, _, count, sums_at = arguments

            def at(base: Any, index: Any, size: int) -> Any:
                return builder.add(base, builder.mul(index, ir.Constant(number, size)))

            def load(address: Any, kind: Any) -> Any:
                found = builder.load(builder.inttoptr(address, kind.as_pointer()), typ=kind)
                found.align = min(bits, 32) // 8
                return found

            before = builder.block
            body, after = builder.append_basic_block(), builder.append_basic_block()
            builder.branch(body)
            builder.position_at_end(body)
            step = builder.phi(number)
            step.add_incoming(ir.Constant(number, 0), before)
            totals = [builder.phi(floats) for _ in range(rows)]
            weights = load(at(panel_at, step, LANES * bits // 8), words)
            if bits == 16:
                wide = ir.VectorType(ir.IntType(32), lanes)
                sixteen = ir.Constant(wide, [16] * lanes)
                weights = builder.shl(builder.zext(weights, wide), sixteen)
            weights = builder.bitcast(weights, floats)
            none = ir.Constant(floats, ir.Undefined)
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            moved = []
            for row, total in enumerate(totals):
                total.add_incoming(ir.Constant(floats, [0.0] * lanes), before)
                place = builder.add(builder.mul(count, ir.Constant(number, row)), step)
                factor = load(at(x_at, place, 4), ir.FloatType())
                first = builder.insert_element(none, factor, ir.Constant(ir.IntType(32), 0))
                spread = builder.shuffle_vector(first, none, zeros)
                fused = builder.module.declare_intrinsic(
                    f"llvm.fma.v{lanes}f32", (), ir.FunctionType(floats, [floats] * 3)
                )
                moved.append(builder.call(fused, [spread, weights, total]))
                total.add_incoming(moved[-1], body)
            following = builder.add(step, ir.Constant(number, 1))
            step.add_incoming(following, body)
            builder.cbranch(builder.icmp_signed("<", following, count), body, after)
            builder.position_at_end(after)
            for row, total in enumerate(moved):
                place = builder.add(sums_at, ir.Constant(number, row * lanes * 4))
                builder.store(total, builder.inttoptr(place, floats.as_pointer()), align=4)
            return lowering.get_dummy_value()

        return types.none(types.int64, types.int64, word, types.int64, types.int64), build

    return block


_four, _two, _one = _block(4), _block(2), _block(1)


@entry
def _multiply(kind, wide_at, panels_at, out_at, forms, first_panel, last_panel):
    rows, inner, outputs = forms
    out, sums = tensor(out_at, (rows, outputs), kind), np.empty(LANES, F32)
    word_bytes, sums_at = out.itemsize, sums.ctypes.data
    for panel in range(first_panel, last_panel):
        row = 0
        while row < rows:
            count = 4 if rows - row >= 4 else 2 if rows - row >= 2 else 1
            lanes, line_at = LANES // count, wide_at + row * inner * 4
            for part in range(count):
                here = panels_at + (panel * inner * LANES + part * lanes) * word_bytes
                if count == 4:
                    _four(line_at, here, kind, inner, sums_at)
                elif count == 2:
                    _two(line_at, here, kind, inner, sums_at)
                else:
                    _one(line_at, here, kind, inner, sums_at)
                first = panel * LANES + part * lanes
                for member in range(count):
                    line = out[row + member]
                    for lane in range(min(lanes, outputs - first)):
                        total = sums[member * lanes + lane]
                        line[first + lane] = rounded(total, line[first + lane])
            row += count


def product_cpu(x: Tensor, panels: Tensor, outputs: int) -> Tensor:
    """x [rows, in], row by row in memory, times the weight that `panels_of` laid out -> [rows,
    outputs]. Both fp32 or both bf16; sums fp32. Panels are shared out among torch's threads."""
    rows, inner = x.shape
    out = torch.zeros(rows, outputs, dtype=x.dtype)
    if not rows or not inner:
        return out
    wide = x.float()
    tables = (WORDS[x.dtype], wide.data_ptr(), panels.data_ptr(), out.data_ptr())
    forms, count, threads = (rows, inner, outputs), len(panels), torch.get_num_threads()
    if threads == 1 or count * inner < SHARED:
        _multiply(*tables, forms, 0, count)
        return out
    borders = [count * n // threads for n in range(threads + 1)]
    shares = [_pool(threads).submit(_multiply, *tables, forms, *each) for each in pairwise(borders)]
    for share in shares:
        share.result()
    return out


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="product")
