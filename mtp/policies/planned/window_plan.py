"""The window that is worth most: max sum of gains - mu * T(rows, slots), exactly. Pure Python.

A slot's gain from g rows is its expected tokens: 1 + S1 + ... + S(g-1). By renewal-reward, windows
that maximise sum gains - mu * T, mu = the running tokens per second, maximise the long-run rate
(Dinkelbach).

How exact is reached, fast first: steps of all slots (anchor, then from each group size to the next)
in order of gain per row are the best of all windows wherever a prefix of them ends; between two
such ends the line that joins them bounds every window. If the best prefix reaches every bound it is
optimal: no search. Otherwise a DP over (slots, rows) decides, and one over (slots, rows, slots
entered) where T knows more of the slots than a price for each. Where only a window of one slot has
a T of its own, and is never dearer for it, the best of these windows is compared with the best of
all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtp.policies.planned.candidate import CLOSE, NEVER, Candidate, gains
from mtp.policies.planned.cost_table import CostTable
from mtp.policies.planned.window_search import best_by_rows, best_by_rows_and_slots, shortlist

# -gain per row, group size then, place of its candidate, rows, gain
Step = tuple[float, int, int, int, float]


def plan(
    candidates: Sequence[Candidate],
    table: CostTable,
    mu: float,
    *,
    rows: int,
    sizes: Sequence[int],
    skip_cap: int = 0,
) -> dict[int, int]:
    """{slot: rows} of the best window; never empty while there is a candidate. Ties go
    to the earlier one.

    mu: tokens per second a second is worth; sizes: ascending, 1 among them; skip_cap: a slot left
    out that often enters as long as there is a row for it (0: none has to). Gains are exact for
    survival that does not increase.
    """
    if not candidates:
        return {}
    forced = forced_slots(candidates, rows, skip_cap)
    if len(forced) >= rows:
        return dict.fromkeys(forced, 1)
    if table.by_both is not None:
        nets = shortlist(candidates, forced, sizes, rows, 0.0, mu)
        return best_by_rows_and_slots(nets, forced, table.by_both, mu, rows)
    found, proven = _prefix(candidates, forced, table, mu, rows, sizes)
    if not proven:
        nets = shortlist(candidates, forced, sizes, rows, mu * table.slot, mu)
        found = best_by_rows(nets, forced, table.by_rows, mu, rows)
    return (
        _or_alone(found, candidates, forced, table, mu, rows, sizes)
        if table.alone and len(forced) < 2
        else found
    )


def greedy(
    candidates: Sequence[Candidate],
    table: CostTable,
    mu: float,
    *,
    rows: int,
    sizes: Sequence[int],
    skip_cap: int = 0,
) -> dict[int, int]:
    """As `plan`, but the best prefix of steps, proven or not. For T that does not fall with rows
    and prices slots alike it loses less than (largest step - 1) tokens to `plan`, where the
    largest step is at most the largest size less its anchor."""
    if not candidates:
        return {}
    forced = forced_slots(candidates, rows, skip_cap)
    if len(forced) >= rows:
        return dict.fromkeys(forced, 1)
    return _prefix(candidates, forced, table, mu, rows, sizes)[0]


def forced_slots(candidates: Sequence[Candidate], rows: int, skip_cap: int) -> dict[int, None]:
    """Slots that have been skipped `skip_cap` times or more: the most-skipped first, as many as
    there are rows."""
    if skip_cap < 1:
        return {}
    due = [candidate for candidate in candidates if candidate.skips >= skip_cap]
    if len(due) > 1:
        due.sort(key=lambda candidate: -candidate.skips)
    return dict.fromkeys(candidate.slot for candidate in due[:rows])


def _prefix(
    candidates: Sequence[Candidate],
    forced: dict[int, None],
    table: CostTable,
    mu: float,
    rows: int,
    sizes: Sequence[int],
) -> tuple[dict[int, int], bool]:
    """The best prefix of steps in order of gain per row, and whether it is proven the best
    window."""
    by_rows = table.by_rows
    if (
        len(candidates) >= rows
        and not table.slot
        and not any(candidate.seconds for candidate in candidates)
    ):
        # anchors alone: no row is worth more than an anchor's 1
        order = [
            *forced,
            *(candidate.slot for candidate in candidates if candidate.slot not in forced),
        ]
        many = max(range(max(1, len(forced)), rows + 1), key=lambda r: r - mu * by_rows[r])
        return dict.fromkeys(order[:many], 1), True
    steps: list[Step] = []
    used = len(forced)
    value = 0.0
    for place, candidate in enumerate(candidates):
        entry = mu * (table.slot + candidate.seconds)
        before, worth = 0, 0.0  # rows so far, and what they are worth
        if candidate.slot in forced:
            before, worth = 1, 1.0 - entry
            value += worth
        first = len(steps)
        for size, total in gains(candidate, sizes, rows):
            if size <= before:
                continue
            begin, since = before, worth
            before, worth = size, total - entry
            density = (since - worth) / (size - begin)
            while len(steps) > first and density < steps[-1][0]:
                # it gains less per row than the one after it: they are taken together
                width, gain = steps.pop()[3:]
                begin, since = begin - width, since - gain
                density = (since - worth) / (size - begin)
            steps.append((density, size, place, size - begin, worth - since))
    steps.sort()
    best = bound = NEVER
    count = 0
    if used:
        best = value - mu * by_rows[used]
    for number, (density, _, _, width, gain) in enumerate(steps, 1):
        end = used + width
        # no prefix ends here: the joining line bounds it
        for r in range(used + 1, min(end, rows + 1)):
            bound = max(bound, value - density * (r - used) - mu * by_rows[r])
        if end > rows:
            break
        used, value = end, value + gain
        score = value - mu * by_rows[end]
        if score > best + CLOSE:
            best, count = score, number
    lengths = dict.fromkeys(forced, 1)
    for step in steps[:count]:
        lengths[candidates[step[2]].slot] = step[1]
    return lengths, bound <= best + CLOSE


def _or_alone(
    found: dict[int, int],
    candidates: Sequence[Candidate],
    forced: dict[int, None],
    table: CostTable,
    mu: float,
    rows: int,
    sizes: Sequence[int],
) -> dict[int, int]:
    """The best window of one slot, or `found`: the best of all at the price of several. If that
    has one slot only, no window of several is worth more than it, and it is worth even more at
    its own price."""
    assert table.alone is not None
    best, chosen = NEVER, found
    if len(found) > 1:
        total = sum(
            dict(gains(candidate, sizes, rows))[found[candidate.slot]] - mu * candidate.seconds
            for candidate in candidates
            if candidate.slot in found
        )
        best = total - mu * table.time(sum(found.values()), len(found))
    for candidate in candidates:
        if not forced or candidate.slot in forced:
            for size, gain in gains(candidate, sizes, rows):
                value = gain - mu * (candidate.seconds + table.alone[size])
                if value > best + CLOSE:
                    best, chosen = value, {candidate.slot: size}
    return chosen
