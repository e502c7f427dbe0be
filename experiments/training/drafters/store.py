"""Rows of collected text on disk: memory-mapped; what is written counts once it is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from experiments.io import write_whole
from experiments.training.trainable import TargetRows

# numpy has no bf16: its bits
TYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.bfloat16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
}


@dataclass(frozen=True)
class StoredRow:
    """What is known of a row besides its tensors."""

    number: int  # of its prompt
    kind: str
    held_out: bool
    begin: int  # its first token that the target wrote; of given text its length


class Text(NamedTuple):
    tokens: Tensor  # [length] int32
    hidden: Tensor  # [length - 1, hidden]
    kv: dict[str, Tensor]  # [2, kv heads, length - 1, head size]


class Store:
    """The tensors and what is known of each row.

    tokens: [rows, length] int32
    hidden: [rows, length - 1, hidden] bf16, the target's rows after its last norm
    kv: by layer type, keys and values [rows, 2, kv heads, length - 1, head size] bf16, rotated

    Built from:

    about: what it was collected with; ValueError where a folder holds another collection, or what
        cannot be read
    kv: heads and head size of the layer types that are kept
    """

    def __init__(
        self,
        folder: Path,
        about: Mapping[str, Any],
        *,
        rows: int,
        length: int,
        hidden: int,
        kv: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self.folder, self._about = folder, dict(about)
        folder.mkdir(parents=True, exist_ok=True)
        state = self._read()
        if state is not None and state["about"] != self._about:
            raise ValueError(f"{folder} holds texts that were collected with other settings")
        self._maps: list[Any] = []
        self.rows: list[StoredRow] = state["rows"] if state else []
        self.tokens = self._map("tokens.bin", (rows, length), torch.int32)
        self.hidden = self._map("hidden.bin", (rows, length - 1, hidden), torch.bfloat16)
        self.kv = {
            kind: self._map(f"{kind}.bin", (rows, 2, heads, length - 1, size), torch.bfloat16)
            for kind, (heads, size) in (kv or {}).items()
        }

    def append(self, rows: list[StoredRow], texts: list[Text]) -> None:
        """They count once all of them are on disk."""
        for place, text in enumerate(texts, len(self.rows)):
            self.tokens[place], self.hidden[place] = text.tokens, text.hidden
            for kind, both in text.kv.items():
                self.kv[kind][place] = both
        for mapped in self._maps:
            mapped.flush()
        self.rows += rows
        known = {"about": self._about, "rows": [asdict(row) for row in self.rows]}
        write_whole(self.folder / "rows.json", json.dumps(known).encode())

    def texts(self, places: Tensor) -> tuple[Tensor, TargetRows]:
        """ids [texts, length - 1] int64 and the target's rows of them.

        places: [texts] int64. The target's pick after the last token is in `tokens`.
        """
        kv = {
            kind: (both[places, 0].float(), both[places, 1].float())
            for kind, both in self.kv.items()
        }
        return self.tokens[places, :-1].long(), TargetRows(self.hidden[places], kv)

    def chosen(self, *, held_out: bool, kind: str | None = None, own: bool | None = None) -> Tensor:
        """Places of the rows that are so, in the order of their prompts, whichever ended first."""
        length, places = (
            self.tokens.shape[1],
            sorted(range(len(self.rows)), key=lambda place: self.rows[place].number),
        )
        found = [
            place
            for place in places
            if self.rows[place].held_out is held_out and kind in (None, self.rows[place].kind)
        ]
        return torch.tensor(
            [place for place in found if own in (None, self.rows[place].begin < length)],
            dtype=torch.long,
        )

    def _map(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        file = self.folder / name
        mode: Literal["r+", "w+"] = "r+" if file.is_file() else "w+"
        mapped = np.memmap(file, dtype=TYPES[dtype], mode=mode, shape=shape)
        self._maps.append(mapped)
        return torch.from_numpy(mapped).view(dtype)

    def _read(self) -> dict[str, Any] | None:
        file = self.folder / "rows.json"
        if not file.is_file():
            return None
        try:
            state = json.loads(file.read_text(encoding="utf-8"))
            return {"about": state["about"], "rows": [StoredRow(**row) for row in state["rows"]]}
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            raise ValueError(f"{file} cannot be read ({wrong})") from wrong
