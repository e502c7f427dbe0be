"""What is timed: operation x implementation x shape. A case is timed only after its output equals
the oracle's.

A new operation, or a new implementation of one, is a file in `bench/ops/cases/` with functions
under `@implementation`; nothing else changes. The oracles are literal Python
(`bench.reference.oracle`), so that a twin is checked too.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

CASES = Path(__file__).with_name("cases")
Shape = Mapping[str, Any]


class WrongOutput(Exception):
    """One line: the case, and where its output differs from the oracle's."""


@dataclass(frozen=True)
class Work:
    """call: what is timed, again and again; expected: what the oracle says its first call gives, as
    lists.

    read: from what a call returned to what is compared; bytes: that one call must at least move
    (None: not a matter of memory); per: units in one call, times are given per unit. close: None
    where the two must be equal; else both are lists of tensors, and no number may lie farther from
    the oracle's than this share of the largest number of its tensor. replays: it reads no tensor on
    the host, so a GPU can capture it.
    """

    call: Callable[[], Any]
    expected: Any
    bytes: int | None = None
    per: int = 1
    read: Callable[[Any], Any] = lambda out: as_lists(out)
    close: float | None = None
    replays: bool = True


Make = Callable[[Shape, torch.device], Work]


@dataclass(frozen=True)
class Case:
    """make: fresh inputs on a device; mode: `seam` (tensors, the device's time counts) or `host`
    (Python on the CPU)."""

    operation: str
    implementation: str
    shape: Shape
    mode: str
    make: Make

    def __str__(self) -> str:
        # as pytest's -k can select it
        sizes = "-".join(f"{name}{value}" for name, value in self.shape.items())
        return f"{self.operation}/{self.implementation}/{sizes}"

    def checked(self, device: torch.device) -> Work:
        """The case's work after one call whose output was right. Raises WrongOutput."""
        work = self.make(self.shape, device)
        got = work.read(work.call())
        wrong = (
            difference(got, work.expected)
            if work.close is None
            else distance(got, work.expected, work.close)
        )
        if wrong:
            raise WrongOutput(f"{self}: {wrong}")
        return work


@dataclass(frozen=True)
class _Entry:
    operation: str
    implementation: str
    shapes: Callable[[bool], Iterable[Shape]]
    mode: str
    make: Make


_ENTRIES: list[_Entry] = []


def implementation(
    operation: str, name: str, *, shapes: Callable[[bool], Iterable[Shape]], mode: str = "seam"
) -> Callable[[Make], Make]:
    """Registers what makes the work of a shape. shapes(wide): those that occur; wide: also sizes
    that only a GPU reads fast."""

    def register(make: Make) -> Make:
        _ENTRIES.append(_Entry(operation, name, shapes, mode, make))
        return make

    return register


def cases(*, wide: bool = False, mode: str | None = None) -> Iterator[Case]:
    """All registered cases, in the order of operation, shape, implementation."""
    for module in sorted(found.name for found in pkgutil.iter_modules([str(CASES)])):
        importlib.import_module(f"bench.ops.cases.{module}")
    for operation in dict.fromkeys(entry.operation for entry in _ENTRIES):
        entries = [
            entry
            for entry in _ENTRIES
            if entry.operation == operation and mode in (None, entry.mode)
        ]
        made = [
            Case(entry.operation, entry.implementation, shape, entry.mode, entry.make)
            for entry in entries
            for shape in entry.shapes(wide)
        ]
        place = {str(case.shape): n for n, case in reversed(list(enumerate(made)))}
        yield from sorted(made, key=lambda case: place[str(case.shape)])


def as_lists(value: Any) -> Any:
    """Tensors as lists of numbers, in the tuples they stand in."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [as_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def difference(got: Any, want: Any) -> str:
    """Where the first difference is; empty where there is none."""
    if got == want:
        return ""
    place = ""
    while isinstance(got, list) and isinstance(want, list) and len(got) == len(want):
        at = next(i for i, (a, b) in enumerate(zip(got, want, strict=True)) if a != b)
        got, want, place = got[at], want[at], f"{place}[{at}]"
    return f"output{place} is {got}, expected {want}"


def distance(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor], close: float) -> str:
    """Which tensor is farther off than it may be, at its farthest number; empty where none is. A
    NaN is as far as can be."""
    if [tensor.shape for tensor in got] != [tensor.shape for tensor in want]:
        return (
            f"shapes are {[list(tensor.shape) for tensor in got]}, expected "
            f"{[list(tensor.shape) for tensor in want]}"
        )
    for place, (a, b) in enumerate(zip(got, want, strict=True)):
        off = torch.where(a == b, 0, (a - b).abs()).nan_to_num(nan=torch.inf)
        if off.numel() and off.max() > close * b.abs().max():
            at = int(off.argmax())
            return (
                f"output[{place}] is {a.flatten()[at]:.6g} at {at}, expected {b.flatten()[at]:.6g} "
                f"within {close:g} of the largest"
            )
    return ""
