"""How a drafter's word on single drafts strays from the request's own rate, and so how drafts
yet to be made may turn out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mtp.policies.planned.calibration import logit, sigmoid
from mtp.policies.planned.survival import cumulated


class Spread:
    """The last chains of full depth, of all requests, as what was added to logit rate at each
    place. Drafts to be made are taken to stray as these did. Nothing learnt: they do not."""

    def __init__(self, depth: int, *, kept: int = 64, drawn: int = 6) -> None:
        self._depth, self._drawn, self._turn = depth, drawn, 0
        self._strayed: deque[tuple[float, ...]] = deque(maxlen=kept)

    def learn(self, judged: Sequence[float], rates: Sequence[float]) -> None:
        """judged: of one chain, each draft's probability given those before it; rates: the
        request's own."""
        if len(judged) == self._depth:
            self._strayed.append(
                tuple(logit(q) - logit(p) for q, p in zip(judged, rates, strict=True))
            )

    def scenarios(self, rates: Sequence[float]) -> list[tuple[float, ...]]:
        """Equally likely survivals, from chains spread over all that are kept, others at every
        call: where deep drafts look a little worse than shallow ones they are then still made
        now and then, and so are seen to have become better."""
        self._turn += 1
        kept = self._strayed or [(0.0,) * self._depth]
        drawn = [
            kept[(number * len(kept) // self._drawn + self._turn) % len(kept)]
            for number in range(self._drawn)
        ]
        centres = [logit(rate) for rate in rates]
        return [
            cumulated(
                [sigmoid(centre + stray) for centre, stray in zip(centres, strayed, strict=True)]
            )
            for strayed in drawn
        ]
