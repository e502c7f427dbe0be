"""Estimators that learn from shadow scoring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtp.policies.planned.depth import Scenarios
from mtp.policies.planned.shadow import Shadow, Verdict
from mtp.policies.planned.spread import Spread
from mtp.policies.planned.survival import Rates, cumulated
from mtp.policies.protocol import WindowResult
from mtp.windows import SlotView

UNLIKELY = (
    0.25  # survival below which a chain that is right to its end says that the request has changed
)


class FromRates:
    """A request's own acceptance, whatever the drafter says of a single draft."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self.shadow = Shadow()
        self.spread = Spread(len(rates.of("")))
        self.verdicts = 0
        self.missed = False

    def survival(self, view: SlotView) -> Sequence[float]:
        return cumulated(self.rates.of(view.request)[: view.held])

    def ahead(self, request: str) -> Scenarios:
        return self.spread.scenarios(self.rates.of(request))

    def observe(self, result: WindowResult) -> None:
        last, self.missed = len(self.rates.of("")) - 1, False
        for verdict in self.shadow.observe(result):
            self.verdicts += 1
            if verdict.hit and verdict.place == last and not verdict.verified:
                self.missed |= cumulated(self.rates.of(verdict.request))[-1] < UNLIKELY
            self.learn(verdict)
        for part in result.slots:
            if not part.committed.finish:
                self.hold(part.request, part.drafts, part.confidence)

    def learn(self, verdict: Verdict) -> None:
        self.rates.learn(verdict.request, verdict.place, verdict.hit)

    def hold(self, request: str, drafts: tuple[int, ...], confidence: tuple[float, ...]) -> None:
        """Drafts made just now."""
        rates = tuple(self.rates.of(request))
        self.shadow.hold(request, drafts[: len(rates)], confidence, rates)

    def release(self, request: str) -> None:
        self.shadow.release(request)
        self.rates.release(request)

    def report(self) -> dict[str, Any]:
        return {"verdicts": self.verdicts, "requests_held": len(self.rates)}


class FromConfidence(FromRates):
    """The drafter's own probabilities, as `judge` reads them; `rates` follows what they have
    been, for drafts yet to be made. A drafter that gives none is taken at its request's
    acceptance."""

    def judge(self, place: int, confidence: float) -> float:
        return confidence

    def survival(self, view: SlotView) -> Sequence[float]:
        if len(view.confidence) < view.held:
            return super().survival(view)
        return cumulated(
            [self.judge(place, confidence) for place, confidence in enumerate(view.confidence)]
        )

    def learn(self, verdict: Verdict) -> None:
        if verdict.confidence is None:
            super().learn(verdict)

    def hold(self, request: str, drafts: tuple[int, ...], confidence: tuple[float, ...]) -> None:
        judged = [self.judge(place, said) for place, said in enumerate(confidence)]
        self.spread.learn(judged, self.rates.of(request))
        for place, probability in enumerate(judged):
            self.rates.learn(request, place, probability)
        super().hold(request, drafts, confidence)
