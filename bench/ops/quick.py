"""`python -m bench.ops.quick`: every registered case once, against its oracle. Says nothing
about time; exit code 1 where one is wrong."""

from __future__ import annotations

import sys
from collections import Counter

import torch

from bench.ops.registry import WrongOutput, cases


def wrong(device: torch.device) -> tuple[Counter[str], list[str]]:
    """Cases by operation, and what is wrong with them."""
    counts: Counter[str] = Counter()
    found = []
    for case in cases():
        counts[case.operation] += 1
        try:
            case.checked(device)
        except WrongOutput as fault:
            found.append(str(fault))
    return counts, found


def main() -> int:
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    counts, found = wrong(device)
    print(*found, sep="\n", end="\n" if found else "")
    print(
        f"{sum(counts.values())} cases on {device}, {len(found)} wrong: "
        + ", ".join(f"{n} {name}" for name, n in counts.items())
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
