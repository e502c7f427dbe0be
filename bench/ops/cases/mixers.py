"""Inside a layer: attention over the slots' caches, the gated delta rule and the short convolution,
verify and commit.

Groups and kept rows are those of a recorded window (`bench.inputs.recorded`); heads and sizes those
of a hybrid model. The oracle works in float64 (`bench.reference.mixer_oracle`); how far off a
result may be is CLOSE, because every implementation sums in an order of its own. The twins read
group borders on the host, so a GPU cannot replay them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from bench.inputs.mixers import (
    AttentionData,
    ConvData,
    DeltaData,
    attention_data,
    random_conv,
    random_delta,
    to,
)
from bench.inputs.recorded import layout
from bench.ops.registry import Shape, Work, implementation
from bench.reference import mixer_oracle, plain_mixers
from bench.reference.plain_mixers import Groups
from triton_kernels import attention, causal_conv, gated_delta, gated_delta_commit

CLOSE = {"fp32": 1e-5, "bf16": 2e-2}  # of a result's largest number
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SLOTS_ROWS = ((1, 8), (4, 8), (16, 32))
# tokens in a slot's cache; LONG: on a GPU
LENGTHS, LONG = (
    (128, 1_024, 4_096),
    (128, 1_024, 8_192, 65_536, 262_144),
)
MOST_TOKENS = 1 << 20  # of all slots together
HEADS = (16, 2, 128)  # of attention: heads, kv heads, size
# key heads, heads, key size, value size; taps, channels
DELTA, CONV, LAYERS = (
    (16, 32, 128, 128),
    (4, 8_192),
    2,
)
Call = Callable[[Any, Groups], Any]  # (data or arguments, groups)
FILL = 3e4  # what caches hold beyond a slot's tokens: a row that reads it is far off


def _sizes(slots: int, rows: int) -> tuple[list[int], list[int]]:
    """By slot: rows of its group in a recorded window, and how many of them are kept."""
    views, groups, accepted = layout(slots, rows)
    size = {group.slot: group.rows for group in groups}
    sizes = [size.get(view.slot, 0) for view in views]
    return sizes, [min(rows, 1 + drafts) for rows, drafts in zip(sizes, accepted, strict=True)]


def _groups(sizes: list[int], counts: list[int] | None = None, length: int = 0) -> Groups:
    firsts = accumulate(sizes, initial=0)
    return [
        (slot, first, rows, length)
        for slot, (first, rows) in enumerate(zip(firsts, counts or sizes, strict=False))
        if rows
    ]


def _attended(wide: bool) -> Iterator[Shape]:
    for dtype in DTYPES:
        for length in LONG if wide else LENGTHS:
            for slots, rows in SLOTS_ROWS if wide else SLOTS_ROWS[:2]:
                if slots * length <= MOST_TOKENS:
                    yield {"slots": slots, "rows": rows, "length": length, "dtype": dtype}


def _states(wide: bool) -> Iterator[Shape]:
    for slots, rows in SLOTS_ROWS if wide else SLOTS_ROWS[:2]:
        yield {"slots": slots, "rows": rows}


def _committed(wide: bool) -> Iterator[Shape]:
    for shape in _states(wide):
        yield {**shape, "layers": LAYERS}


def _doubled(*tensors: Tensor) -> list[Tensor]:
    return [tensor.double().cpu() for tensor in tensors]


def _nbytes(*tensors: Tensor) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _oracle_of(commit: Callable[..., list[Tensor]], data: DeltaData | ConvData) -> list[Tensor]:
    return commit(*data.commit_arguments())


# ---- attention


@lru_cache(maxsize=1)
def _attention_data(
    slots: int, rows: int, length: int, dtype: str
) -> tuple[AttentionData, list[Tensor]]:
    sizes, _ = _sizes(slots, rows)
    data = attention_data(
        0,
        lengths=[length] * slots,
        sizes=sizes,
        bucket=rows,
        shape=HEADS,
        dtype=DTYPES[dtype],
        poison=FILL,
    )
    written = [new for new in (data.k, data.v) if new is not None]
    return data, [mixer_oracle.attention(data), *_doubled(*written)]


def _attention(call: Call, replays: bool) -> Callable[[Shape, torch.device], Work]:
    def make(shape: Shape, device: torch.device) -> Work:
        data, (out, keys, values) = _attention_data(*shape.values())
        groups = _groups(_sizes(shape["slots"], shape["rows"])[0], length=shape["length"])
        real = sum(rows for _, _, rows, _ in groups)
        owner = torch.tensor([slot for slot, _, rows, _ in groups for _ in range(rows)])
        places = data.positions[:real].long()
        here = to(data, device)

        def read(found: Tensor) -> list[Tensor]:
            written = (
                cache[owner.to(device), :, places.to(device)] for cache in (here.keys, here.values)
            )
            return _doubled(found, *written)

        _, kv_heads, _, size = data.keys.shape
        tokens = sum(before + rows for *_, rows, before in groups)
        moved = (
            2 * (tokens + shape["rows"]) * kv_heads * size * data.keys.element_size()
            + 2 * data.q.nbytes
        )
        expected = [out, keys[:real], values[:real]]
        return Work(
            lambda: call(here, groups),
            expected,
            moved,
            read=read,
            close=CLOSE[shape["dtype"]],
            replays=replays,
        )

    return make


def _plain(call: Callable[..., Tensor]) -> Call:
    return lambda data, groups: call(
        groups, data.q, data.k, data.v, data.keys, data.values, scale=data.scale
    )


_ATTENTION: dict[str, Call] = {
    "wrapper": lambda data, _: attention.window_attention(*data.tensors(), **data.options),
    "twin": lambda data, _: attention.window_attention_torch(*data.tensors(), **data.options),
    "sdpa_by_slot": _plain(plain_mixers.sdpa_by_slot),
    "sdpa_padded": _plain(plain_mixers.sdpa_padded),
}
for _name, _call in _ATTENTION.items():
    implementation("attention", _name, shapes=_attended)(_attention(_call, _name != "twin"))


# ---- the gated delta rule


@lru_cache(maxsize=1)
def _delta_data(slots: int, rows: int) -> tuple[DeltaData, list[Tensor], list[Tensor]]:
    """With what verify and commit must give."""
    sizes, kept = _sizes(slots, rows)
    data = random_delta(
        0, slots=slots, bucket=rows, shape=DELTA, starts=[*accumulate(sizes, initial=0)]
    )
    out, deltas = mixer_oracle.delta_verify(data)
    data = replace(
        data, deltas=deltas.float(), kept=torch.tensor(kept, dtype=torch.int32), layers=LAYERS
    )
    return data, [out, deltas], _oracle_of(mixer_oracle.delta_commit, data)


def _delta_verify(call: Call, replays: bool) -> Callable[[Shape, torch.device], Work]:
    def make(shape: Shape, device: torch.device) -> Work:
        data, expected, _ = _delta_data(*shape.values())
        real = int(data.starts[-1])
        here = to(replace(data, deltas=torch.full_like(data.deltas, torch.nan)), device)

        def read(out: Tensor) -> list[Tensor]:
            return _doubled(out[:real], here.deltas[:real])

        moved = _nbytes(*data.verify_arguments()) + 2 * data.v.nbytes
        expected = [tensor[:real] for tensor in expected]
        groups = _groups(_sizes(*shape.values())[0])
        return Work(
            lambda: call(here, groups),
            expected,
            moved,
            read=read,
            close=CLOSE["fp32"],
            replays=replays,
        )

    return make


def _delta_commit(call: Call, replays: bool) -> Callable[[Shape, torch.device], Work]:
    def make(shape: Shape, device: torch.device) -> Work:
        sizes, kept = _sizes(shape["slots"], shape["rows"])
        data, _, expected = _delta_data(shape["slots"], shape["rows"])
        arguments: list[Tensor] = [
            tensor.to(device, copy=True) for tensor in data.commit_arguments()
        ]
        states = arguments[0]
        changed = sum(count > 0 for count in kept) * states[:, 0].nbytes
        moved = 2 * changed + sum(tensor.nbytes for tensor in arguments[1:])
        groups = _groups(sizes, kept)

        def read(_: None) -> list[Tensor]:
            return _doubled(states)

        return Work(
            lambda: call(arguments, groups),
            expected,
            moved,
            read=read,
            close=CLOSE["fp32"],
            replays=replays,
        )

    return make


_DELTA: dict[str, tuple[Call, Call]] = {
    "wrapper": (
        lambda data, _: gated_delta.gated_delta_verify(
            *data.verify_arguments(), deltas=data.deltas
        ),
        lambda arguments, _: gated_delta_commit.gated_delta_commit(*arguments),
    ),
    "twin": (
        lambda data, _: gated_delta.gated_delta_verify_torch(
            *data.verify_arguments(), deltas=data.deltas
        ),
        lambda arguments, _: gated_delta_commit.gated_delta_commit_torch(*arguments),
    ),
    "plain_torch": (
        lambda data, groups: plain_mixers.delta_verify(
            groups, *data.verify_arguments()[:-1], deltas=data.deltas
        ),
        lambda arguments, groups: plain_mixers.delta_commit(groups, *arguments[:4]),
    ),
}
for _name, (_verify, _commit) in _DELTA.items():
    implementation("delta_verify", _name, shapes=_states)(_delta_verify(_verify, _name != "twin"))
    implementation("delta_commit", _name, shapes=_committed)(
        _delta_commit(_commit, _name != "twin")
    )


# ---- the short convolution


@lru_cache(maxsize=1)
def _conv_data(slots: int, rows: int) -> tuple[ConvData, list[Tensor], list[Tensor]]:
    sizes, kept = _sizes(slots, rows)
    starts = torch.tensor([*accumulate(sizes, initial=0)], dtype=torch.int32)
    data = replace(
        random_conv(0, slots=slots, bucket=rows, shape=CONV),
        starts=starts,
        kept=torch.tensor(kept, dtype=torch.int32),
    )
    return data, mixer_oracle.conv_verify(data), _oracle_of(mixer_oracle.conv_commit, data)


def _conv_verify(call: Call, replays: bool) -> Callable[[Shape, torch.device], Work]:
    def make(shape: Shape, device: torch.device) -> Work:
        data, (out,), _ = _conv_data(*shape.values())
        here, real = to(data, device), int(data.starts[-1])
        groups = _groups(_sizes(*shape.values())[0])
        moved = _nbytes(*data.verify_arguments()) + data.x.nbytes
        return Work(
            lambda: call(here, groups),
            [out[:real]],
            moved,
            read=lambda found: _doubled(found[:real]),
            close=CLOSE["fp32"],
            replays=replays,
        )

    return make


def _conv_commit(call: Call, replays: bool) -> Callable[[Shape, torch.device], Work]:
    def make(shape: Shape, device: torch.device) -> Work:
        sizes, kept = _sizes(shape["slots"], shape["rows"])
        data, _, expected = _conv_data(shape["slots"], shape["rows"])
        arguments: list[Any] = [tensor.to(device, copy=True) for tensor in data.commit_arguments()]
        states = arguments[0]
        groups = _groups(sizes, kept)
        return Work(
            lambda: call(arguments, groups),
            expected,
            2 * states.nbytes,
            read=lambda _: _doubled(states),
            close=CLOSE["fp32"],
            replays=replays,
        )

    return make


_CONV: dict[str, tuple[Call, Call]] = {
    "wrapper": (
        lambda data, _: causal_conv.causal_conv_verify(*data.verify_arguments()),
        lambda arguments, _: causal_conv.causal_conv_commit(*arguments),
    ),
    "twin": (
        lambda data, _: causal_conv.causal_conv_verify_torch(*data.verify_arguments()),
        lambda arguments, _: causal_conv.causal_conv_commit_torch(*arguments),
    ),
    "plain_torch": (
        lambda data, groups: plain_mixers.conv_verify(groups, *data.verify_arguments()[:-1]),
        lambda arguments, groups: plain_mixers.conv_commit(groups, *arguments[:2]),
    ),
}
for _name, (_verify, _commit) in _CONV.items():
    implementation("conv_verify", _name, shapes=_states)(_conv_verify(_verify, _name != "twin"))
    implementation("conv_commit", _name, shapes=_committed)(_conv_commit(_commit, _name != "twin"))
