"""The operations inside a layer in plain torch, a loop over slots or a padded batch: what one would
write without a kernel.

Group borders and lengths are the host's (`Groups`), so nothing here can be replayed at another
layout or length.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import conv1d, scaled_dot_product_attention, silu

# slot, first row, rows, tokens in its cache before them
Groups = Sequence[tuple[int, int, int, int]]


def _write(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, groups: Groups) -> None:
    for slot, first, rows, before in groups:
        keys[slot, :, before : before + rows] = k[first : first + rows].transpose(0, 1)
        values[slot, :, before : before + rows] = v[first : first + rows].transpose(0, 1)


def sdpa_by_slot(
    groups: Groups, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, *, scale: float
) -> Tensor:
    """torch's attention, a call a slot over what the slot holds. Shapes as `window_attention`
    takes them."""
    _write(k, v, keys, values, groups)
    out = torch.zeros_like(q)
    for slot, first, rows, before in groups:
        end = before + rows
        seen = torch.ones(rows, end, dtype=torch.bool, device=q.device).tril(before)
        mine = q[first : first + rows].transpose(0, 1)[None]
        cache = (keys[slot, None, :, :end], values[slot, None, :, :end])
        attended = scaled_dot_product_attention(
            mine, *cache, attn_mask=seen, scale=scale, enable_gqa=True
        )
        out[first : first + rows] = attended[0].transpose(0, 1)
    return out


def sdpa_padded(
    groups: Groups, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, *, scale: float
) -> Tensor:
    """torch's attention in one call: every slot padded to the largest group and the longest
    cache."""
    _write(k, v, keys, values, groups)
    most, end = (
        max(rows for _, _, rows, _ in groups),
        max(before + rows for *_, rows, before in groups),
    )
    batch, device = len(groups), q.device
    wide = torch.zeros(batch, most, *q.shape[1:], dtype=q.dtype, device=device)
    last = torch.zeros(batch, most, 1, dtype=torch.long, device=device)
    for place, (_, first, rows, before) in enumerate(groups):
        wide[place, :rows] = q[first : first + rows]
        last[place, :, 0] = before + torch.arange(most, device=device)
    slots = [slot for slot, *_ in groups]
    whole = slots == list(range(slots[0], slots[0] + batch))
    held, fed = (
        cache[slots[0] : slots[-1] + 1, :, :end]
        if whole
        else torch.stack([cache[slot, :, :end] for slot in slots])
        for cache in (keys, values)
    )
    seen = (torch.arange(end, device=device) <= last)[:, None]  # [batch, 1, most, end]
    attended = scaled_dot_product_attention(
        wide.transpose(1, 2), held, fed, attn_mask=seen, scale=scale, enable_gqa=True
    )
    out = torch.zeros_like(q)
    for place, (_, first, rows, _) in enumerate(groups):
        out[first : first + rows] = attended[place, :, :rows].transpose(0, 1)
    return out


def delta_verify(
    groups: Groups,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor,
    states: Tensor,
    *,
    deltas: Tensor,
) -> Tensor:
    """The recurrence, row by row. Shapes as `gated_delta_verify` takes them."""
    out, share = torch.zeros_like(v), v.shape[1] // k.shape[1]
    for slot, first, rows, _ in groups:
        state = states[slot]
        for row in range(first, first + rows):
            key, query = (x[row].repeat_interleave(share, 0) for x in (k, q))  # [heads, key size]
            state = state * decay[row, :, None, None]
            deltas[row] = beta[row, :, None] * (v[row] - (key[:, None] @ state)[:, 0])
            state = state + key[..., None] * deltas[row, :, None]
            out[row] = (query[:, None] @ state)[:, 0]
    return out


def delta_commit(
    groups: Groups, states: Tensor, keys: Tensor, deltas: Tensor, decays: Tensor
) -> None:
    """The same recurrence over the kept rows, which the groups are here, of all layers at once."""
    share = states.shape[2] // keys.shape[2]
    for slot, first, rows, _ in groups:
        for row in range(first, first + rows):
            key = keys[:, row].repeat_interleave(share, 1)  # [layers, heads, key size]
            states[:, slot] = (
                states[:, slot] * decays[:, row, :, None, None]
                + key[..., None] * deltas[:, row, :, None]
            )


def conv_verify(groups: Groups, x: Tensor, weight: Tensor, states: Tensor) -> Tensor:
    """torch's grouped convolution, a call a slot. Shapes as `causal_conv_verify` takes them."""
    out, taps = torch.zeros_like(x), weight.T[:, None]  # [channels, 1, taps]
    for slot, first, rows, _ in groups:
        # [1, channels, past + rows]
        line = torch.cat([states[slot], x[first : first + rows]]).T[None]
        out[first : first + rows] = silu(conv1d(line, taps, groups=len(taps)))[0].T
    return out


def conv_commit(groups: Groups, states: Tensor, inputs: Tensor) -> None:
    """The last inputs after the kept rows, which the groups are here."""
    past = states.shape[2]
    for slot, first, rows, _ in groups:
        states[:, slot] = torch.cat([states[:, slot], inputs[:, first : first + rows]], 1)[
            :, -past:
        ]
