"""What a policy decides is held against what it was given: it may be anybody's class."""

from __future__ import annotations

from collections.abc import Sequence

from mtp.policies.protocol import Deciding, Decision
from mtp.windows import SlotView


def check_decision(
    decision: Decision, slots: Sequence[SlotView], policy: Deciding, *, rows: int
) -> None:
    """rows: of the window. Raises RuntimeError, one line, for a plan that no executor may be
    given."""
    views = {view.slot: view for view in slots}
    groups = decision.plan.groups
    if not groups:
        raise RuntimeError(f"the policy left the window empty although slots {list(views)} can run")
    before = -1
    for group in groups:
        view = views.get(group.slot)
        if view is None or group.slot <= before:
            raise RuntimeError(
                f"the policy gave groups to slots {[group.slot for group in groups]}, expected "
                f"some of {list(views)}, ascending"
            )
        before = group.slot
        if group.rows not in policy.sizes:
            raise RuntimeError(
                f"the policy gave slot {group.slot} {group.rows} rows, expected one of its sizes "
                f"{list(policy.sizes)}"
            )
        if group.rows > (most := min(view.limit, view.held + 1)):
            raise RuntimeError(
                f"the policy gave slot {group.slot} {group.rows} rows, expected at most {most}: "
                f"its limit is {view.limit}, and it holds {view.held} drafts"
            )
    if decision.plan.rows > rows:
        raise RuntimeError(
            f"the policy gave {decision.plan.rows} rows in all, expected at most {rows}"
        )
    if not 0 <= decision.depth <= policy.depth:
        raise RuntimeError(
            f"the policy asked for {decision.depth} drafts, expected at most its depth, "
            f"{policy.depth}"
        )
