"""An executor's drafter, and what happens when it fails: that may cost drafts, never tokens, and
it is always reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from mtp.errors import print_error


class Clearable(Protocol):
    def clear(self, slot: int) -> None: ...


D = TypeVar("D", bound=Clearable)
R = TypeVar("R")


class DrafterGuard(Generic[D]):
    """drafter: None = plain decoding. reload: gives a new one, bound to the target; None = there is
    no other.

    A call that raises drops the drafter; one reload takes its place, every slot in use is reset
    there, and the call is repeated. What the lost drafter knew of a slot's text is not made again:
    the slot goes on with what comes from then on. Where the reload or the repeated call fails too,
    or a slot loses its drafter a second time, that slot holds no drafts from then on. reloads:
    counted, since what was captured with an earlier drafter must not be replayed.
    """

    def __init__(self, drafter: D | None, reload: Callable[[], D] | None = None) -> None:
        self.drafter = drafter
        self.ended: dict[int, str] = {}  # slots that hold no drafts any more, and why
        self.reloads = 0
        self._reload = reload
        self._expected = drafter is not None
        self._fault = "there is none"  # what the drafter was lost to
        self._in_use: set[int] = set()
        self._reloaded: set[int] = set()  # slots that have lived through a reload
        self._reported: set[int] = set()

    def admit(self, slot: int) -> None:
        """The slot starts over: its state is cleared. A drafter that could not be reloaded has
        another chance here."""
        self.release(slot)
        self._in_use.add(slot)
        if self._expected and self.drafter is None:
            self._replace(self._fault)
        self.call(lambda drafter: drafter.clear(slot), slot=slot)

    def release(self, slot: int) -> None:
        self._in_use.discard(slot)
        self._reported.discard(slot)
        self._reloaded.discard(slot)
        self.ended.pop(slot, None)

    def call(self, action: Callable[[D], R], *, slot: int | None = None) -> R | None:
        """The action's result; None where there is no drafter, no slot to draft for, or it
        failed. slot: whom it is for, None = all."""
        if self.drafter is None or not self._drafting:
            return None
        try:
            return action(self.drafter)
        except Exception as fault:
            self._replace(f"{type(fault).__name__}: {fault}")
        if self.drafter is None or not self._drafting:
            return None
        try:
            return action(self.drafter)
        except Exception as again:
            hit = self._in_use if slot is None else {slot}
            self._end(
                hit, f"the drafter failed again after its reload: {type(again).__name__}: {again}"
            )
            return None

    def speculation_disabled(self, slot: int) -> str | None:
        """Why the slot's speculation has ended: reported once."""
        if slot not in self.ended or slot in self._reported:
            return None
        self._reported.add(slot)
        return self.ended[slot]

    @property
    def _drafting(self) -> bool:
        """Whether any slot still has use for a drafter."""
        return not self._in_use <= self.ended.keys()

    def _replace(self, reason: str) -> None:
        self.drafter, self._fault = None, reason
        self.reloads += 1
        print_error(f"the drafter failed: {reason}")
        self._end(self._in_use & self._reloaded, f"the drafter failed a second time: {reason}")
        outcome = "there is no other"
        try:
            if self._reload and self._drafting:
                fresh = self._reload()
                for slot in self._in_use:
                    fresh.clear(slot)
                self.drafter = fresh
        except Exception as fault:
            outcome = f"its reload failed: {type(fault).__name__}: {fault}"
        if self.drafter is None:
            self._end(self._in_use, f"the drafter failed: {reason}; {outcome}")
        self._reloaded |= self._in_use

    def _end(self, slots: set[int], reason: str) -> None:
        for slot in slots:
            self.ended.setdefault(slot, reason)
