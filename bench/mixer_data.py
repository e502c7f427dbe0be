"""Random windows for the kernels inside a layer: the delta rule, the short convolution, attention. Everything follows from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

Data = TypeVar("Data")
DELTA_SHAPES = ((2, 4, 16, 16), (3, 9, 10, 14), (1, 1, 5, 3), (1, 1, 64, 40))  # key heads, heads, key size, value size
CONV_SHAPES = ((4, 32), (3, 19), (2, 300), (4, 1))  # taps, channels


def to(data: Data, device: torch.device | str) -> Data:
    """A copy on a device."""
    parts = {f.name: getattr(data, f.name) for f in fields(data)}  # type: ignore[arg-type]
    return type(data)(**{name: part.to(device, copy=True) if isinstance(part, Tensor) else part for name, part in parts.items()})


def random_groups(chance: random.Random, slots: int, bucket: int) -> tuple[Tensor, Tensor]:
    """starts [slots + 1], with groups of 0 to 8 rows, and counts [slots] of rows to keep, some of them larger than the group."""
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
    """Arguments of `gated_delta_verify` for one layer; kept and layers: of the commit, whose tables repeat this layer's."""

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
        tables = (torch.stack([x * (layer + 1) for layer in range(self.layers)]) for x in (self.states, self.k, self.deltas, self.decay))
        return (*tables, self.starts, self.kept)


def random_delta(
    seed: int, *, slots: int = 3, bucket: int = 8, shape: tuple[int, int, int, int] | None = None, starts: list[int] | None = None
) -> DeltaData:
    chance = random.Random(seed)
    torch.manual_seed(seed)
    key_heads, heads, key_size, value_size = shape or DELTA_SHAPES[seed % len(DELTA_SHAPES)]
    borders, kept = random_groups(chance, slots, bucket)
    qk = normalize(torch.randn(bucket, 2, key_heads, key_size), dim=-1)
    wide = torch.randn(bucket, 3 + heads * value_size)  # rows of a larger table, as the convolution's values are
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
        states, inputs = (torch.stack([x * (layer + 1) for layer in range(self.layers)]) for x in (self.states, self.x))
        return states, inputs, self.starts, self.kept


def random_conv(seed: int, *, slots: int = 3, bucket: int = 8, shape: tuple[int, int] | None = None) -> ConvData:
    torch.manual_seed(seed)
    taps, channels = shape or CONV_SHAPES[seed % len(CONV_SHAPES)]
    starts, kept = random_groups(random.Random(seed), slots, bucket)
    x = torch.randn(bucket, channels + 5)[:, :channels]
    return ConvData(x, torch.randn(taps, channels), torch.randn(slots, taps - 1, channels), starts, kept)


MAKERS: dict[str, Any] = {"gated_delta": random_delta, "causal_conv": random_conv}
