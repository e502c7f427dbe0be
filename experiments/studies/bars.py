"""The bars a policy must reach, cell by cell. Pure but for the intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from experiments.studies.cell import Cell
from experiments.studies.statistics import Speed, TrialRatio, holm, paired_ratio

FLOOR = 0.005  # most mean loss to the best static k in hindsight
FLOOR_OFF = 0.01  # the same with useless confidence, or a cost table off by 40%
OFF = ("useless", "row_dear", "row_cheap")
# least over the best static k and over rotate_grow, on work that varies and rows that cost
GAIN = 0.04
GAIN_REGIMES, GAIN_RATIO = ("mixed", "switch", "bursty"), 0.1
REGRET_MEDIAN, REGRET_WORST = 0.03, 0.05  # to the oracle of true probabilities
CAPTURES = 0.005  # most share of the time after warm-up


@dataclass(frozen=True)
class Judged:
    """One cell's verdict."""

    cell: Cell
    best: str  # the fastest static k, in hindsight
    floor: TrialRatio  # ratio to `best`
    gain: TrialRatio | None  # ratio to rotate_grow
    # against oracle_p; None: there is none (recorded tapes), or it knows what the
    # arm cannot (useless confidence)
    regret: float | None
    to_hindsight: float | None
    late_capture: float  # a share
    bound: float | None  # the oracle's own ratio to the better of both

    @property
    def limit(self) -> float:
        return FLOOR_OFF if self.cell.family in OFF else FLOOR

    @property
    def floor_reached(self) -> bool:
        return self.floor.value >= 1 - self.limit

    @property
    def gain_asked(self) -> bool:
        """Sensitivity cells are there for the floor."""
        cell = self.cell
        return cell.family == "design" and cell.regime in GAIN_REGIMES and cell.ratio >= GAIN_RATIO

    @property
    def gain_reached(self) -> bool | None:
        if not self.gain_asked or self.gain is None:
            return None
        return _gained(self) >= 1 + GAIN


def _gained(one: Judged) -> float:
    """Over the better of the best static k and rotate_grow."""
    return min(ratio.value for ratio in (one.floor, one.gain) if ratio is not None)


def speed(arm: Mapping[str, Any]) -> float:
    """Tokens per virtual second."""
    return speed_of(arm).mean


def speed_of(arm: Mapping[str, Any]) -> Speed:
    return Speed(arm["tokens"], arm["seconds"])


def best_static(arms: Mapping[str, Any]) -> str:
    return max(
        (name for name in arms if name.startswith("static_")), key=lambda name: speed(arms[name])
    )


def judge(cell: Cell, arms: Mapping[str, Any], name: str, *, resamples: int) -> Judged:
    """name: of the arm that is judged."""
    arm, best = arms[name], best_static(arms)

    def against(other: str) -> TrialRatio | None:
        return (
            paired_ratio(speed_of(arm), speed_of(arms[other]), resamples=resamples)
            if other in arms
            else None
        )

    def behind(other: str) -> float | None:
        return 1 - speed(arm) / speed(arms[other]) if other in arms else None

    floor = against(best)
    assert floor is not None
    regret = None if cell.family == "useless" else behind("oracle_p")
    rivals = max(speed(arms[rival]) for rival in (best, "rotate_grow") if rival in arms)
    bound = speed(arms["oracle_p"]) / rivals if "oracle_p" in arms else None
    return Judged(
        cell,
        best,
        floor,
        against("rotate_grow"),
        regret,
        behind("hindsight"),
        arm["late_capture"],
        bound,
    )


@dataclass(frozen=True)
class Bar:
    """A bar that the judged arm has to reach."""

    name: str
    reached: int  # cells
    of: int  # cells
    worst: str  # in words


def bars_of(judged: Sequence[Judged]) -> tuple[list[Bar], list[str]]:
    """The bars, and the cells whose loss to the best static k stays significant after Holm's
    correction."""
    bars = []
    plain = [one for one in judged if one.cell.family not in OFF]
    off = [one for one in judged if one.cell.family in OFF]
    for name, some in (
        (f"floor: loss at most {FLOOR:.1%}", plain),
        (f"floor, confidence or cost off: at most {FLOOR_OFF:.0%}", off),
    ):
        if some:
            worst = min(some, key=lambda one: one.floor.value)
            bars.append(
                Bar(
                    name,
                    sum(one.floor_reached for one in some),
                    len(some),
                    f"{percent(worst.floor.value - 1)} {worst.cell.name}",
                )
            )
    asked = [one for one in judged if one.gain_reached is not None]
    if asked:
        worst = min(asked, key=_gained)
        bound = sum(one.bound is not None and one.bound >= 1 + GAIN for one in asked)
        words = (
            f"{percent(_gained(worst) - 1)} {worst.cell.name}; the oracle itself reaches it in "
            f"{bound}"
        )
        bars.append(
            Bar(
                f"gain: at least {GAIN:.0%}",
                sum(bool(one.gain_reached) for one in asked),
                len(asked),
                words,
            )
        )
    regrets = {one.cell.name: one.regret for one in judged if one.regret is not None}
    if regrets:
        worst_name = max(regrets, key=lambda name: regrets[name])
        within = sum(regret <= REGRET_WORST for regret in regrets.values())
        middle = median(regrets.values())
        text = (
            f"{regrets[worst_name]:.1%} {worst_name}; median {middle:.1%} (bar {REGRET_MEDIAN:.0%})"
        )
        bars.append(
            Bar(
                f"regret to the oracle: worst at most {REGRET_WORST:.0%}",
                within,
                len(regrets),
                text,
            )
        )
    warm = [one for one in judged if one.cell.length > 1]  # in a short run everything is warm-up
    if warm:
        late = max(warm, key=lambda one: one.late_capture)
        few = sum(one.late_capture < CAPTURES for one in warm)
        bars.append(
            Bar(
                f"captures after warm-up: under {CAPTURES:.1%}",
                few,
                len(warm),
                f"{late.late_capture:.2%} {late.cell.name}",
            )
        )
    return bars, holm({one.cell.name: one.floor.p_loss for one in judged})


def percent(value: float) -> str:
    return f"{100 * value:+.1f}%"
