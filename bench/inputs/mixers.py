"""Random windows for the kernels inside a layer: the delta rule, the short convolution,
attention. Everything follows from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

Data = TypeVar("Data")
# key heads, heads, key size, value size
DELTA_SHAPES = (
    (2, 4, 16, 16),
    (3, 9, 10, 14),
    (1, 1, 5, 3),
    (1, 1, 64, 40),
)
CONV_SHAPES = ((4, 32), (3, 19), (2, 300), (4, 1))  # taps, channels

ATTENTION_SHAPES = ((4, 2, 16), (6, 3, 20), (3, 1, 7), (5, 1, 64))  # heads, kv heads, size


def to(data: Data, device: torch.device | str) -> Data:
    """A copy on a device."""
    parts = {f.name: getattr(data, f.name) for f in fields(data)}  # type: ignore[arg-type]
    return type(data)(
        **{
            name: part.to(device, copy=True) if isinstance(part, Tensor) else part
            for name, part in parts.items()
        }
    )


def random_groups(chance: random.Random, slots: int, bucket: int) -> tuple[Tensor, Tensor]:
    """starts [slots + 1], with groups of 0 to 8 rows, and counts [slots] of rows to keep, some
    of them larger than the group."""
    left, sizes = bucket, []
    for _ in range(slots):
        sizes.append(chance.randint(0, min(left, 8)))
        left -= sizes[-1]
    chance.shuffle(sizes)
    counts = [chance.choice((size, chance.randint(0, size), size + 1)) for size in sizes]
    starts = torch.tensor([0, *sizes]).cumsum(0)
    return starts.int(), torch.tensor(counts, dtype=torch.int32)


@dataclass(frozen=True)
class DeltaData:
    """Arguments of `gated_delta_verify` for one layer; kept and layers: of the commit, whose
    tables repeat this layer's."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor
    beta: Tensor
    states: Tensor
    starts: Tensor
    deltas: Tensor
    kept: Tensor
    layers: int = 2

    def verify_arguments(self) -> tuple[Tensor, ...]:
        return self.q, self.k, self.v, self.decay, self.beta, self.states, self.starts

    def commit_arguments(self) -> tuple[Tensor, ...]:
        tables = (
            torch.stack([x * (layer + 1) for layer in range(self.layers)])
            for x in (self.states, self.k, self.deltas, self.decay)
        )
        return (*tables, self.starts, self.kept)


def random_delta(
    seed: int,
    *,
    slots: int = 3,
    bucket: int = 8,
    shape: tuple[int, int, int, int] | None = None,
    starts: list[int] | None = None,
) -> DeltaData:
    chance = random.Random(seed)
    torch.manual_seed(seed)
    key_heads, heads, key_size, value_size = shape or DELTA_SHAPES[seed % len(DELTA_SHAPES)]
    borders, kept = random_groups(chance, slots, bucket)
    qk = normalize(torch.randn(bucket, 2, key_heads, key_size), dim=-1)
    # rows of a larger table, as the convolution's values are
    wide = torch.randn(bucket, 3 + heads * value_size)
    return DeltaData(
        q=qk[:, 0].contiguous(),
        k=qk[:, 1].contiguous(),
        v=wide[:, 3:].unflatten(1, (heads, value_size)),
        decay=torch.rand(bucket, heads),
        beta=torch.rand(bucket, heads),
        states=torch.randn(slots, heads, key_size, value_size),
        starts=borders if starts is None else torch.tensor(starts, dtype=torch.int32),
        deltas=torch.full((bucket, heads, value_size), torch.nan),
        kept=kept,
    )


@dataclass(frozen=True)
class ConvData:
    """Arguments of `causal_conv_verify` for one layer; kept and layers as in `DeltaData`."""

    x: Tensor
    weight: Tensor
    states: Tensor
    starts: Tensor
    kept: Tensor
    layers: int = 2

    def verify_arguments(self) -> tuple[Tensor, ...]:
        return self.x, self.weight, self.states, self.starts

    def commit_arguments(self) -> tuple[Tensor, ...]:
        states, inputs = (
            torch.stack([x * (layer + 1) for layer in range(self.layers)])
            for x in (self.states, self.x)
        )
        return states, inputs, self.starts, self.kept


def random_conv(
    seed: int, *, slots: int = 3, bucket: int = 8, shape: tuple[int, int] | None = None
) -> ConvData:
    torch.manual_seed(seed)
    taps, channels = shape or CONV_SHAPES[seed % len(CONV_SHAPES)]
    starts, kept = random_groups(random.Random(seed), slots, bucket)
    x = torch.randn(bucket, channels + 5)[:, :channels]
    return ConvData(
        x, torch.randn(taps, channels), torch.randn(slots, taps - 1, channels), starts, kept
    )


@dataclass(frozen=True)
class AttentionData:
    """Arguments of `window_attention`. Cache rows past a slot's length (and its window's, where
    k and v are None) hold NaN or huge numbers."""

    q: Tensor
    k: Tensor | None
    v: Tensor | None
    keys: Tensor
    values: Tensor
    positions: Tensor
    starts: Tensor
    counts: Tensor | None
    scale: float
    sliding: int | None
    softcap: float | None

    def tensors(self) -> tuple[Any, ...]:
        return (
            self.q,
            self.k,
            self.v,
            self.keys,
            self.values,
            self.positions,
            self.starts,
            self.counts,
        )

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": self.scale, "sliding": self.sliding, "softcap": self.softcap}

    def groups(self) -> list[tuple[int, int, int]]:
        """(slot, first row, rows that count)."""
        sizes = self.starts.diff()
        if self.counts is not None:
            sizes = sizes.minimum(self.counts)
        return [
            (slot, int(self.starts[slot]), int(size)) for slot, size in enumerate(sizes) if size > 0
        ]


def attention_data(
    seed: int,
    *,
    lengths: Sequence[int],
    sizes: Sequence[int],
    bucket: int = 8,
    shape: tuple[int, int, int] = (4, 2, 16),
    dtype: torch.dtype = torch.float32,
    counts: Sequence[int] | None = None,
    sliding: int | None = None,
    softcap: float | None = None,
    poison: float = torch.nan,
    capacity: int | None = None,
    writes: bool = True,
) -> AttentionData:
    """shape: heads, kv heads, size; sizes: rows of each slot's group, behind `lengths` tokens in
    its cache; writes: False = the window's keys and values are in the caches already."""
    torch.manual_seed(seed)
    heads, kv_heads, size = shape
    capacity = capacity or -(-(max(lengths) + max(sizes) + 1) // 64) * 64
    # q, k and v are cuts of one projection
    rows = torch.randn(bucket, heads + 2 * kv_heads, size).to(dtype)
    keys, values = (
        torch.full((len(lengths), kv_heads, capacity, size), poison, dtype=dtype) for _ in range(2)
    )
    for slot, length in enumerate(lengths):
        keys[slot, :, :length], values[slot, :, :length] = torch.randn(
            2, kv_heads, length, size
        ).to(dtype)
    places = [
        length + i for length, group in zip(lengths, sizes, strict=True) for i in range(group)
    ]
    q, k, v = rows.split_with_sizes([heads, kv_heads, kv_heads], 1)
    if not writes:
        of_row = [slot for slot, group in enumerate(sizes) for _ in range(group)]
        keys[of_row, :, places], values[of_row, :, places] = k[: len(places)], v[: len(places)]
    return AttentionData(
        q,
        k if writes else None,
        v if writes else None,
        keys,
        values,
        positions=torch.tensor(places + [0] * (bucket - len(places)), dtype=torch.int32),
        starts=torch.tensor([0, *sizes]).cumsum(0).int(),
        counts=None if counts is None else torch.tensor(counts, dtype=torch.int32),
        scale=size**-0.5,
        sliding=sliding,
        softcap=softcap,
    )


def random_attention(
    seed: int, *, most: int = 700, dtype: torch.dtype | None = None, **options: Any
) -> AttentionData:
    """Lengths 0, 1, around the borders of blocks and splits, and any other up to `most`."""
    chance = random.Random(seed)
    dtype = dtype or chance.choice((torch.float32, torch.float16))
    starts, counts = random_groups(chance, 3, 8)
    lengths = [chance.choice((0, 1, 63, 64, 509, 512, chance.randrange(most))) for _ in range(3)]
    given = {
        "shape": chance.choice(ATTENTION_SHAPES),
        "counts": chance.choice((None, counts.tolist())),
        "sliding": chance.choice((None, None, 1, 3, 100, 600)),
        "softcap": chance.choice((None, 2.0)),
        "poison": chance.choice((torch.nan, torch.finfo(dtype).max, -torch.finfo(dtype).max)),
        "writes": chance.choice((True, True, False)),
    }
    lengths = [min(length, most) for length in lengths]
    return attention_data(
        seed, lengths=lengths, sizes=starts.diff().tolist(), dtype=dtype, **(given | options)
    )


MAKERS: dict[str, Any] = {
    "gated_delta": random_delta,
    "causal_conv": random_conv,
    "attention": random_attention,
}
