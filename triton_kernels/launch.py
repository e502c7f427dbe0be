"""What the kernels share: Triton where there is one, one opaque torch operation per kernel,
scratch that outlives captures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl

    jit: Callable[..., Any] = triton.jit
    constant: Callable[[float], Any] = tl.constexpr  # a module's number that a kernel reads
except ImportError:  # Triton exists for Linux only; elsewhere the twins do all the work

    def jit(*functions: Any, **_: Any) -> Any:
        return functions[0] if functions else lambda function: function

    def constant(value: float) -> Any:
        return value

    tl: Any = None  # type: ignore[no-redef]

MOST_SLOTS = 64  # one tile holds every slot, so the number of slots never makes a new variant
MOST_ROWS = 64  # likewise the rows of a window
SLOT_TILE, ROW_TILE = constant(MOST_SLOTS), constant(MOST_ROWS)
# a launch whose products and sums each keep their own rounding, in every Triton
UNFUSED = {"enable_fp_fusion": False}

# Library rather than torch.library.custom_op: 1.5 instead of 3.2 microseconds a call
_LIBRARY = torch.library.Library("mtplab", "DEF")


def kernel(function: Callable[..., Any]) -> Any:
    """`jit` for what is launched: no argument's value or alignment ever makes a new variant,
    only dtypes and constexprs do."""
    names = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if "constexpr" not in str(parameter.annotation)
    ]
    return jit(do_not_specialize=names, do_not_specialize_on_alignment=names)(function)


def operation(
    schema: str, *, cpu: Callable[..., Any], cuda: Callable[..., Any]
) -> Callable[..., Any]:
    """One operation that a capture sees as a single launch: what `cpu` does on a CPU, the Triton
    kernel on a GPU."""
    name = _LIBRARY.define(schema)
    short = schema.partition("(")[0]
    _LIBRARY.impl(short, cpu, "CPU")
    _LIBRARY.impl(short, cuda, "CUDA")
    namespace, _, short = name.rpartition("::")
    return getattr(getattr(torch.ops, namespace or "mtplab"), short).default


@cache
def cpu_kernels(name: str) -> ModuleType | None:
    """A module of `triton_kernels.cpu`, imported and compiled at the first use; None where Numba is
    not installed: the twins do the work then."""
    if find_spec("numba") is None:
        return None
    return import_module(f"triton_kernels.cpu.{name}")


def cpu_path() -> str:
    """What windows run on a CPU here: part of what their bits depend on."""
    return "twins" if find_spec("numba") is None else f"numba {version('numba')}"


def row_by_row(*tensors: Tensor | None) -> bool:
    """Whether CPU kernels can walk them: each row lies in memory without gaps, whatever is between
    rows."""
    return all(x is None or x[:1].is_contiguous() for x in tensors)


def power_of_two(n: int) -> int:
    """The least power of two that is >= n, and at least 2."""
    return 1 << max(1, (n - 1).bit_length())


class Scratch(NamedTuple):
    """Where the programs of one launch meet. Every launch leaves it as it found it."""

    keys: Tensor  # [rows] int64, the least number
    tickets: Tensor  # [rows] int32, zero


_scratch: dict[torch.device, list[Scratch]] = {}


def scratch(device: torch.device, rows: int) -> Scratch:
    """The device's scratch for at least `rows` rows, made once and kept for the life of the
    process: graphs hold its address.

    Launches that use it must follow one another (one stream, or streams that wait). Raises
    RuntimeError when a capture asks for more rows than any run before it.
    """
    made = _scratch.setdefault(device, [])
    if not made or made[-1].tickets.shape[0] < rows:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"no scratch for {rows} rows yet: run the operation once before the capture"
            )
        size = max(1024, power_of_two(rows))
        keys = torch.full((size,), torch.iinfo(torch.int64).min, dtype=torch.int64, device=device)
        made.append(Scratch(keys, torch.zeros(size, dtype=torch.int32, device=device)))
    return made[-1]
