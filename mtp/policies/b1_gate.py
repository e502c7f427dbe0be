"""The other published system's gate: is a speculative round faster than the plain steps that
emit as many tokens?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from mtp.checks import check_integer, check_number
from mtp.costs import Cost, LinearCost
from mtp.fields import Tupled
from mtp.policies.checks import check_sizes
from mtp.policies.protocol import Decision, WindowResult
from mtp.policies.silence import Silence
from mtp.policies.timing import seconds_of
from mtp.windows import SlotView, static_k


@dataclass(frozen=True)
class B1Gate:
    """speedup = (accepted + 1) * plain time / round time. accepted: the mean of `samples`
    speculative windows; plain time: the median of `samples` plain probes, taken first.

    A change of the pairing, the set of requests that run, always starts over.
    """

    sizes: Tupled[int] = Tupled(1, 2, 4)
    k: int = 3  # drafts per group while on
    samples: int = 4
    on_at: float = 1.5  # speedup from which it speculates
    off_at: float = 1.0  # speedup down to which it decodes plainly: "vetoed", with the figures
    default_on: bool = True  # between the two
    retry: int = 256  # windows from a veto to the next measurement; 0: only with another pairing
    # By the engine's clock: on a model two runs then need not plan alike. False: by `cost`.
    measured: bool = True
    cost: Cost = field(default_factory=LinearCost)  # the estimated time of a window

    def __post_init__(self) -> None:
        check_sizes(self.sizes)
        check_integer("policy.k", self.k, 1)
        if self.k + 1 not in self.sizes:
            raise ValueError(
                f"policy.k is {self.k}, expected one less than a group size: "
                f"{[size - 1 for size in self.sizes if size > 1]}"
            )
        check_integer("policy.samples", self.samples, 1)
        check_integer("policy.retry", self.retry, 0)
        check_number("policy.off_at", self.off_at, 0)
        check_number("policy.on_at", self.on_at, self.off_at)

    @property
    def depth(self) -> int:
        return self.k

    def open(self) -> LiveB1Gate:
        return LiveB1Gate(self)


@dataclass
class Measurement:
    """Of one pairing: its samples, then what was decided by them."""

    state: str = "profiling"  # only while samples are taken; then `on`, `vetoed` or `default`
    reason: str = "no window yet"
    pairing: frozenset[str] = frozenset()  # the requests it holds for
    plain: list[float] = field(default_factory=list)  # seconds
    rounds: list[tuple[float, float]] = field(default_factory=list)  # (tokens a slot, seconds)
    since: int = 0  # windows since the decision
    silence: Silence = field(default_factory=Silence)


class LiveB1Gate:
    def __init__(self, settings: B1Gate) -> None:
        self.settings, self.sizes, self.depth = settings, settings.sizes, settings.depth
        self._cost = None if settings.measured else settings.cost
        self.now = Measurement()
        self.decided: dict[str, int] = {}  # how often, by state
        self._speculates = False  # in the last window, by plan

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        self._start_over(frozenset(view.request for view in slots))
        settings, now = self.settings, self.now
        now.silence.hear(slots)
        if now.state == "profiling" and now.silence.lasts:
            self._decide("vetoed", f"nobody had a draft in {now.silence.windows} windows")
        probing_plain = now.state == "profiling" and len(now.plain) < settings.samples
        off = now.state == "vetoed" or (now.state == "default" and not settings.default_on)
        self._speculates = not (probing_plain or off)
        # the last plain probe drafts, so that the first sample after it has drafts to verify
        last_probe = probing_plain and len(now.plain) == settings.samples - 1
        k = settings.k if self._speculates else 0
        plan = static_k(slots, k=k, rows=rows, start=start, sizes=self.sizes)
        depth = settings.k if last_probe else k
        now.silence.asked = depth > 0
        return Decision(plan, depth)

    def _start_over(self, pairing: frozenset[str]) -> None:
        """Where the pairing is another, or the veto is old."""
        now, retry = self.now, self.settings.retry
        if pairing != now.pairing:
            self.now = Measurement(reason="the pairing has changed", pairing=pairing)
        elif retry and now.state == "vetoed" and now.since >= retry:
            self.now = Measurement(reason=f"{retry} windows since the veto", pairing=pairing)

    def observe(self, result: WindowResult) -> None:
        now = self.now
        if not result.slots[0].rows:
            return  # a prefill
        now.since += 1
        if now.state != "profiling":
            return
        if not self._speculates:
            now.plain.append(seconds_of(result, self._cost))
            return
        whole = [
            part for part in result.slots if not part.committed.finish and part.committed.tokens
        ]
        if not whole or all(part.rows == 1 for part in whole):
            return  # clipped, or nobody had drafts
        tokens = sum(1 + part.committed.accepted for part in whole) / len(whole)
        now.rounds.append((tokens, seconds_of(result, self._cost)))
        if len(now.rounds) == self.settings.samples:
            self._judge()

    def _judge(self) -> None:
        settings, now = self.settings, self.now
        tokens = sum(tokens for tokens, _ in now.rounds) / settings.samples
        seconds = sum(seconds for _, seconds in now.rounds) / settings.samples
        speedup = tokens * median(now.plain) / seconds
        state = (
            "on"
            if speedup >= settings.on_at
            else "vetoed"
            if speedup <= settings.off_at
            else "default"
        )
        self._decide(
            state, f"speedup {speedup:.2f}, on at {settings.on_at:g}, off at {settings.off_at:g}"
        )

    def _decide(self, state: str, reason: str) -> None:
        self.now.state, self.now.reason, self.now.since = state, reason, 0
        self.decided[state] = self.decided.get(state, 0) + 1

    def release(self, request: str) -> None:
        """The next window's pairing is another: it starts over there."""

    def report(self) -> dict[str, Any]:
        now = self.now
        samples = (
            f" ({len(now.plain)} plain and {len(now.rounds)} speculative samples so far)"
            if now.state == "profiling"
            else ""
        )
        return {
            "state": now.state,
            "reason": now.reason + samples,
            "decided": dict(sorted(self.decided.items())),
        }
