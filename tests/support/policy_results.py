"""Windows as policies see them, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from mtp.commit import Committed
from mtp.policies import Learning, SlotResult, WindowResult
from mtp.windows import SlotView


def view(slot: int, held: int = 3, **more) -> SlotView:
    return SlotView(
        slot,
        held,
        more.pop("room", 100),
        more.pop("position", 10),
        1000,
        request=more.pop("request", f"r{slot}"),
        **more,
    )


def slot_result(
    request: str,
    tokens: Sequence[int],
    *,
    rows: int = 1,
    drafts: Sequence[int] = (),
    confidence: Sequence[float] = (),
    finish=None,
    slot: int = 0,
) -> SlotResult:
    """A slot that committed `tokens` and then drafted."""
    committed = Committed(tuple(tokens), len(tokens), max(0, len(tokens) - 1), finish)
    return SlotResult(request, slot, rows, 10, committed, tuple(drafts), tuple(confidence))


def window_result(*parts: SlotResult, depth: int = 3, seconds: float = 0.04) -> WindowResult:
    return WindowResult(parts, sum(part.rows for part in parts), 0, depth, seconds)


class Player:
    """One request whose drafts are all right or all wrong, played against a policy window by
    window."""

    def __init__(self, policy: Learning, *, costs=None, confidence: bool = True) -> None:
        self.policy, self.costs, self.confidence = policy.open(), costs, confidence
        self.held, self.said, self.rows = 0, 0.5, 0
        self.policy.observe(
            window_result(
                slot_result("r0", [0], rows=0, drafts=(0,) * self.policy.depth),
                depth=self.policy.depth,
            )
        )
        self.held = self.policy.depth

    def window(self, right: bool) -> int:
        """right: whether this window's drafts are. Gives the rows it planned."""
        confidence = (self.said,) * self.held if self.confidence else ()
        decision = self.policy.decide([view(0, self.held, confidence=confidence)], rows=8, start=0)
        (group,) = decision.plan.groups
        kept = group.rows if right else 1
        depth = decision.depth
        seconds = self.costs.window(group.rows, 1, depth) if self.costs else 0.04
        # drafts are token 0; committed tokens are 0 where they were right and 1 where they were not
        tokens = [0] * kept if right else [1]
        said = (self.said,) * depth if self.confidence else ()
        drafted = slot_result("r0", tokens, rows=group.rows, drafts=(0,) * depth, confidence=said)
        self.policy.observe(window_result(drafted, depth=depth, seconds=seconds))
        self.held, self.rows = depth, group.rows
        return group.rows
