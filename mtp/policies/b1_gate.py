"""The other published system's gate: is a speculative round faster than the plain steps that emit as many tokens?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Self

from mtp.policies.checks import check_count, check_number, checked_sizes
from mtp.policies.protocol import Decision, WindowResult
from mtp.windows import SlotView, static_k


@dataclass
class _State:
    """state: `profiling` (only while samples are taken), `on`, `vetoed` or `default`; pairing: the requests it was decided for."""

    state: str = "profiling"
    reason: str = "no window yet"
    pairing: frozenset[str] = frozenset()
    plain: list[float] = field(default_factory=list)
    rounds: list[tuple[float, float]] = field(default_factory=list)  # (tokens a slot, seconds)
    since: int = 0
    decided: dict[str, int] = field(default_factory=dict)
    lately: bool = False  # the last window was speculative by plan


@dataclass(frozen=True)
class B1Gate:
    """speedup = (accepted + 1) * plain time / round time: accepted, the mean of `samples` speculative windows; plain time, the median
    of `samples` plain probes, taken first. At least `on_at`: speculate; at most `off_at`: plain decoding ("vetoed", with the
    figures); between: `default_on`.

    k: drafts per group while on; retry: windows after a veto until it is measured again (0: when the pairing changes only). A
    change of the pairing, the set of requests that run, always starts over.
    """

    sizes: tuple[int, ...] = (1, 2, 4)
    k: int = 3
    samples: int = 4
    on_at: float = 1.5
    off_at: float = 1.0
    default_on: bool = True
    retry: int = 256
    state: _State = field(default_factory=_State, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", checked_sizes(self.sizes))
        check_count("k", self.k, 1)
        if self.k + 1 not in self.sizes:
            raise ValueError(
                f"policy.k is {self.k}, expected one less than a group size: {[size - 1 for size in self.sizes if size > 1]}"
            )
        check_count("samples", self.samples, 1)
        check_count("retry", self.retry)
        check_number("off_at", self.off_at, 0)
        check_number("on_at", self.on_at, self.off_at)

    @property
    def depth(self) -> int:
        return self.k

    def open(self) -> Self:
        return replace(self)

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        state = self.state
        pairing = frozenset(view.request for view in slots)
        if pairing != state.pairing or (
            self.retry and state.state == "vetoed" and state.since >= self.retry
        ):
            reason = (
                "the pairing has changed"
                if pairing != state.pairing
                else f"{self.retry} windows since the veto"
            )
            decided = state.decided
            object.__setattr__(
                self, "state", state := _State(reason=reason, pairing=pairing, decided=decided)
            )
        probing_plain = state.state == "profiling" and len(state.plain) < self.samples
        off = state.state == "vetoed" or (state.state == "default" and not self.default_on)
        state.lately = not (probing_plain or off)
        # the last plain probe drafts, so that the first sample after it has drafts to verify
        last_probe = probing_plain and len(state.plain) == self.samples - 1
        depth = self.k if state.lately or last_probe else 0
        return Decision(
            static_k(
                slots, k=self.k if state.lately else 0, rows=rows, start=start, sizes=self.sizes
            ),
            depth,
        )

    def observe(self, result: WindowResult) -> None:
        state = self.state
        if not result.slots[0].rows:
            return
        state.since += 1
        if state.state != "profiling":
            return
        if not state.lately:
            state.plain.append(result.seconds)
            return
        whole = [
            part for part in result.slots if not part.committed.finish and part.committed.tokens
        ]
        if not whole or all(part.rows == 1 for part in whole):
            return  # clipped, or nobody had drafts
        state.rounds.append(
            (sum(1 + part.committed.accepted for part in whole) / len(whole), result.seconds)
        )
        if len(state.rounds) == self.samples:
            self._decide(state)

    def _decide(self, state: _State) -> None:
        tokens = sum(tokens for tokens, _ in state.rounds) / self.samples
        seconds = sum(seconds for _, seconds in state.rounds) / self.samples
        speedup = tokens * median(state.plain) / seconds
        state.state = (
            "on" if speedup >= self.on_at else "vetoed" if speedup <= self.off_at else "default"
        )
        state.reason = f"speedup {speedup:.2f}, on at {self.on_at:g}, off at {self.off_at:g}"
        state.since = 0
        state.decided[state.state] = state.decided.get(state.state, 0) + 1

    def release(self, request: str) -> None:
        """The next window's pairing is another: it starts over there."""

    def report(self) -> dict[str, Any]:
        state = self.state
        sampled = (
            f" ({len(state.plain)} plain and {len(state.rounds)} speculative samples so far)"
            if state.state == "profiling"
            else ""
        )
        return {
            "state": state.state,
            "reason": state.reason + sampled,
            "decided": dict(sorted(state.decided.items())),
        }
