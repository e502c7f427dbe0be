"""`python -m bench.compare A B`: the medians of two files of rows, case by case."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.rows import Row, name_of, of_kind, read_rows


def compared(a: Sequence[Row], b: Sequence[Row]) -> list[str]:
    """Markdown. outside: whether B's median lies outside A's 20 to 80%; cases of one file alone
    are counted, not shown."""
    before, after = (
        {(*name_of(row), row["implementation"]): row for row in rows} for rows in (a, b)
    )
    both = [name for name in before if name in after]
    lines = [
        "| operation | shape | mode | implementation | A p50 us | B p50 us | B / A | outside A's "
        "20-80% |",
        "|---" * 8 + "|",
    ]
    for name in both:
        old, new = before[name], after[name]
        outside = "" if old["p20_us"] <= new["p50_us"] <= old["p80_us"] else "yes"
        figures = f"{old['p50_us']:.2f} | {new['p50_us']:.2f} | {new['p50_us'] / old['p50_us']:.2f}"
        lines.append(f"| {' | '.join(name)} | {figures} | {outside} |")
    for letter, rows in (("A", a), ("B", b)):
        lines.append(
            f"\n{letter}: "
            + "; ".join(
                sorted(
                    {f"{row['device']}, {row['evidence']}, commit {row['commit']}" for row in rows}
                )
            )
        )
    lines.append(f"only in A: {len(before) - len(both)}, only in B: {len(after) - len(both)}")
    return lines


def main() -> int:
    try:
        if len(sys.argv) != 3:
            raise ValueError(
                f"{len(sys.argv) - 1} files are given, expected two: make bench-compare "
                "A=before.jsonl B=after.jsonl"
            )
        a, b = (of_kind(read_rows(path), "timing") for path in sys.argv[1:])
        if differ := {row["evidence"] for row in a} ^ {row["evidence"] for row in b}:
            raise ValueError(
                f"one file has rows of a {' and a '.join(sorted(differ))}, the other has none: a "
                "CPU's times say nothing of a GPU's"
            )
    except ValueError as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    print(*compared(a, b), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
