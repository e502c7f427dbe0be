"""Acceptance of an arm, of text before it loops. The rules are those of mtp.metrics, over tables
of rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from experiments.report.runs import Run
from mtp.metrics import first_repeat, rate

GRAM = 16


@dataclass(frozen=True)
class Position:
    """A place among a round's drafts, from 0: see mtp.metrics.acceptance_by_position."""

    position: int
    offered: int
    judged: int
    accepted: int

    @property
    def conditional(self) -> float | None:
        return rate(self.accepted, self.judged)

    @property
    def cumulative(self) -> float | None:
        return rate(self.accepted, self.offered)


@dataclass(frozen=True)
class Acceptance:
    """How many drafts were accepted, in rounds that began before their text looped."""

    length: float | None  # 1 + accepted / rounds
    rate: float | None  # accepted / drafted
    rounds: int  # those that committed
    positions: tuple[Position, ...]


def loop_start(tokens: Sequence[int], gram: int = GRAM) -> int:
    """Tokens before the first 16-gram that was there already: all of them where the text never
    loops."""
    end = first_repeat(tokens, gram)
    return len(tokens) if end is None else end - gram + 1


def rounds_of(run: Run) -> pl.DataFrame | None:
    """The run's rounds, and `looped`: whether the round begins after its text began to loop. Output
    token 0 is the prefill's, so a request's first round begins at 1."""
    rounds = run.rounds
    if rounds is None:
        return None
    cuts = {line["request"]: loop_start(line["tokens"]) for line in run.texts}
    begins = 1 + pl.col("committed").cum_sum().over("request") - pl.col("committed")
    cut = pl.col("request").replace_strict(cuts, default=None, return_dtype=pl.Int64)
    looped = (begins >= cut).fill_null(False)
    return rounds.sort("window", "slot").with_columns(looped.alias("looped"))


def acceptance_of(runs: Sequence[Run]) -> Acceptance:
    """Over all rounds of the runs together. Rounds that committed nothing do not count."""
    tables = [
        table.filter(~pl.col("looped")).select("drafted", "accepted", "committed", "finish")
        for run in runs
        if (table := rounds_of(run)) is not None
    ]
    if not tables:
        return Acceptance(None, None, 0, ())
    rounds = pl.concat(tables).filter(pl.col("committed") > 0)
    accepted, drafted = (int(rounds[name].sum()) for name in ("accepted", "drafted"))
    length = 1 + accepted / rounds.height if rounds.height else None
    deepest = max(rounds["drafted"].to_list(), default=0)
    return Acceptance(
        length,
        rate(accepted, drafted),
        rounds.height,
        tuple(position_of(rounds, place) for place in range(deepest)),
    )


def position_of(rounds: pl.DataFrame, place: int) -> Position:
    """A draft is judged iff all before it were accepted and the request went on: a request's end
    is no miss."""
    offered = rounds.filter(pl.col("drafted") > place)
    accepted = int((offered["accepted"] > place).sum())
    met_and_missed = offered.filter(
        (pl.col("accepted") == place) & pl.col("finish").is_null()
    ).height
    return Position(place, offered.height, accepted + met_and_missed, accepted)
