"""What all planning policies share: estimate every held draft's survival, take the window that is worth most, choose the depth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from mtp.costs import Cost, LinearCost
from mtp.policies.checks import check_count, check_depth, checked_sizes
from mtp.policies.planned.depth import Scenarios, best_depth
from mtp.policies.planned.rate import PlannedRate
from mtp.policies.planned.window_plan import Candidate, CostTable, plan
from mtp.policies.protocol import Decision, WindowResult
from mtp.windows import SlotView, WindowPlan, first_left_out, groups_of, rotation

FIRST, CHAINS = (
    24,
    64,
)  # windows of a run drafted to full depth before a depth is chosen, or fewer that make as many chains
PROBE_SHARE = 0.003  # most of the time that later probes may take


class Estimator(Protocol):
    """What a planning policy believes, and how it learns. missed: a chain of full depth that had no rows and
    little hope has just turned out right."""

    missed: bool

    def survival(self, view: SlotView) -> Sequence[float]:
        """Per held draft of a slot, the probability that it and all before it are right."""
        ...

    def ahead(self, request: str) -> Scenarios:
        """The same for drafts that are yet to be made, to the policy's depth: equally likely ways it may turn out, one or more,
        as many for every request."""
        ...

    def observe(self, result: WindowResult) -> None: ...

    def release(self, request: str) -> None: ...

    def report(self) -> dict[str, Any]: ...


@dataclass
class _Run:
    """The state of one engine's policy. costs, shapes: T as tables, by (rows of a window, depth), until the cost model moves."""

    estimator: Estimator
    rate: PlannedRate = field(default_factory=PlannedRate)
    windows: int = 0
    probes: int = 0
    chains: int = 0  # drafted to full depth
    shallow: int = 0  # windows since the last one that was
    depths: dict[int, int] = field(default_factory=dict)
    cost: Cost | None = None
    tables: dict[tuple[int, int], CostTable] = field(default_factory=dict)

    def table(self, cost: Cost, rows: int, depth: int) -> CostTable:
        if cost is not self.cost:
            self.cost, self.tables = cost, {}
        if (rows, depth) not in self.tables:
            self.tables[rows, depth] = CostTable.of(cost, rows, depth)
        return self.tables[rows, depth]


@dataclass(frozen=True)
class PlannedPolicy(ABC):
    """sizes: group sizes; depth: most drafts; cost: what is believed of T; skip_cap: windows a slot may be left out of in a row (0:
    any number); probe: after so many windows without any, drafts are made to full depth, so that shadow scoring sees them (0: never),
    more rarely where that would take more than 0.3% of the time, and in the first windows of a run; a probe that turns out right to its
    end against the odds is followed by another at once."""

    sizes: tuple[int, ...] = (1, 2, 4)
    depth: int = 3
    cost: Cost = field(default_factory=LinearCost)
    skip_cap: int = 2
    probe: int = 32
    run: _Run = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", checked_sizes(self.sizes))
        check_depth(self.depth)
        check_count("skip_cap", self.skip_cap)
        check_count("probe", self.probe)
        object.__setattr__(self, "run", _Run(self.estimator()))

    @abstractmethod
    def estimator(self) -> Estimator:
        """A fresh one: each policy brings its own."""

    def open(self) -> Self:
        return replace(self)  # settings alone are carried over

    def cost_model(self) -> Cost:
        """The cost model plans are made with."""
        return self.cost

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        run, cost = self.run, self.cost_model()
        walk = rotation(slots, start)
        table = run.table(cost, rows, 0)
        survivals = {view.slot: run.estimator.survival(view) for view in walk}
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
        mu = run.rate.of(table, len(candidates))
        lengths = self.lengths(candidates, table, mu, rows)
        depth = self._depth(walk, cost, table, mu, rows)
        if lengths:
            context = sum(view.position for view in walk if view.slot in lengths)
            expected = sum(
                1 + sum(survivals[slot][: length - 1]) for slot, length in lengths.items()
            )
            run.rate.add(expected, cost.window(sum(lengths.values()), len(lengths), depth, context))
        return Decision(WindowPlan(groups_of(lengths), first_left_out(walk, lengths, start)), depth)

    def lengths(
        self, candidates: list[Candidate], table: CostTable, mu: float, rows: int
    ) -> dict[int, int]:
        """{slot: rows} of the window."""
        return plan(candidates, table, mu, rows=rows, sizes=self.sizes, skip_cap=self.skip_cap)

    def _depth(
        self, walk: Sequence[SlotView], cost: Cost, table: CostTable, mu: float, rows: int
    ) -> int:
        run = self.run
        run.windows += 1
        if len(walk) >= rows:  # anchors fill the window: no draft can be verified in the next
            run.depths[0] = run.depths.get(0, 0) + 1
            return 0
        ahead = [run.estimator.ahead(view.request) for view in walk if view.limit > 1]
        depth = best_depth(
            ahead, cost, table, mu, rows=rows, entered=len(walk), sizes=self.sizes, most=self.depth
        )
        if depth < self.depth and self._probes(cost, len(walk), depth):
            run.probes += 1
            depth = self.depth
        else:
            run.depths[depth] = run.depths.get(depth, 0) + 1
        run.shallow = 0 if depth == self.depth else run.shallow + 1
        run.chains += len(walk) * (depth == self.depth)
        return depth

    def _probes(self, cost: Cost, slots: int, depth: int) -> bool:
        """Whether drafts are made to full depth against `depth`, to see what they would be."""
        run = self.run
        if not self.probe:
            return False
        if run.estimator.missed or (run.windows <= FIRST and run.chains < CHAINS):
            return True
        extra = cost.window(slots, slots, self.depth) / cost.window(slots, slots, depth) - 1
        return run.shallow + 1 >= max(self.probe, extra / PROBE_SHARE)

    def observe(self, result: WindowResult) -> None:
        self.run.estimator.observe(result)

    def release(self, request: str) -> None:
        self.run.estimator.release(request)

    def report(self) -> dict[str, Any]:
        run = self.run
        return {
            "state": "planning",
            "reason": f"{run.windows} windows planned, {run.probes} probes",
            "mu": run.rate.mu,
            "depths": {str(depth): count for depth, count in sorted(run.depths.items())},
            **run.estimator.report(),
        }
