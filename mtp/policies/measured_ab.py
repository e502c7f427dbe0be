"""Two ways to run the batch, tried in turn and timed: the winner stays, and is challenged more
and more rarely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mtp.checks import check_integer, check_number
from mtp.costs import Cost, LinearCost
from mtp.fields import Tupled
from mtp.policies.checks import check_sizes
from mtp.policies.protocol import Decision, WindowResult
from mtp.policies.timing import seconds_of
from mtp.windows import SlotView, static_k


@dataclass(frozen=True)
class MeasuredAB:
    sizes: Tupled[int] = Tupled(1, 2, 4)
    arms: Tupled[int] = Tupled(3, 1)  # drafts per group of either way
    window: int = 32  # counted windows of a trial
    settle: int = 2  # windows before them that still verify the other arm's drafts
    lead: float = 0.02  # by which a challenger must be faster
    # Trial lengths between two challenges: one further with every challenge that is lost, back to
    # the first with one that is won.
    backoff: Tupled[int] = Tupled(4, 16, 64)
    # By the engine's clock: on a model two runs then need not plan alike. False: by `cost`.
    measured: bool = True
    cost: Cost = field(default_factory=LinearCost)  # the estimated time of a window

    def __post_init__(self) -> None:
        check_sizes(self.sizes)
        allowed = [size - 1 for size in self.sizes]
        if (
            len(self.arms) != 2
            or self.arms[0] == self.arms[1]
            or not set(self.arms) <= set(allowed)
        ):
            raise ValueError(
                f"policy.arms is {list(self.arms)}, expected two different draft counts among "
                f"{allowed}"
            )
        if not self.backoff:
            raise ValueError("policy.backoff is [], expected trial lengths like [4, 16, 64]")
        for place, value in enumerate(self.backoff):
            check_integer(f"policy.backoff[{place}]", value, 1)
        check_integer("policy.window", self.window, 1)
        check_integer("policy.settle", self.settle, 0)
        check_number("policy.lead", self.lead, 0)

    @property
    def depth(self) -> int:
        return max(self.arms)

    def open(self) -> LiveMeasuredAB:
        return LiveMeasuredAB(self)


class LiveMeasuredAB:
    def __init__(self, settings: MeasuredAB) -> None:
        self.settings, self.sizes, self.depth = settings, settings.sizes, settings.depth
        self._cost = None if settings.measured else settings.cost
        self.best = 0  # the arm in force
        self.trying = 0  # the arm of this trial
        self.left = settings.window + settings.settle  # windows of this trial
        self.tokens = 0
        self.seconds = 0.0
        self.rates: dict[int, float] = {}  # by arm
        self.hold = 0  # place in the backoff: how long the winner runs unchallenged
        self.phase = "incumbent"
        self.trials = 0
        self.switches = 0

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        k = self.settings.arms[self.trying]
        return Decision(static_k(slots, k=k, rows=rows, start=start, sizes=self.sizes), k)

    def observe(self, result: WindowResult) -> None:
        settings = self.settings
        if not result.slots[0].rows:
            return  # a prefill
        if self.left <= settings.window:
            self.tokens += sum(len(part.committed.tokens) for part in result.slots)
            self.seconds += seconds_of(result, self._cost)
        self.left -= 1
        if self.left == 0:
            self._judge(self.tokens / self.seconds if self.seconds else 0.0)
            self.tokens, self.seconds, self.left = 0, 0.0, settings.window + settings.settle

    def _judge(self, rate: float) -> None:
        """A trial is over: incumbent -> challenger -> the winner holds -> incumbent ..."""
        backoff = self.settings.backoff
        if self.phase == "incumbent":
            self.rates[self.best] = rate
            self.trying, self.phase = 1 - self.best, "challenger"
        elif self.phase == "challenger":
            self.rates[self.trying] = rate
            self.trials += 1
            if rate > (1 + self.settings.lead) * self.rates[self.best]:
                self.best, self.switches, self.hold = self.trying, self.switches + 1, 0
            else:
                self.hold = min(self.hold + 1, len(backoff) - 1)
            self.trying, self.phase = self.best, f"holding {backoff[self.hold]}"
        else:
            left = int(self.phase.removeprefix("holding ")) - 1
            self.phase = f"holding {left}" if left else "incumbent"

    def release(self, request: str) -> None:
        """Nothing is kept of a single request."""

    def report(self) -> dict[str, Any]:
        arms = self.settings.arms
        return {
            "state": f"{arms[self.best]} drafts",
            "reason": f"{self.trials} challenges, {self.switches} won; now {self.phase}",
            "tokens_per_s_by_arm": {
                str(arms[arm]): rate for arm, rate in sorted(self.rates.items())
            },
        }
