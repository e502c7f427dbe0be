"""Figures of the grants of one run, from their records alone. Rounds are granted rounds, of all
holders together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from mtp.grants.entry import Grant
from mtp.grants.everyone import Everyone
from mtp.grants.protocol import Grants
from mtp.grants.ring import Ring
from mtp.metrics import percentile, rate
from mtp.request import Finished


def grant_stats(grants: Grants) -> dict[str, Any]:
    """The `grants` of metrics.json; with `grant=off`, where nobody holds or waits, there is
    nothing to count: all None."""
    if isinstance(grants, Ring):
        return stats_of(grants.log, ring_peak=grants.ring_peak, live_peak=grants.live_peak)
    assert isinstance(grants, Everyone)
    return dict.fromkeys(stats_of((), ring_peak=0, live_peak=0))


def stats_of(log: Sequence[Grant], *, ring_peak: int, live_peak: int) -> dict[str, Any]:
    """A gap: rounds others ran between two grants of a request. switches: grants that began after
    another request's.

    jain_rounds, jain_tokens: Jain's index (1 = equal, 1/n = one has all) over the requests, of
    the rounds and of the granted tokens each got per round run while it was present."""
    gaps = [grant.waited for grant in log if grant.again]
    present = _presence(log)
    rounds: dict[str, int] = defaultdict(int)
    tokens: dict[str, int] = defaultdict(int)
    for grant in log:
        rounds[grant.request] += grant.rounds
        tokens[grant.request] += grant.tokens
    began = sorted(log, key=lambda grant: grant.began)
    return {
        "max_gap_rounds": max(gaps, default=None),
        "p99_gap_rounds": percentile(gaps, 99),
        "jain_rounds": jain([rounds[name] / span for name, span in present.items()]),
        "jain_tokens": jain([tokens[name] / span for name, span in present.items()]),
        "switches": sum(a.request != b.request for a, b in pairwise(began)),
        "ring_peak": ring_peak,
        "live_sessions_peak": live_peak,
    }


def request_grants(grants: Grants, finished: Iterable[Finished]) -> dict[str, dict[str, Any]]:
    """By request: grants held, mean rounds of one, longest gap in rounds, stall_s = its longest
    wait between two deliveries of tokens, and why its speculation ended early. With `grant=off`,
    and for requests that never held one, the first three are None.
    """
    own: dict[str, list[Grant]] = defaultdict(list)
    for grant in grants.log if isinstance(grants, Ring) else ():
        own[grant.request].append(grant)
    return {
        request.id: {
            "grants": len(own[request.id]) or None,
            "rounds_per_grant": rate(
                sum(grant.rounds for grant in own[request.id]), len(own[request.id])
            ),
            "longest_gap_rounds": max(
                (grant.waited for grant in own[request.id] if grant.again), default=None
            ),
            "stall_s": max(
                (later - earlier for earlier, later in pairwise(request.emitted_s)), default=None
            ),
            "plain_reason": request.speculation_disabled,
        }
        for request in finished
    }


def jain(shares: Sequence[float]) -> float | None:
    return rate(sum(shares) ** 2, len(shares) * sum(share**2 for share in shares))


def _presence(log: Iterable[Grant]) -> dict[str, int]:
    """By request: granted rounds from its arrival among the grants to the end of its last one."""
    joined: dict[str, int] = {}
    left: dict[str, int] = {}
    for grant in log:
        joined.setdefault(grant.request, grant.began - grant.waited)
        left[grant.request] = max(left.get(grant.request, 0), grant.ended)
    return {name: left[name] - joined[name] for name in joined}
