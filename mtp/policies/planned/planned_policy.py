"""What all planning policies share: estimate every held draft's survival, take the window that
is worth most, choose the depth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mtp.checks import check_integer
from mtp.costs import Cost, LinearCost
from mtp.fields import Tupled
from mtp.policies.checks import check_depth, check_sizes
from mtp.policies.planned.candidate import Candidate
from mtp.policies.planned.cost_table import CostTable
from mtp.policies.planned.depth import Scenarios, best_depth
from mtp.policies.planned.rate import PlannedRate
from mtp.policies.planned.window_plan import plan
from mtp.policies.protocol import Decision, WindowResult
from mtp.policies.silence import Silence
from mtp.windows import SlotView, WindowPlan, first_left_out, groups_of, rotation

FIRST = 24  # windows of a run that are drafted to full depth before a depth is chosen,
CHAINS = 64  # or fewer, which make as many chains
PROBE_SHARE = 0.003  # most of the time that later probes may take


class Estimator(Protocol):
    """What a planning policy believes, and how it learns. missed: a chain of full depth that had
    no rows and little hope has just turned out right."""

    missed: bool

    def survival(self, view: SlotView) -> Sequence[float]:
        """Per held draft of a slot, the probability that it and all before it are right."""
        ...

    def ahead(self, request: str) -> Scenarios:
        """The same for drafts that are yet to be made, to the policy's depth: equally likely
        ways it may turn out, one or more, as many for every request."""
        ...

    def observe(self, result: WindowResult) -> None: ...

    def release(self, request: str) -> None: ...

    def report(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class PlannedPolicy(ABC):
    """The settings of all planning policies; each brings its own estimator."""

    sizes: Tupled[int] = Tupled(1, 2, 4)  # group sizes
    depth: int = 3  # most drafts
    cost: Cost = field(default_factory=LinearCost)  # the estimated time of a window
    skip_cap: int = 2  # windows a slot may be left out of in a row; 0: any number
    # After so many windows without any, drafts are made to full depth, so that shadow scoring sees
    # them (0: never): more rarely where that would take more than 0.3% of the time, and in the
    # first windows of a run. A probe that turns out right to its end against the odds is followed
    # by another at once.
    probe: int = 32

    def __post_init__(self) -> None:
        check_sizes(self.sizes)
        check_depth(self.depth)
        check_integer("policy.skip_cap", self.skip_cap, 0)
        check_integer("policy.probe", self.probe, 0)
        self.estimator()  # what it refuses is refused here

    @abstractmethod
    def estimator(self) -> Estimator:
        """A fresh one."""

    def open(self) -> LivePlanned:
        return LivePlanned(self)

    def lengths(
        self, candidates: list[Candidate], table: CostTable, mu: float, rows: int
    ) -> dict[int, int]:
        """{slot: rows} of the window."""
        return plan(candidates, table, mu, rows=rows, sizes=self.sizes, skip_cap=self.skip_cap)


class LivePlanned:
    """A planning policy at work in one engine."""

    def __init__(self, settings: PlannedPolicy) -> None:
        self.settings = settings
        self.sizes, self.depth = settings.sizes, settings.depth
        self.estimator = settings.estimator()
        self.rate = PlannedRate()
        self.windows = 0
        self.probes = 0
        self._chains = 0  # drafted to full depth
        self._shallow = 0  # windows since the last one that was
        self._depths: dict[int, int] = {}  # windows by depth
        self._silence = Silence()
        self._cost: Cost | None = None
        # T as tables, by (rows of a window, depth), until the cost model moves
        self._tables: dict[tuple[int, int], CostTable] = {}

    def cost_model(self) -> Cost:
        """What plans are made with."""
        return self.settings.cost

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        cost = self.cost_model()
        walk = rotation(slots, start)
        self._silence.hear(walk)
        table = self._table(cost, rows, 0)
        survivals = {view.slot: self.estimator.survival(view) for view in walk}
        candidates = [
            Candidate(
                view.slot,
                min(view.limit, view.held + 1),
                survivals[view.slot],
                table.token * view.position,
                view.skips,
            )
            for view in walk
        ]
        mu = self.rate.of(table, len(candidates))
        lengths = self.settings.lengths(candidates, table, mu, rows)
        depth = self._choose_depth(walk, cost, table, mu, rows)
        if lengths:
            context = sum(view.position for view in walk if view.slot in lengths)
            expected = sum(
                1 + sum(survivals[slot][: length - 1]) for slot, length in lengths.items()
            )
            seconds = cost.window(sum(lengths.values()), len(lengths), depth, context)
            self.rate.add(expected, seconds)
        self._silence.asked = depth > 0
        return Decision(WindowPlan(groups_of(lengths), first_left_out(walk, lengths, start)), depth)

    def _table(self, cost: Cost, rows: int, depth: int) -> CostTable:
        if cost is not self._cost:
            self._cost, self._tables = cost, {}
        if (rows, depth) not in self._tables:
            self._tables[rows, depth] = CostTable.of(cost, rows, depth)
        return self._tables[rows, depth]

    def _choose_depth(
        self, walk: Sequence[SlotView], cost: Cost, table: CostTable, mu: float, rows: int
    ) -> int:
        self.windows += 1
        if len(walk) >= rows:  # anchors fill the window: no draft can be verified in the next
            self._depths[0] = self._depths.get(0, 0) + 1
            return 0
        ahead = [self.estimator.ahead(view.request) for view in walk if view.limit > 1]
        depth = best_depth(
            ahead,
            cost,
            table,
            mu,
            rows=rows,
            entered=len(walk),
            sizes=self.sizes,
            most=0 if self._silence.lasts else self.depth,
        )
        if depth < self.depth and self._probing(cost, len(walk), depth):
            self.probes += 1
            depth = self.depth
        else:
            self._depths[depth] = self._depths.get(depth, 0) + 1
        self._shallow = 0 if depth == self.depth else self._shallow + 1
        self._chains += len(walk) * (depth == self.depth)
        return depth

    def _probing(self, cost: Cost, slots: int, depth: int) -> bool:
        """Whether drafts are made to full depth against `depth`, to see what they would be."""
        probe = self.settings.probe
        if not probe:
            return False
        if self.estimator.missed or (self.windows <= FIRST and self._chains < CHAINS):
            return True
        extra = cost.window(slots, slots, self.depth) / cost.window(slots, slots, depth) - 1
        return self._shallow + 1 >= max(probe, extra / PROBE_SHARE)

    def observe(self, result: WindowResult) -> None:
        self.estimator.observe(result)

    def release(self, request: str) -> None:
        self.estimator.release(request)

    def report(self) -> dict[str, Any]:
        return {
            "state": "planning",
            "reason": f"{self.windows} windows planned, {self.probes} probes{self._silence}",
            "mu": self.rate.mu,
            "depths": {str(depth): count for depth, count in sorted(self._depths.items())},
            **self.estimator.report(),
        }
