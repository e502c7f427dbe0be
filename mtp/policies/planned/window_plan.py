"""The window that is worth most: max sum of gains - mu * T(rows, slots), exactly. Pure Python.

A slot's gain from g rows is its expected tokens: 1 + S1 + ... + S(g-1). By renewal-reward, windows that maximise
sum gains - mu * T, mu = the running tokens per second, maximise the long-run rate (Dinkelbach).

How exact is reached, fast first: steps of all slots (anchor, then from each group size to the next) in order of gain per row
are the best of all windows wherever a prefix of them ends; between two such ends the line that joins them bounds every window.
If the best prefix reaches every bound it is optimal: no search. Otherwise a DP over (slots, rows) decides, and one over
(slots, rows, slots entered) where T knows more of the slots than a price for each. Where only a window of one slot has a T of its
own, and is never dearer for it, the best of these windows is compared with the best of all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mtp.costs import Cost

Step = tuple[
    float, int, int, int, float
]  # -gain per row, group size then, place of its ask, rows, gain
Net = tuple[int, list[tuple[int, float]]]  # slot, (group size, gain less prices)
NEVER = float("-inf")
CLOSE = 1e-12


class Candidate(NamedTuple):
    """A slot that may run. most: rows it may have (its limit, held + 1); survival[j]: probability that its first j + 1 drafts are
    accepted, not increasing; seconds: what it costs by itself once it enters (its KV); skips: windows it was left out of in a row."""

    slot: int
    most: int
    survival: Sequence[float]
    seconds: float = 0.0
    skips: int = 0


@dataclass(frozen=True)
class CostTable:
    """T of one draft depth, as tables. by_rows[r]: T(r rows), without the slots; slot: seconds of each slot in the window;
    token: seconds of each committed token of theirs; alone[r]: all of T of a window of one slot, where that is less than the sum;
    by_both[r][s]: all of T, where it is no such sum. Else both are None."""

    by_rows: tuple[float, ...]
    slot: float
    token: float = 0.0
    alone: tuple[float, ...] | None = None
    by_both: tuple[tuple[float, ...], ...] | None = None

    def time(self, rows: int, slots: int) -> float:
        if self.by_both:
            return self.by_both[rows][slots]
        return (
            self.alone[rows]
            if self.alone and slots == 1
            else self.by_rows[rows] + self.slot * slots
        )

    @classmethod
    def of(cls, cost: Cost, rows: int, depth: int) -> CostTable:
        table = [tuple(cost.window(r, s, depth) for s in range(r + 1)) for r in range(rows + 1)]
        slot = table[rows][rows] - table[rows][rows - 1] if rows > 1 else 0.0
        by_rows = tuple(row[min(2, r)] - slot * min(2, r) for r, row in enumerate(table))
        token = (cost.window(1, 1, depth, 1024) - cost.window(1, 1, depth)) / 1024

        def less(r: int, s: int) -> float:
            """How much less T is than the sum."""
            gap = by_rows[r] + slot * s - table[r][s]
            return gap if abs(gap) > 1e-9 * max(1e-9, abs(table[r][s])) else 0.0

        if any(less(r, s) for r in range(2, rows + 1) for s in range(2, r + 1)) or any(
            less(r, 1) < 0 for r in range(1, rows + 1)
        ):
            return cls(by_rows, slot, token, by_both=tuple(table))
        alone = tuple(row[min(1, r)] for r, row in enumerate(table))
        return cls(
            by_rows,
            slot,
            token,
            alone=alone if any(less(r, 1) for r in range(1, rows + 1)) else None,
        )


def plan(
    candidates: Sequence[Candidate],
    table: CostTable,
    mu: float,
    *,
    rows: int,
    sizes: Sequence[int],
    skip_cap: int = 0,
) -> dict[int, int]:
    """{slot: rows} of the best window; never empty while there is an ask. Ties go to the earlier ask.

    mu: tokens per second a second is worth; sizes: ascending, 1 among them; skip_cap: a slot left out that often enters as long
    as there is a row for it (0: none has to). Gains are exact for survival that does not increase.
    """
    if not candidates:
        return {}
    forced = forced_slots(candidates, rows, skip_cap)
    if len(forced) >= rows:
        return dict.fromkeys(forced, 1)
    if table.by_both is not None:
        return _by_rows_and_slots(
            _shortlist(candidates, forced, sizes, rows, 0.0, mu), forced, table.by_both, mu, rows
        )
    found, proven = _prefix(candidates, forced, table, mu, rows, sizes)
    if not proven:
        found = _by_rows(
            _shortlist(candidates, forced, sizes, rows, mu * table.slot, mu),
            forced,
            table.by_rows,
            mu,
            rows,
        )
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
    """As `plan`, but the best prefix of steps, proven or not. For T that does not fall with rows and prices slots alike it loses
    less than (largest step - 1) tokens to `plan`, where the largest step is at most the largest size less its anchor."""
    if not candidates:
        return {}
    forced = forced_slots(candidates, rows, skip_cap)
    if len(forced) >= rows:
        return dict.fromkeys(forced, 1)
    return _prefix(candidates, forced, table, mu, rows, sizes)[0]


def forced_slots(candidates: Sequence[Candidate], rows: int, skip_cap: int) -> dict[int, None]:
    """Slots that have been skipped `skip_cap` times or more: the most-skipped first, as many as there are rows."""
    if skip_cap < 1:
        return {}
    due = [candidate for candidate in candidates if candidate.skips >= skip_cap]
    if len(due) > 1:
        due.sort(key=lambda candidate: -candidate.skips)
    return dict.fromkeys(candidate.slot for candidate in due[:rows])


def gains(candidate: Candidate, sizes: Sequence[int], rows: int) -> list[tuple[int, float]]:
    """(group size, expected tokens) of every group it may have."""
    most, survival = min(candidate.most, rows), candidate.survival
    found, total, counted = [], 1.0, 1
    for size in sizes:
        if size > most:
            break
        if size > counted:
            total += sum(survival[counted - 1 : size - 1])
            counted = size
        found.append((size, total))
    return found


def _prefix(
    candidates: Sequence[Candidate],
    forced: dict[int, None],
    table: CostTable,
    mu: float,
    rows: int,
    sizes: Sequence[int],
) -> tuple[dict[int, int], bool]:
    """The best prefix of steps in order of gain per row, and whether it is proven the best window."""
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
                width, gain = steps.pop()[
                    3:
                ]  # it gains less per row than the one after it: they are taken together
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
        for r in range(
            used + 1, min(end, rows + 1)
        ):  # no prefix ends here: the joining line bounds it
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
    """The best window of one slot, or `found`: the best of all at the price of several. If that has one slot only, no window of
    several is worth more than it, and it is worth even more at its own price."""
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


def _shortlist(
    candidates: Sequence[Candidate],
    forced: dict[int, None],
    sizes: Sequence[int],
    rows: int,
    entry: float,
    mu: float,
) -> list[Net]:
    """The slots that can matter, with their gains less `entry` and their own price. At most `rows` slots enter, so a group of a
    slot outside the `rows` best of its size can be handed to one of these that is left out, at no loss."""
    nets = [
        (
            candidate.slot,
            [
                (size, total - entry - mu * candidate.seconds)
                for size, total in gains(candidate, sizes, rows)
            ],
        )
        for candidate in candidates
    ]
    if len(nets) <= rows:
        return nets
    keep = set(forced)
    for place in range(len(sizes)):
        able = [(slot, chain[place][1]) for slot, chain in nets if len(chain) > place]
        able.sort(key=lambda entry: -entry[1])
        keep.update(slot for slot, _ in able[:rows])
    return [entry for entry in nets if entry[0] in keep]


def _by_rows(
    nets: Sequence[Net], forced: dict[int, None], by_rows: Sequence[float], mu: float, rows: int
) -> dict[int, int]:
    """values[r]: the best sum of nets with exactly r rows, over the slots so far."""
    values = [0.0] + [NEVER] * rows
    choices, top = [], 0
    for slot, chain in nets:
        choice = [0] * (rows + 1)
        new = [NEVER] * (rows + 1) if slot in forced else values[:]
        for size, net in chain:
            for r in range(size, min(rows, top + size) + 1):
                value = values[r - size] + net
                if value > new[r] + CLOSE:
                    new[r] = value
                    choice[r] = size
        values = new
        choices.append(choice)
        top = min(rows, top + chain[-1][0])
    left = max(range(1, rows + 1), key=lambda r: values[r] - mu * by_rows[r])
    lengths = {}
    for (slot, _), choice in zip(reversed(nets), reversed(choices), strict=True):
        if choice[left]:
            lengths[slot] = choice[left]
            left -= choice[left]
    return lengths


def _by_rows_and_slots(
    nets: Sequence[Net],
    forced: dict[int, None],
    times: Sequence[Sequence[float]],
    mu: float,
    rows: int,
) -> dict[int, int]:
    """As `_by_rows`, for each number of slots that entered: values[r, s]."""
    values, choices = {(0, 0): 0.0}, []
    for slot, chain in nets:
        new = {} if slot in forced else dict(values)
        choice: dict[tuple[int, int], int] = {}
        for size, net in chain:
            for (r, s), value in values.items():
                if r + size <= rows and value + net > new.get((r + size, s + 1), NEVER) + CLOSE:
                    new[r + size, s + 1] = value + net
                    choice[r + size, s + 1] = size
        values = new
        choices.append(choice)
    left, entered = max(
        (place for place in values if place[0]),
        key=lambda place: values[place] - mu * times[place[0]][place[1]],
    )
    lengths = {}
    for (slot, _), choice in zip(reversed(nets), reversed(choices), strict=True):
        size = choice.get((left, entered), 0)
        if size:
            lengths[slot] = size
            left, entered = left - size, entered - 1
    return lengths
