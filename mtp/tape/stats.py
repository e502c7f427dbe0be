"""What tapes say about a drafter: how far its chains reach, and what its confidence is worth.
Pure Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from mtp.metrics import rate
from mtp.tape.tape import Tape

BINS = 10


def tape_stats(tapes: Iterable[Tape], depth: int) -> dict[str, Any]:
    """Over all tokens whose whole chain of `depth` drafts can be judged (the last `depth` of a text
    cannot).

    survival[j]: share of chains whose first j + 1 drafts are right (a chain that is shorter counts
    as wrong there); offered: share of tokens with a draft at all. Of first drafts: auc and
    calibration_error of the confidence (mean distance of confidence from the share that is right,
    over ten equal bins; None where it never varies), autocorrelation of being right, token to
    token.
    """
    reach: list[tuple[int, int]] = []
    first: list[tuple[float, bool]] = []
    pairs: list[tuple[float, float]] = []
    for tape in tapes:
        judged = range(len(tape.tokens) - depth)
        held = [tape.held(place, depth) for place in judged]
        reach += [(tape.matches[place], held[place]) for place in judged]
        right = [float(tape.matches[place] > 0) for place in judged]
        pairs += pairwise(right)
        if tape.confidence:
            first += [
                (tape.confidence[place][0], bool(right[place])) for place in judged if held[place]
            ]
    varies = len({confidence for confidence, _ in first}) > 1
    return {
        "tokens": len(reach),
        "offered": rate(sum(held > 0 for _, held in reach), len(reach)),
        "survival": [
            rate(sum(matches > j for matches, _ in reach), len(reach)) for j in range(depth)
        ],
        "auc": auc(first) if varies else None,
        "calibration_error": calibration_error(first) if varies else None,
        "autocorrelation": correlation(pairs),
    }


def auc(scored: Sequence[tuple[float, bool]]) -> float | None:
    """How often a right one scores above a wrong one; a tie is half."""
    below = right = ties_right = ties_wrong = 0
    above = 0.0
    last = None
    for score, is_right in sorted(scored):
        if score != last:
            above += ties_right * (below + ties_wrong / 2)
            below, right, ties_right, ties_wrong, last = (
                below + ties_wrong,
                right + ties_right,
                0,
                0,
                score,
            )
        ties_right, ties_wrong = ties_right + is_right, ties_wrong + (not is_right)
    above += ties_right * (below + ties_wrong / 2)
    return rate(above, (right + ties_right) * (below + ties_wrong))


def calibration_error(scored: Sequence[tuple[float, bool]]) -> float | None:
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for score, is_right in scored:
        bins[min(BINS - 1, int(score * BINS))].append((score, is_right))
    off = sum(abs(sum(score - is_right for score, is_right in one)) for one in bins)
    return rate(off, len(scored))


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    if not pairs:
        return None
    mean_a, mean_b = fmean(a for a, _ in pairs), fmean(b for _, b in pairs)
    spread = (
        sum((a - mean_a) ** 2 for a, _ in pairs) * sum((b - mean_b) ** 2 for _, b in pairs)
    ) ** 0.5
    return rate(sum((a - mean_a) * (b - mean_b) for a, b in pairs), spread)
