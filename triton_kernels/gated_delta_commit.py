"""The gated delta rule's commit: the rows that are kept move the recurrent states on, with the
factors that `gated_delta_verify` left (see `triton_kernels.gated_delta`)."""

from __future__ import annotations

import torch
from torch import Tensor

from triton_kernels.checks import require
from triton_kernels.gated_delta import FP32, move_state, state_tile, tiles_of
from triton_kernels.launch import UNFUSED, cpu_kernels, kernel, operation, tl
from triton_kernels.layout import host_groups

TILE = (2048, 4)  # elements of a state that a program holds, and its warps


@kernel
def gated_delta_commit_kernel(
    states_ptr,
    keys_ptr,
    deltas_ptr,
    decays_ptr,
    starts_ptr,
    kept_ptr,
    keys_layer: tl.int64,
    deltas_layer: tl.int64,
    decays_layer: tl.int64,
    slots,
    heads,
    share,
    key_size,
    value_size,
    KEY_TILE: tl.constexpr,
    VALUE_TILE: tl.constexpr,
):
    """Grid (heads * value tiles, slots, layers). A slot that keeps nothing is not even read."""
    slot, layer = tl.program_id(1), tl.program_id(2)
    first = tl.load(starts_ptr + slot)
    last = tl.minimum(tl.load(starts_ptr + slot + 1), first + tl.load(kept_ptr + slot))
    if first < last:
        head, column, offsets, inside = state_tile(
            heads, key_size, value_size, KEY_TILE, VALUE_TILE
        )
        place = (
            states_ptr
            + (layer.to(tl.int64) * slots + slot) * (heads * key_size * value_size)
            + offsets
        )
        state = tl.load(place, mask=inside, other=0.0)
        key = tl.arange(0, KEY_TILE)
        key_heads = heads // share
        for row in range(first, last):
            k_row = keys_ptr + layer * keys_layer + (row * key_heads + head // share) * key_size
            k = tl.load(k_row + key, mask=key < key_size, other=0.0)
            delta_row = deltas_ptr + layer * deltas_layer + (row * heads + head) * value_size
            delta = tl.load(delta_row + column, mask=column < value_size, other=0.0)
            state = (
                state * tl.load(decays_ptr + layer * decays_layer + row * heads + head)
                + k[:, None] * delta[None]
            )
        tl.debug_barrier()  # of a small tile several threads hold, and have read, the same element
        tl.store(place, state, mask=inside)


def _launch(
    states: Tensor, keys: Tensor, deltas: Tensor, decays: Tensor, starts: Tensor, kept: Tensor
) -> None:
    _check(states, keys, deltas, decays, starts, kept)
    named = {
        "states": states,
        "keys": keys,
        "deltas": deltas,
        "decays": decays,
        "starts": starts,
        "kept": kept,
    }
    for name, tensor in named.items():
        require(name, tensor, shape=[None] * tensor.ndim, dtypes=[tensor.dtype], dense=True)
    layers, slots, heads, key_size, value_size = states.shape
    if states.numel():
        tiles = tiles_of(key_size, value_size, *TILE)
        gated_delta_commit_kernel[heads * -(-value_size // tiles["VALUE_TILE"]), slots, layers](
            *named.values(),
            *(x.stride(0) for x in (keys, deltas, decays)),
            slots,
            heads,
            heads // keys.shape[2],
            key_size,
            value_size,
            **tiles,
            **UNFUSED,
        )


def gated_delta_commit_torch(
    states: Tensor, keys: Tensor, deltas: Tensor, decays: Tensor, starts: Tensor, kept: Tensor
) -> None:
    """The first kept[slot] rows of each group move the states on, in place, for all layers at once.

    states: [layers, slots, heads, key size, value size]; of the window verified last: keys [layers,
    rows, key heads, key size], deltas [layers, rows, heads, value size], decays [layers, rows,
    heads]; all fp32. starts: [slots + 1], kept: [slots] int32. Raises ValueError, one line, for a
    wrong shape, dtype or device.
    """
    _check(states, keys, deltas, decays, starts, kept)
    heads, key_heads = states.shape[2], keys.shape[2]
    split = (key_heads, heads // key_heads)
    for slot, first, count in host_groups(starts, kept):
        state = states[:, slot].unflatten(1, split)
        for row in range(first, first + count):
            key = keys[:, row, :, None, :, None]
            move_state(
                state,
                key,
                decays[:, row].unflatten(1, split)[..., None, None],
                deltas[:, row].unflatten(1, split),
                out=state,
            )


def _check(
    states: Tensor, keys: Tensor, deltas: Tensor, decays: Tensor, starts: Tensor, kept: Tensor
) -> None:
    require("states", states, shape=[None] * 5, dtypes=FP32)
    layers, slots, heads, key_size, value_size = states.shape
    require("keys", keys, shape=[layers, None, None, key_size], dtypes=FP32, like=states)
    rows = keys.shape[1]
    require("deltas", deltas, shape=[layers, rows, heads, value_size], dtypes=FP32, like=states)
    require("decays", decays, shape=[layers, rows, heads], dtypes=FP32, like=states)
    require("starts", starts, shape=[slots + 1], dtypes=[torch.int32], like=states)
    require("kept", kept, shape=[slots], dtypes=[torch.int32], like=states)


def _on_cpu(
    states: Tensor, keys: Tensor, deltas: Tensor, decays: Tensor, starts: Tensor, kept: Tensor
) -> None:
    tensors = (states, keys, deltas, decays, starts, kept)
    kernels = cpu_kernels("gated_delta")
    if kernels is None or not all(x.is_contiguous() for x in tensors):
        return gated_delta_commit_torch(*tensors)
    _check(*tensors)
    return kernels.gated_delta_commit_cpu(*tensors)


_operation = operation(
    "gated_delta_commit(Tensor(a!) states, Tensor keys, Tensor deltas, Tensor decays, Tensor "
    "starts, Tensor kept) -> ()",
    cpu=_on_cpu,
    cuda=_launch,
)


def gated_delta_commit(
    states: Tensor, keys: Tensor, deltas: Tensor, decays: Tensor, starts: Tensor, kept: Tensor
) -> None:
    """See `gated_delta_commit_torch`. One launch to a capture. On a GPU it also refuses tensors
    with gaps in memory."""
    _operation(states, keys, deltas, decays, starts, kept)
