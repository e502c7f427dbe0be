"""An executor's drafter, and what happens when it fails: that may cost drafts, never tokens, and it is always told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from mtp.announce import announce


class Clearable(Protocol):
    def clear(self, slot: int) -> None: ...


D = TypeVar("D", bound=Clearable)
R = TypeVar("R")


class DrafterGuard(Generic[D]):
    """drafter: None = plain decoding. reload: gives a new one, bound to the target; None = there is no other.

    A call that raises drops the drafter, and one reload takes its place. A slot that had no state yet (`fresh`) has its call
    repeated, and speculates as if nothing had happened. All other slots in use had their state in the lost drafter: they hold
    no drafts from then on, as does the fresh one where the reload or the repeated call fails too. reloads: counted, since what was
    captured with an earlier drafter must not be replayed.
    """

    def __init__(self, drafter: D | None, reload: Callable[[], D] | None = None) -> None:
        self.drafter = drafter
        self.ended: dict[int, str] = {}  # slots that hold no drafts any more, and why
        self.reloads = 0
        self._reload = reload
        self._expected = drafter is not None
        self._in_use: set[int] = set()
        self._told: set[int] = set()

    def admit(self, slot: int) -> None:
        """The slot begins anew: its state is cleared. A drafter that could not be reloaded has another chance here."""
        self.release(slot)
        self._in_use.add(slot)
        if self._expected and self.drafter is None:
            self._replace("there is none", fresh=slot)
        self.call(lambda drafter: drafter.clear(slot), fresh=slot)

    def release(self, slot: int) -> None:
        self._in_use.discard(slot)
        self._told.discard(slot)
        self.ended.pop(slot, None)

    def call(self, action: Callable[[D], R], *, fresh: int | None = None) -> R | None:
        """The action's result; None where there is no drafter, or it failed."""
        if self.drafter is None:
            return None
        try:
            return action(self.drafter)
        except Exception as fault:
            self._replace(f"{type(fault).__name__}: {fault}", fresh=fresh)
        if self.drafter is None or fresh is None:
            return None
        try:
            return action(self.drafter)
        except Exception as again:
            self._end({fresh}, f"the drafter failed again after its reload: {type(again).__name__}: {again}")
            return None

    def plain_reason(self, slot: int) -> str | None:
        """Why the slot's speculation has ended: said once."""
        if slot not in self.ended or slot in self._told:
            return None
        self._told.add(slot)
        return self.ended[slot]

    def _replace(self, reason: str, *, fresh: int | None) -> None:
        self.drafter = None
        self.reloads += 1
        announce(f"the drafter failed: {reason}")
        self._end(self._in_use - {fresh}, f"the drafter that held its state failed: {reason}")
        try:
            self.drafter = self._reload() if self._reload else None
            outcome = "there is no other"
        except Exception as fault:
            outcome = f"its reload failed: {type(fault).__name__}: {fault}"
        if self.drafter is None:
            self._end({fresh} if fresh is not None else set(), f"the drafter failed: {reason}; {outcome}")

    def _end(self, slots: set[int], reason: str) -> None:
        for slot in slots:
            self.ended.setdefault(slot, reason)
