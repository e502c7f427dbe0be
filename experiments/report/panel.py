"""What a plot is made of: panels of marks, drawn twice, by plotly for the page and by matplotlib
for the files."""

from __future__ import annotations

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
    """arm: whose it is, for the page's filter."""

    name: str
    x: Sequence[Place]
    y: Sequence[float | None]
    colour: int = 0
    dashed: bool = False
    dots: bool = True
    arm: str = ""
    hover: Sequence[str] = ()
    legend: bool = True


@dataclass(frozen=True)
class Points:
    """low, high: ends of intervals along y (along x where `across`)."""

    name: str
    x: Sequence[Place]
    y: Sequence[Place]
    colour: int = 0
    symbol: str = "circle"  # circle, diamond, triangle-up, triangle-down, x
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    across: bool = False
    arm: str = ""
    hover: Sequence[str] = ()
    legend: bool = True


@dataclass(frozen=True)
class Bars:
    """across: along x, one per entry of y; else upright, one per entry of x. length from base."""

    name: str
    place: Sequence[Place]
    length: Sequence[float]
    base: Sequence[float] = ()
    colour: int = 0
    hatched: bool = False
    across: bool = False
    arm: str = ""
    hover: Sequence[str] = ()
    legend: bool = True


@dataclass(frozen=True)
class Heat:
    """z: [y, x], None where there is nothing."""

    x: Sequence[str]
    y: Sequence[str]
    z: Sequence[Sequence[float | None]]
    name: str


Mark = Line | Points | Bars | Heat


@dataclass(frozen=True)
class Panel:
    """One pair of axes. shows: the runs it shows, of one evidence; line_at: a vertical line;
    order: of the names along y, from the top (default: as they come)."""

    title: str
    x: str
    y: str
    marks: Sequence[Mark]
    shows: Sequence[Run]
    wide: bool = False
    height: int = 320
    line_at: float | None = None
    order: Sequence[str] = ()
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
    """draw: panels, or in one line why it does not apply; says: how to read it."""

    key: str
    title: str
    says: str
    draw: Callable[[View], list[Panel] | str]


def most(rows: Sequence[ReportRow], count: int) -> list[ReportRow]:
    """As many arms as a plot can hold: baselines, then the fastest of each baseline in turn; in
    their own order."""
    if len(rows) <= count:
        return list(rows)
    chosen = sorted(rows, key=lambda row: (not row.is_baseline, row.rank is None, row.rank or 0))[
        :count
    ]
    return [row for row in rows if row in chosen]


def shown(rows: Sequence[ReportRow], kept: Sequence[ReportRow]) -> str:
    return (
        f" ({len(kept)} of {len(rows)} arms; all are in results.parquet)"
        if len(kept) < len(rows)
        else ""
    )
