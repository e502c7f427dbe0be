"""tape.parquet: the tapes of one or more requests, one row per output token. polars is imported
where it is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtp.files import whole
from mtp.tape.columns import Columns


def write_columns(path: str | Path, tapes: Mapping[str, Columns]) -> None:
    """Columns: request, index, token, matches, held (drafts made at the token, null: as many as
    asked for); confidence_1..D (fp32, null where there was no such draft) and truth_1..D (fp64)
    where a tape has them. The file appears complete or not at all. Raises ValueError without a
    tape."""
    import polars as pl

    if not tapes:
        raise ValueError("there is no tape to write, expected at least one")
    several = [_frame(pl, name, tape) for name, tape in tapes.items()]
    file = Path(path)
    with whole(file) as aside:
        pl.concat(several, how="diagonal").write_parquet(aside)


def read_columns(path: str | Path) -> dict[str, Columns]:
    """The tapes by request, in the order of the file. Raises ValueError, in one line, for what
    is no tape.parquet."""
    import polars as pl

    try:
        frame = pl.read_parquet(Path(path))
    except (OSError, pl.exceptions.PolarsError) as wrong:
        raise ValueError(
            f"{path} cannot be read as a tape: {' '.join(str(wrong).split())}"
        ) from wrong
    if missing := {"request", "index", "token", "matches"} - set(frame.columns):
        raise ValueError(
            f"{path} is no tape: column {sorted(missing)[0]} is missing, expected request, index, "
            "token, matches"
        )
    tapes: dict[str, Columns] = {}
    for (name,), part in frame.group_by("request", maintain_order=True):
        part = part.sort("index")
        if part["index"].to_list() != list(range(len(part))):
            raise ValueError(
                f"{path}, request {name}: index does not run from 0 to {len(part) - 1}, one row "
                "per token"
            )
        tapes[str(name)] = Columns(
            tuple(part["token"].to_list()),
            tuple(part["matches"].to_list()),
            _rows(part, "confidence", part["held"].to_list() if "held" in part.columns else None),
            _rows(part, "truth", None),
        )
    return tapes


def _frame(pl: Any, name: str, tape: Columns) -> Any:
    count = len(tape.tokens)
    held: list[int | None] = [len(row) for row in tape.confidence] or [None] * count
    columns = {
        "request": pl.Series([name] * count, dtype=pl.String),
        "index": pl.Series(range(count), dtype=pl.Int32),
        "token": pl.Series(tape.tokens, dtype=pl.Int32),
        "matches": pl.Series(tape.matches, dtype=pl.Int32),
        "held": pl.Series(held, dtype=pl.Int32),
    }
    for group, rows, dtype in (
        ("confidence", tape.confidence, pl.Float32),
        ("truth", tape.truth, pl.Float64),
    ):
        for place in range(max(map(len, rows), default=0)):
            values = [row[place] if place < len(row) else None for row in rows]
            columns[f"{group}_{place + 1}"] = pl.Series(values, dtype=dtype)
    return pl.DataFrame(columns)


def _rows(part: Any, group: str, held: list[int | None] | None) -> tuple[tuple[float, ...], ...]:
    """The columns group_1.. as one row of values per token. held: how many count; None: those
    that are not null."""
    names = sorted(
        (name for name in part.columns if name.startswith(f"{group}_")),
        key=lambda name: int(name.rpartition("_")[2]),
    )
    rows = (
        [
            tuple(value for value in row if value is not None)
            for row in part.select(names).iter_rows()
        ]
        if names
        else []
    )
    if held is not None:
        return tuple(rows or [()] * len(part)) if held[0] is not None else ()
    return tuple(rows) if any(rows) else ()
