"""Two ways to run the batch, tried in turn and timed: the winner stays, and is challenged more and more rarely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from mtp.policies.checks import check_count, check_number, checked_sizes
from mtp.policies.protocol import Decision, WindowResult
from mtp.windows import SlotView, static_k


@dataclass
class _State:
    """best: arm in force; trying: arm of this trial; left: windows of it, its first `settle` ones not counted; hold: trial lengths
    the winner runs unchallenged."""

    best: int = 0
    trying: int = 0
    left: int = 0
    tokens: int = 0
    seconds: float = 0.0
    rates: dict[int, float] = field(default_factory=dict)
    hold: int = 0
    phase: str = "incumbent"
    trials: int = 0
    switches: int = 0


@dataclass(frozen=True)
class MeasuredAB:
    """arms: drafts per group of either way; window: counted windows of a trial; settle: windows before them that still verify the
    other arm's drafts; lead: by which a challenger must be faster; backoff: trial lengths between two challenges, one longer with
    every challenge that is lost, back to the first with one that is won."""

    sizes: tuple[int, ...] = (1, 2, 4)
    arms: tuple[int, ...] = (3, 1)
    window: int = 32
    settle: int = 2
    lead: float = 0.02
    backoff: tuple[int, ...] = (4, 16, 64)
    state: _State = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", checked_sizes(self.sizes))
        object.__setattr__(self, "arms", tuple(self.arms))
        object.__setattr__(self, "backoff", tuple(self.backoff))
        allowed = [size - 1 for size in self.sizes]
        if (
            len(self.arms) != 2
            or self.arms[0] == self.arms[1]
            or not set(self.arms) <= set(allowed)
        ):
            raise ValueError(
                f"policy.arms is {list(self.arms)}, expected two different draft counts among {allowed}"
            )
        if not self.backoff:
            raise ValueError("policy.backoff is [], expected trial lengths like [4, 16, 64]")
        for place, value in enumerate(self.backoff):
            check_count(f"backoff[{place}]", value, 1)
        check_count("window", self.window, 1)
        check_count("settle", self.settle)
        check_number("lead", self.lead, 0)
        object.__setattr__(self, "state", _State(left=self.window + self.settle))

    @property
    def depth(self) -> int:
        return self.arms[0]

    def open(self) -> Self:
        return replace(self)

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        k = self.arms[self.state.trying]
        return Decision(static_k(slots, k=k, rows=rows, start=start, sizes=self.sizes), k)

    def observe(self, result: WindowResult) -> None:
        state = self.state
        if not result.slots[0].rows:
            return  # a prefill
        if state.left <= self.window:
            state.tokens += sum(len(part.committed.tokens) for part in result.slots)
            state.seconds += result.seconds
        state.left -= 1
        if state.left == 0:
            self._judge(state, state.tokens / state.seconds if state.seconds else 0.0)
            state.tokens, state.seconds, state.left = 0, 0.0, self.window + self.settle

    def _judge(self, state: _State, rate: float) -> None:
        """A trial is over: incumbent -> challenger -> the winner holds -> incumbent ..."""
        if state.phase == "incumbent":
            state.rates[state.best] = rate
            state.trying, state.phase = 1 - state.best, "challenger"
        elif state.phase == "challenger":
            state.rates[state.trying] = rate
            state.trials += 1
            if rate > (1 + self.lead) * state.rates[state.best]:
                state.best, state.switches, state.hold = state.trying, state.switches + 1, 0
            else:
                state.hold = min(state.hold + 1, len(self.backoff) - 1)
            state.trying, state.phase = state.best, f"holding {self.backoff[state.hold]}"
        else:
            left = int(state.phase.removeprefix("holding ")) - 1
            state.phase = f"holding {left}" if left else "incumbent"

    def release(self, request: str) -> None:
        """Nothing is kept of a single request."""

    def report(self) -> dict[str, Any]:
        state = self.state
        rates = {str(self.arms[arm]): rate for arm, rate in sorted(state.rates.items())}
        reason = f"{state.trials} challenges, {state.switches} won; now {state.phase}"
        return {
            "state": f"{self.arms[state.best]} drafts",
            "reason": reason,
            "tokens_per_s_by_arm": rates,
        }
