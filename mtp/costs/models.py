"""What a step costs in seconds, for planning and for virtual clocks. Pure Python; YAML is read
and written on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from mtp.checks import check_number, is_number
from mtp.fields import Tupled
from mtp.files import whole


class Cost(Protocol):
    """Seconds. capture_s: of capturing one phase of a window as a graph; a window whose layout
    has no pair of graphs pays both."""

    @property
    def capture_s(self) -> float: ...

    def window(self, rows: int, slots: int, depth: int, context: int = 0) -> float:
        """rows: of the window, padding included; depth: drafts every slot makes after it;
        context: its anchors' positions, summed (the KV that is read)."""
        ...

    def prefill(self, tokens: int) -> float:
        """Of one prefill chunk."""
        ...


def checked(model: Any) -> None:
    """Every float field of a cost model is a finite number of seconds. Raises ValueError."""
    for name in (field.name for field in fields(model) if field.type in ("float", float)):
        what = "a finite number of seconds"
        check_number(f"cost.{name}", getattr(model, name), 0, what=what)


@dataclass(frozen=True)
class LinearCost:
    """T = base + row * rows + slot * slots + context * tokens + draft * depth, in seconds."""

    base: float = 0.0226
    row: float = 0.0053
    slot: float = 0.0
    draft: float = 0.0008
    prompt_token: float = 0.0001  # a prefill costs base + prompt_token per prompt token
    context: float = 0.0
    capture_s: float = 0.02

    def __post_init__(self) -> None:
        checked(self)

    def window(self, rows: int, slots: int, depth: int, context: int = 0) -> float:
        return (
            self.base
            + self.row * rows
            + self.slot * slots
            + self.context * context
            + self.draft * depth
        )

    def prefill(self, tokens: int) -> float:
        return self.base + self.prompt_token * tokens


@dataclass(frozen=True)
class TableCost:
    """T = rows[r - 1] + slot * slots + context * tokens + draft * depth: a measured time for
    every row count. Beyond the table the mean step goes on."""

    rows: Tupled[float] = Tupled()
    slot: float = 0.0
    draft: float = 0.0
    prompt_token: float = 0.0001
    context: float = 0.0
    capture_s: float = 0.02

    def __post_init__(self) -> None:
        checked(self)
        if not self.rows or not all(is_number(time) and time > 0 for time in self.rows):
            raise ValueError(
                f"cost.rows is {list(self.rows)}, expected seconds for 1, 2, 3, ... rows"
            )

    def window(self, rows: int, slots: int, depth: int, context: int = 0) -> float:
        last = len(self.rows)
        time = (
            self.rows[max(rows, 1) - 1]
            if rows <= last
            else self.rows[-1] + (rows - last) * (self.rows[-1] - self.rows[0]) / max(1, last - 1)
        )
        return time + self.slot * slots + self.context * context + self.draft * depth

    def prefill(self, tokens: int) -> float:
        return self.rows[0] + self.prompt_token * tokens


@dataclass(frozen=True)
class StaircaseCost:
    """The cost of the bucket that the rows are padded to; beyond the last bucket, of the rows
    themselves."""

    of: Cost
    buckets: Tupled[int] = Tupled(4, 8)

    def __post_init__(self) -> None:
        if (
            not self.buckets
            or list(self.buckets) != sorted(set(self.buckets))
            or self.buckets[0] < 1
        ):
            raise ValueError(
                f"cost.buckets is {list(self.buckets)}, expected ascending row counts like [4, 8]"
            )

    @property
    def capture_s(self) -> float:
        return self.of.capture_s

    def window(self, rows: int, slots: int, depth: int, context: int = 0) -> float:
        return self.of.window(
            next((bucket for bucket in self.buckets if bucket >= rows), rows), slots, depth, context
        )

    def prefill(self, tokens: int) -> float:
        return self.of.prefill(tokens)


@dataclass(frozen=True)
class PathCost:
    """Two execution paths: a window of one slot, and a window of several."""

    alone: Cost
    batched: Cost

    @property
    def capture_s(self) -> float:
        return max(self.alone.capture_s, self.batched.capture_s)

    def window(self, rows: int, slots: int, depth: int, context: int = 0) -> float:
        return (self.alone if slots <= 1 else self.batched).window(rows, slots, depth, context)

    def prefill(self, tokens: int) -> float:
        return self.alone.prefill(tokens)


@dataclass(frozen=True)
class ScaledCost:
    """Another model, `factor` times as dear (of a slower machine or phase; or wrong on purpose,
    for sensitivity)."""

    of: Cost
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not is_number(self.factor) or self.factor <= 0:
            raise ValueError(f"cost.factor is {self.factor}, expected a number above 0")

    @property
    def capture_s(self) -> float:
        return self.factor * self.of.capture_s

    def window(self, rows: int, slots: int, depth: int, context: int = 0) -> float:
        return self.factor * self.of.window(rows, slots, depth, context)

    def prefill(self, tokens: int) -> float:
        return self.factor * self.of.prefill(tokens)


@dataclass(frozen=True)
class FreeDrafts:
    """Another model whose drafts cost nothing: those of prompt look-up, one pass over the text."""

    of: Cost

    @property
    def capture_s(self) -> float:
        return self.of.capture_s

    def window(self, rows: int, slots: int, depth: int, context: int = 0) -> float:
        return self.of.window(rows, slots, 0, context)

    def prefill(self, tokens: int) -> float:
        return self.of.prefill(tokens)


def planning_cost(of: Cost, buckets: Sequence[int] | str, factor: float = 1.0) -> Cost:
    """What a policy of a run believes: the cost of the buckets that the run pads its windows to
    (`tight`: none), times `factor`."""
    padded = of if isinstance(buckets, str) else StaircaseCost(of, tuple(buckets))
    return padded if factor == 1 else ScaledCost(padded, factor)


MODELS: dict[str, type] = {"linear": LinearCost, "table": TableCost}


def save_cost(
    path: str | Path, model: LinearCost | TableCost, about: dict[str, Any] | None = None
) -> None:
    """A YAML file that `load_cost` reads. about: where it comes from and its residuals, kept for
    the reader."""
    import yaml

    kind = next(name for name, known in MODELS.items() if type(model) is known)
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    values = {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }
    text = yaml.safe_dump({"kind": kind, **values, "about": about or {}}, sort_keys=False)
    with whole(Path(path)) as aside:
        aside.write_text(text, encoding="utf-8")


def load_cost(path: str | Path, buckets: Sequence[int] = ()) -> Cost:
    """A saved model; with `buckets`, as a staircase. Raises ValueError naming the file and what
    is wrong in it."""
    import yaml

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as wrong:
        raise ValueError(
            f"cost.path is {path}, expected a cost file (as `make profile` writes)"
        ) from wrong
    except (yaml.YAMLError, UnicodeDecodeError) as wrong:
        raise ValueError(f"cost.path is {path}: no YAML: {' '.join(str(wrong).split())}") from wrong
    if not isinstance(values, dict) or values.get("kind") not in MODELS:
        raise ValueError(
            f"cost.path is {path}: expected a mapping with kind: {' or '.join(MODELS)}"
        )
    kind = MODELS[values.pop("kind")]
    values.pop("about", None)
    known = [field.name for field in fields(kind)]
    if unknown := sorted(values.keys() - set(known)):
        raise ValueError(
            f"cost.path is {path}: {unknown[0]} is no key of it, expected {', '.join(known)}"
        )
    try:
        model = kind(**values)
    except (TypeError, ValueError) as wrong:
        raise ValueError(f"cost.path is {path}: {wrong}") from wrong
    return StaircaseCost(model, tuple(buckets)) if buckets else model
