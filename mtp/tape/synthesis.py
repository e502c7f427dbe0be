"""Synthetic tapes: texts whose acceptance follows published figures. Needs numpy.

The model. Every place t of a text has a difficulty z_t, a standard normal AR(1) along the text (z_t
= r z_(t-1) + sqrt(1 - r^2) e).
The j-th draft of a chain made at token i aims at token i + j; if all drafts before it are right it
is right with probability
    p_ij = sigmoid(a_j - spread * z_(i+j)),   a_j by the part of the text that token i + j lies in,
independently of everything else. So neighbouring chains share the difficulty of the tokens they aim
at, and hard stretches last.
The a_j are solved once, in order of depth, so that E[p_i1 ... p_ij] is the published share of
chains that survive j drafts: the
correlation along a chain is accounted for. p is kept as `Tape.truth`.

Confidence. The drafter sees x = w * (standardised logit p) + sqrt(1 - w^2) * noise, and says
sigmoid(offset + slope * (b0 + b1 x)) where b0, b1 are the logistic regression of "right" on x at
that depth: slope 1, offset 0 is calibrated. w is solved so that x tells right first drafts from
wrong ones with the AUC asked for. AUC 0.5 is useless: x is noise alone, as wide as the true
probabilities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtp.checks import check_integer, check_number
from mtp.tape.columns import Columns
from mtp.tape.published import PROFILES, Regime, regime_of
from mtp.windows import MAX_DEPTH

Floats = NDArray[np.float64]
CHAINS = 1 << 15  # of the sample that parameters are solved on


@dataclass(frozen=True)
class Synthesis:
    """How texts are drawn; see the module."""

    regime: str  # of `mtp.tape.published`, or a profile's name
    depth: int = 7  # of the chains
    correlation: float = 0.8  # r
    spread: float = 1.5  # of the difficulty, in logits
    auc: float = 0.7  # of the confidence, also slope and offset
    slope: float = 1.0
    offset: float = 0.0
    vocab: int = 32_000  # token ids are drawn below it

    def __post_init__(self) -> None:
        regime_of(self.regime)
        check_integer("depth", self.depth, 1, MAX_DEPTH)
        check_integer("vocab", self.vocab, 2, 2**31 - 1)
        for name, low, high in (
            ("correlation", 0.0, 0.999),
            ("spread", 0, 5),
            ("auc", 0.5, 1),
            ("slope", -10, 10),
            ("offset", -10, 10),
        ):
            check_number(name, getattr(self, name), low, high, what="")
        _solved(self)  # refuses an AUC that cannot be had

    def columns(self, length: int, seed: int | tuple[int, ...]) -> Columns:
        """A text of `length` tokens; the same seed gives the same one."""
        if length < 1:
            raise ValueError(f"length is {length}, expected at least 1")
        draw = np.random.default_rng(seed)
        solved, regime, places = _solved(self), regime_of(self.regime), length + self.depth
        tokens = draw.integers(0, self.vocab, length)
        stretches = _parts(regime, places, draw)
        logits = _logits(
            solved.levels,
            stretches,
            _difficulty(draw, places, self.correlation),
            self.spread,
            self.depth,
        )[:length]
        truth = _sigmoid(logits)
        right = draw.random(truth.shape) < truth
        matches = np.minimum.accumulate(right, axis=1).sum(1)
        # drafts past the end are not known
        known = np.minimum(matches, np.arange(length - 1, -1, -1))
        signal = solved.weight * (logits - solved.mean) / solved.sd + math.sqrt(
            1 - solved.weight**2
        ) * draw.standard_normal(truth.shape)
        confidence = _sigmoid(
            self.offset + self.slope * (solved.base + solved.gain * signal)
        ).astype(np.float32)
        return Columns(
            tuple(tokens.tolist()), tuple(known.tolist()), _rows(confidence), _rows(truth)
        )


@dataclass(frozen=True)
class _Solved:
    """levels[part, j]: a_j; mean, sd: of logit p by depth; weight: w; base, gain: b0, b1 by
    depth."""

    levels: Floats
    mean: Floats
    sd: Floats
    weight: float
    base: Floats
    gain: Floats


@cache
def _solved(settings: Synthesis) -> _Solved:
    """Everything a text needs that does not depend on its seed, from one fixed sample of chains."""
    regime, depth = regime_of(settings.regime), settings.depth
    draw = np.random.default_rng(0)
    z = _chains(draw, depth, settings.correlation)  # [CHAINS, depth]
    levels = np.stack(
        [
            _levels(PROFILES[part.profile].chain(depth), z, settings.spread)
            for part in regime.stretches
        ]
    )
    shares = np.array([part.tokens for part in regime.stretches]) / sum(
        part.tokens for part in regime.stretches
    )
    stretches = np.repeat(
        np.arange(len(shares)),
        np.diff(np.round(np.append(0, shares.cumsum()) * CHAINS).astype(int)),
    )
    logits = levels[stretches] - settings.spread * z
    mean, sd = logits.mean(0), np.maximum(logits.std(0), 1e-9)
    p, noise = _sigmoid(logits), draw.standard_normal(logits.shape)
    reach = np.cumprod(p, 1) / p  # that a draft's turn comes

    def signal(weight: float) -> Floats:
        return weight * (logits - mean) / sd + math.sqrt(1 - weight**2) * noise

    most = auc_of(logits[:, 0], p[:, 0])
    if settings.auc > max(most, 0.5):
        raise ValueError(
            f"auc is {settings.auc}, expected 0.5 to {math.floor(100 * most) / 100}: what the true "
            f"probabilities reach in regime {settings.regime} with spread {settings.spread:g}"
        )
    if settings.auc == 0.5:
        return _Solved(levels, mean, sd, 0.0, mean, sd)
    weight = _root(lambda weight: auc_of(signal(weight)[:, 0], p[:, 0]) - settings.auc, 0.0, 1.0)
    base, gain = np.array(
        [_regression(signal(weight)[:, j], p[:, j], reach[:, j]) for j in range(depth)]
    ).T
    return _Solved(levels, mean, sd, weight, base, gain)


def _levels(survival: tuple[float, ...], z: Floats, spread: float) -> Floats:
    """a_1..a_D such that the mean over the chains z [chains, D] of the product of p is the
    survival."""
    levels, alive = [], np.ones(len(z))
    for j, share in enumerate(survival):
        level = _root(
            lambda a, j=j, alive=alive, share=share: (
                (alive * _sigmoid(a - spread * z[:, j])).mean() - share
            ),
            -30.0,
            30.0,
        )
        alive = alive * _sigmoid(level - spread * z[:, j])
        levels.append(level)
    return np.array(levels)


def auc_of(score: Floats, p: Floats) -> float:
    """How often a right one scores above a wrong one, where each is right with probability p: no
    draw is needed."""
    order = np.argsort(score)
    right, wrong = p[order], 1 - p[order]
    below = np.concatenate([[0.0], np.cumsum(wrong)[:-1]])
    return float((right * (below + 0.5 * wrong)).sum() / (right.sum() * wrong.sum()))


def _regression(x: Floats, p: Floats, weight: Floats) -> tuple[float, float]:
    """Logistic regression of "right with probability p" on x, by Newton's method."""
    beta = np.zeros(2)
    features = np.stack([np.ones_like(x), x], 1)
    for _ in range(25):
        q = _sigmoid(features @ beta)
        slope = features.T @ (weight * (p - q))
        curvature = (features * (weight * q * (1 - q))[:, None]).T @ features
        beta += np.linalg.solve(curvature, slope)
    return float(beta[0]), float(beta[1])


def _root(rising: Any, low: float, high: float) -> float:
    """Where a rising function is 0, by bisection."""
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def _chains(draw: np.random.Generator, depth: int, correlation: float) -> Floats:
    """[CHAINS, depth]: independent stretches of the difficulty, each with its mirror image."""
    e = draw.standard_normal((CHAINS // 2, depth))
    for j in range(1, depth):
        e[:, j] = correlation * e[:, j - 1] + math.sqrt(1 - correlation**2) * e[:, j]
    chains = np.concatenate([e, -e])
    return chains[draw.permutation(CHAINS)]


def _difficulty(draw: np.random.Generator, places: int, correlation: float) -> Floats:
    e = draw.standard_normal(places)
    e[1:] *= math.sqrt(1 - correlation**2)
    return np.array(list(accumulate(e.tolist(), lambda z, new: correlation * z + new)))


def _parts(regime: Regime, places: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """Which part every place belongs to. A text begins somewhere within its round of parts."""
    shares = np.array([part.tokens for part in regime.stretches])
    first = int(draw.choice(len(shares), p=shares / shares.sum()))
    if regime.whole or len(shares) == 1:
        return np.full(places, first)
    stretches: list[int] = []
    while len(stretches) < places:
        stretches += [first] * int(draw.geometric(1 / shares[first]))
        first = (first + 1) % len(shares)
    return np.array(stretches[:places])


def _logits(
    levels: Floats, stretches: NDArray[np.int64], z: Floats, spread: float, depth: int
) -> Floats:
    """[places - depth, depth]: of the chain made at each token."""
    aims = np.arange(len(z) - depth)[:, None] + np.arange(1, depth + 1)
    return levels[stretches[aims], np.arange(depth)] - spread * z[aims]


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def _rows(values: NDArray[Any]) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, values.tolist()))
