"""The search for the best window where no shorter proof is found: sums of gains, slot by slot, for
every number of rows. Pure Python."""

from __future__ import annotations

from collections.abc import Sequence

from mtp.policies.planned.candidate import CLOSE, NEVER, Candidate, gains

Net = tuple[int, list[tuple[int, float]]]  # slot, (group size, gain less prices)


def shortlist(
    candidates: Sequence[Candidate],
    forced: dict[int, None],
    sizes: Sequence[int],
    rows: int,
    entry: float,
    mu: float,
) -> list[Net]:
    """The slots that can matter, with their gains less `entry` and their own price. At most
    `rows` slots enter, so a group of a slot outside the `rows` best of its size can be handed to
    one of these that is left out, at no loss."""
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


def best_by_rows(
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


def best_by_rows_and_slots(
    nets: Sequence[Net],
    forced: dict[int, None],
    times: Sequence[Sequence[float]],
    mu: float,
    rows: int,
) -> dict[int, int]:
    """As `best_by_rows`, for each number of slots that entered: values[r, s]."""
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
