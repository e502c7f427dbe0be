"""What a plot is made of: panels of marks, drawn twice, by plotly for the page and by matplotlib
for the files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.report.arms import Arm
from experiments.report.headline import ReportRow
from experiments.report.runs import Run

COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#999933",
    "#ee8866",
    "#44bb99",
    "#997700",
)
Place = float | str


class MixedEvidence(ValueError):
    """Figures of two kinds of evidence were put on one axis."""


@dataclass(frozen=True)
class Line:
    """A line through points."""

    name: str
    x: Sequence[Place]
    y: Sequence[float | None]
    colour: int = 0
    dashed: bool = False
    dots: bool = True
    arm: str = ""  # the arm it belongs to, for the page's filter
    hover: Sequence[str] = ()
    legend: bool = True


@dataclass(frozen=True)
class Points:
    """Points with intervals."""

    name: str
    x: Sequence[Place]
    y: Sequence[Place]
    colour: int = 0
    symbol: str = "circle"  # circle, diamond, triangle-up, triangle-down, x
    low: Sequence[float | None] = ()  # lower ends of intervals along y (along x where `across`)
    high: Sequence[float | None] = ()  # upper ends
    across: bool = False
    arm: str = ""
    hover: Sequence[str] = ()
    legend: bool = True


@dataclass(frozen=True)
class Bars:
    """Bars of one series."""

    name: str
    place: Sequence[Place]
    length: Sequence[float]  # from base
    base: Sequence[float] = ()
    colour: int = 0
    hatched: bool = False
    across: bool = False  # along x, one bar per entry of y; else upright, one per entry of x
    arm: str = ""
    hover: Sequence[str] = ()
    legend: bool = True


@dataclass(frozen=True)
class Heat:
    """A heat map."""

    x: Sequence[str]
    y: Sequence[str]
    z: Sequence[Sequence[float | None]]  # [y, x]; None: nothing there
    name: str


Mark = Line | Points | Bars | Heat


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    marks: Sequence[Mark]
    shows: Sequence[Run]  # the runs it shows, all of one evidence
    wide: bool = False
    height: int = 320
    line_at: float | None = None  # a vertical line
    order: Sequence[str] = ()  # of the names along y, from the top; empty: as they come
    whole_x: bool = False  # x counts things
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        kinds = sorted({run.evidence for run in self.shows})
        if len(kinds) != 1:
            raise MixedEvidence(
                f"{self.title}: evidence {', '.join(kinds) or 'none'} on one axis, expected one "
                "kind"
            )

    @property
    def evidence(self) -> str:
        """The one kind of what it shows."""
        return self.shows[0].evidence


@dataclass(frozen=True)
class View:
    """What plots are drawn from: a row per arm that has figures."""

    rows: Sequence[ReportRow]

    @property
    def arms(self) -> list[Arm]:
        return [row.arm for row in self.rows]

    def by_evidence(self) -> list[list[ReportRow]]:
        kinds = dict.fromkeys(row.arm.evidence for row in self.rows)
        return [[row for row in self.rows if row.arm.evidence == kind] for kind in kinds]


@dataclass(frozen=True)
class Plot:
    """One plot of the report."""

    key: str
    title: str
    says: str  # how to read it
    draw: Callable[[View], list[Panel] | str]  # panels, or in one line why it does not apply


def most(rows: Sequence[ReportRow], count: int) -> list[ReportRow]:
    """As many arms as a plot can hold, in their own order. Baselines take turns, each beside an arm
    of its own: its fastest, then its slowest, its second fastest and so on. Arms that do not rank
    and baselines that stand alone come last."""
    if len(rows) <= count:
        return list(rows)
    groups: dict[str | None, list[ReportRow]] = defaultdict(list)
    for row in rows:
        groups[row.against].append(row)
    turns: list[tuple[int, ReportRow]] = []
    for own in groups.values():
        arms = [row for row in own if not row.is_baseline]
        ranked = sorted((row for row in arms if row.rank), key=lambda row: row.rank or 0)
        ends = [arm for pair in zip(ranked, reversed(ranked), strict=True) for arm in pair]
        turns += [(0 if ranked else len(rows), row) for row in own if row.is_baseline]
        turns += enumerate(ends[: len(ranked)])
        turns += [(len(rows), row) for row in arms if not row.rank]
    chosen = {row.arm.label for _, row in sorted(turns, key=lambda turn: turn[0])[:count]}
    return [row for row in rows if row.arm.label in chosen]


def shown(rows: Sequence[ReportRow], kept: Sequence[ReportRow], where: str) -> str:
    """Of a title; where: what has the figures of all."""
    return left_out(f"{len(kept)} of {len(rows)} arms", len(rows) - len(kept), where)


def left_out(drawn: str, missing: int, where: str) -> str:
    """The same of other things than arms."""
    return f" ({drawn}; all are in {where})" if missing else ""
