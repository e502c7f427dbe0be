"""Plots of a judgement. Needs matplotlib; this module is imported where a plot is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

from experiments.studies.bars import Judged
from experiments.studies.calibrated import published
from experiments.studies.published_page import implied_alone

matplotlib.rcParams["svg.hashsalt"] = "mtplab"  # the same plot gives the same file


def save(figure: plt.Figure, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def regime_map(judged: Sequence[Judged], path: Path) -> None:
    """Gain over the best static k against the price of a row; one line a text, its points the
    mean over the cells there."""
    some = [one for one in judged if one.cell.family in ("design", "tape")]
    kind = "recorded tapes" if some[0].cell.family == "tape" else "synthetic"
    figure, axes = plt.subplots(figsize=(8, 4.5))
    for number, regime in enumerate(dict.fromkeys(_text(one) for one in some)):
        mine = [one for one in some if _text(one) == regime]
        points = {
            ratio: [100 * (one.floor.value - 1) for one in mine if one.cell.ratio == ratio]
            for ratio in {one.cell.ratio for one in mine}
        }
        ratios = sorted(points)
        line = axes.plot(
            ratios,
            [sum(points[ratio]) / len(points[ratio]) for ratio in ratios],
            marker="o",
            ms=4,
            ls=("-", "--")[number // 10],
            label=regime,
        )
        axes.scatter(
            [one.cell.ratio for one in mine],
            [100 * (one.floor.value - 1) for one in mine],
            s=8,
            alpha=0.4,
            color=line[0].get_color(),
        )
    axes.axhline(0, color="black", lw=0.8)
    axes.axhline(-0.5, color="black", lw=0.8, ls=":")
    axes.set(
        xscale="log",
        xlabel="price of a row, b / a",
        ylabel="over the best static k in hindsight, %",
        title=f"adaptive: where it gains ({kind})",
    )
    axes.legend(fontsize=7, ncols=2)
    save(figure, path)


def sensitivity(judged: Sequence[Judged], path: Path) -> None:
    """The same gain with one thing put off at a time, with 95% intervals."""
    some = [one for one in judged if one.cell.family not in ("design", "tape")]
    figure, axes = plt.subplots(figsize=(8, 0.22 * len(some) + 1))
    for place, one in enumerate(reversed(some)):
        value, low, high = (
            100 * (ratio - 1) for ratio in (one.floor.value, one.floor.low, one.floor.high)
        )
        axes.plot([low, high], [place, place], color="C0" if one.floor_reached else "C3", lw=2)
        axes.plot([value], [place], "o", color="black", ms=3)
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(
        range(len(some)),
        [f"{one.cell.family}: {one.cell.regime}, {one.cell.slots} slots" for one in reversed(some)],
        fontsize=7,
    )
    axes.set(xlabel="adaptive over the best static k in hindsight, % (synthetic)")
    save(figure, path)


def _text(one: Judged) -> str:
    name = one.cell.name.partition("-s")[0] if one.cell.family == "tape" else one.cell.regime
    return name


def break_even(surface: Mapping[int, Mapping[float, float]], path: Path) -> None:
    """surface: by slots and acceptance, the alone / batched cost below which time sharing is
    faster."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for slots, ratios in surface.items():
        axes.plot(list(ratios), list(ratios.values()), marker="o", ms=4, label=f"{slots} requests")
    implied = implied_alone(published())
    axes.axhline(implied, color="black", ls="--", lw=0.8)
    axes.annotate(
        f"implied by published figures, contexts differ: {implied:.2f}",
        (0.3, implied),
        va="bottom",
        fontsize=8,
    )
    axes.axhline(1, color="grey", lw=0.8)
    axes.set(
        xlabel="conditional acceptance of a draft",
        ylabel="cost of a window alone / batched",
        title="Below a line time sharing is faster, above it window sharing (synthetic)",
        ylim=(0, 1.1),
    )
    axes.legend(fontsize=8)
    save(figure, path)
