"""The pinned text: documents by kind, split by file into trained-on and held-out ones."""

from __future__ import annotations

import hashlib
import json
import lzma
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Generator, Tensor

from experiments.assets import CORPUS
from experiments.training.tokenizer import END

KINDS = ("code", "prose")
# one source in so many is held out; of the others one in 20
HELD_OUT = {
    "language-reference": 3,
    "chatterbot": 3,
}


@dataclass(frozen=True)
class Document:
    source: str  # package and file
    licence: str
    text: str

    @property
    def held_out(self) -> bool:
        share = HELD_OUT.get(self.source.split("/")[0], 20)
        return int(hashlib.sha256(self.source.encode()).hexdigest(), 16) % share == 0


def packed(kind: str) -> Path:
    return CORPUS / f"{kind}.jsonl.xz"


def documents(kind: str, characters: int | None = None) -> list[Document]:
    """In their pinned order; characters: the first documents that hold so many."""
    found: list[Document] = []
    total = 0
    with lzma.open(packed(kind), "rt", encoding="utf-8") as lines:
        for line in lines:
            if characters is not None and total >= characters:
                break
            found.append(Document(**json.loads(line)))
            total += len(found[-1].text)
    return found


def encode(texts: list[str], tokenizer: Tokenizer) -> Tensor:
    """All texts in one stream, each closed by the end token: [tokens] int64."""
    end = tokenizer.token_to_id(END)
    return torch.tensor(
        [token for text in tokenizer.encode_batch(texts) for token in (*text.ids, end)]
    )


@dataclass(frozen=True)
class Corpus:
    """Token streams by kind: [tokens] int64."""

    train: dict[str, Tensor]
    held_out: dict[str, Tensor]

    @classmethod
    def load(cls, tokenizer: Tokenizer, characters: int | None = None) -> Corpus:
        """characters: of each kind, None = all."""
        train, held_out = {}, {}
        for kind in KINDS:
            found = documents(kind, characters)
            train[kind] = encode([one.text for one in found if not one.held_out], tokenizer)
            held_out[kind] = encode([one.text for one in found if one.held_out], tokenizer)
        return cls(train, held_out)


class Windows:
    """Endless batches [batch, length] from several streams in fixed shares.

    Each stream is walked in a shuffled order of its whole windows: no window comes twice before all
    came once. Its place is `seen`, so a resumed run continues where it was.
    """

    def __init__(
        self, streams: dict[str, Tensor], shares: dict[str, float], length: int, seed: int
    ) -> None:
        self.streams, self.shares, self.length, self.seed = streams, shares, length, seed
        self.seen = dict.fromkeys(streams, 0)  # windows taken from each
        self._order: dict[str, tuple[int, Tensor]] = {}

    def take(self, batch: int) -> Tensor:
        counts = {kind: round(batch * share) for kind, share in self.shares.items()}
        first = next(iter(counts))
        counts[first] += batch - sum(counts.values())
        return torch.stack(
            [self._next(kind) for kind, count in counts.items() for _ in range(count)]
        )

    def _next(self, kind: str) -> Tensor:
        stream, length = self.streams[kind], self.length
        rows = stream.ndim == 2  # texts of just this length
        # a window less, to leave room for the epoch's offset
        whole = len(stream) if rows else (len(stream) - length) // length
        epoch, place = divmod(self.seen[kind], whole)
        self.seen[kind] += 1
        if self._order.get(kind, (-1, None))[0] != epoch:
            random = Generator().manual_seed(self.seed * 1_000_003 + epoch)
            # windows are cut elsewhere in every epoch
            offset = 0 if rows else int(torch.randint(length, (1,), generator=random))
            self._order[kind] = epoch, torch.randperm(whole, generator=random) * length + offset
        start = int(self._order[kind][1][place])
        return stream[start // length] if rows else stream[start : start + length]
