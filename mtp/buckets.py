"""Row buckets: the row counts that windows are rounded up to. Pure Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mtp.checks import is_integer
from mtp.fields import Tupled


@dataclass(frozen=True)
class Buckets:
    # ascending row counts; empty = `tight`: every window keeps its exact row count
    sizes: Tupled[int] = Tupled(4, 8)

    def __post_init__(self) -> None:
        sizes = self.sizes
        if not all(is_integer(n) and n >= 1 for n in sizes) or list(sizes) != sorted(set(sizes)):
            raise ValueError(f"buckets is {list(sizes)}, expected ascending row counts, or tight")

    @classmethod
    def parse(cls, value: Sequence[int] | Literal["tight"], rows: int) -> Buckets:
        """From a config: a list whose largest covers a window of `rows` rows, or `tight`."""
        if value == "tight":
            return cls(())
        if isinstance(value, (str, int, float)) or not value:
            raise ValueError(f"buckets is {value!r}, expected a list of row counts or tight")
        buckets = cls(tuple(value))
        if buckets.sizes[-1] < rows:
            raise ValueError(
                f"buckets is {list(value)}, expected its largest to cover a window of {rows} rows"
            )
        return buckets

    @property
    def tight(self) -> bool:
        return not self.sizes

    def round_up(self, rows: int) -> int:
        return next((size for size in self.sizes if size >= rows), rows)

    def describe(self) -> str:
        return "tight" if self.tight else "[" + ", ".join(map(str, self.sizes)) + "]"
