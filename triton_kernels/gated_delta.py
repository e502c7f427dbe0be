"""The gated delta rule: per head a matrix S [key size, value size] that a row decays, corrects at
its key, and reads by its query.

S_i = decay_i S_(i-1) + k_i (x) delta_i,   delta_i = beta_i (v_i - decay_i S_(i-1)^T k_i),   out_i =
S_i^T q_i

The factors k, delta and decay of a row are all that it takes to move S on: `verify` leaves them,
`commit` applies those of the kept rows with the same operations in the same order, so a committed
state has the bits of one-row decoding. On a GPU a program holds some columns of one head's state in
registers, reads it once for all rows of a group, and finds group borders and kept counts in the
device's tables.
"""

from __future__ import annotations

import torch
from torch import Tensor

from triton_kernels.checks import require
from triton_kernels.launch import (
    UNFUSED,
    cpu_kernels,
    jit,
    kernel,
    operation,
    power_of_two,
    row_by_row,
    tl,
)
from triton_kernels.layout import depths, host_groups

FP32 = [torch.float32]
CHUNK = 64
TILE = (1024, 1)  # elements of a state that a program holds, and its warps


@jit
def state_tile(heads, key_size, value_size, KEY_TILE: tl.constexpr, VALUE_TILE: tl.constexpr):
    """Which columns of which head's state a program holds: head, its column numbers, offsets in
    a slot's states, mask."""
    tiles = tl.cdiv(value_size, VALUE_TILE)
    head = tl.program_id(0) // tiles
    key = tl.arange(0, KEY_TILE)
    column = tl.program_id(0) % tiles * VALUE_TILE + tl.arange(0, VALUE_TILE)
    offsets = (head * key_size + key)[:, None] * value_size + column[None]
    return head, column, offsets, (key < key_size)[:, None] & (column < value_size)[None]


@kernel
def gated_delta_verify_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    decay_ptr,
    beta_ptr,
    states_ptr,
    starts_ptr,
    deltas_ptr,
    out_ptr,
    q_stride,
    k_stride,
    v_stride,
    rows,
    slots,
    heads,
    share,
    key_size,
    value_size,
    KEY_TILE: tl.constexpr,
    VALUE_TILE: tl.constexpr,
):
    """Grid (heads * value tiles, slots). The last slot's programs also clear the padding."""
    slot = tl.program_id(1)
    first, last = tl.load(starts_ptr + slot), tl.load(starts_ptr + slot + 1)
    head, column, offsets, inside = state_tile(heads, key_size, value_size, KEY_TILE, VALUE_TILE)
    wanted = column < value_size
    width = heads * value_size
    if first < last:
        state = tl.load(
            states_ptr + slot.to(tl.int64) * (width * key_size) + offsets, mask=inside, other=0.0
        )
        key = tl.arange(0, KEY_TILE)
        at = head // share * key_size + key
        for row in range(first, last):
            q = tl.load(q_ptr + row * q_stride + at, mask=key < key_size, other=0.0)
            k = tl.load(k_ptr + row * k_stride + at, mask=key < key_size, other=0.0)
            v = tl.load(v_ptr + row * v_stride + head * value_size + column, mask=wanted, other=0.0)
            decay, beta = (
                tl.load(decay_ptr + row * heads + head),
                tl.load(beta_ptr + row * heads + head),
            )
            delta = v * beta - tl.sum(state * (k * (decay * beta))[:, None], 0)
            state = state * decay + k[:, None] * delta[None]
            place = row * width + head * value_size + column
            tl.store(deltas_ptr + place, delta, mask=wanted)
            tl.store(out_ptr + place, tl.sum(state * q[:, None], 0), mask=wanted)
    if slot == slots - 1:
        for row in range(last, rows):
            tl.store(
                out_ptr + row * width + head * value_size + column,
                tl.zeros_like(column).to(tl.float32),
                mask=wanted,
            )


def tiles_of(key_size: int, value_size: int, elements: int, warps: int) -> dict[str, int]:
    key_tile = power_of_two(key_size)
    value_tile = min(power_of_two(value_size), max(1, elements // key_tile))
    return {"KEY_TILE": key_tile, "VALUE_TILE": value_tile, "num_warps": warps}


def _launch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor,
    states: Tensor,
    starts: Tensor,
    *,
    deltas: Tensor,
) -> Tensor:
    _check(q, k, v, decay, beta, states, starts, deltas)
    for name, tensor in (
        ("decay", decay),
        ("beta", beta),
        ("states", states),
        ("starts", starts),
        ("deltas", deltas),
    ):
        require(name, tensor, shape=[None] * tensor.ndim, dtypes=[tensor.dtype], dense=True)
    (rows, heads, value_size), slots, (key_heads, key_size) = v.shape, states.shape[0], k.shape[1:]
    out = torch.empty(v.shape, dtype=v.dtype, device=v.device) if slots else torch.zeros_like(v)
    if rows and slots:
        tiles = tiles_of(key_size, value_size, *TILE)
        gated_delta_verify_kernel[heads * -(-value_size // tiles["VALUE_TILE"]), slots](
            *(_rows_of(name, x) for name, x in (("q", q), ("k", k), ("v", v))),
            decay,
            beta,
            states,
            starts,
            deltas,
            out,
            *(x.stride(0) for x in (q, k, v)),
            rows,
            slots,
            heads,
            heads // key_heads,
            key_size,
            value_size,
            **tiles,
            **UNFUSED,
        )
    return out


def _rows_of(name: str, x: Tensor) -> Tensor:
    """x [rows, heads, size] as [rows, heads * size], whatever the stride of its rows."""
    if x[:1].is_contiguous():
        return x.view(len(x), -1)
    raise ValueError(f"{name} has strides {list(x.stride())}, expected rows that are contiguous")


def gated_delta_verify_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor,
    states: Tensor,
    starts: Tensor,
    *,
    deltas: Tensor,
) -> Tensor:
    """Of a window's rows: [rows, heads, value size], 0 in padding; the deltas of the rows that
    count are left in `deltas`.

    q (scaled), k (normalised): [rows, key heads, key size]; v, deltas: [rows, heads, value size];
    decay, beta: [rows, heads]; states: [slots, heads, key size, value size], not changed; all fp32;
    consecutive heads share a key head. starts: [slots + 1] int32 as from `pack_window`. Raises
    ValueError, one line, for a wrong shape, dtype or device.
    """
    _check(q, k, v, decay, beta, states, starts, deltas)
    heads, value_size = v.shape[1:]
    key_heads, key_size = k.shape[1:]
    groups = host_groups(starts)
    out = torch.zeros_like(v)
    if not groups:
        return out
    order = depths(groups, q.device)
    real = len(order.rows)

    def arranged(x: Tensor) -> Tensor:
        return x[:real] if order.ordered else x.index_select(0, order.rows)

    # heads are split [key heads, share], the key's part broadcasts over the share
    share = heads // key_heads
    # [R, key heads, 1, key size, 1]
    qs, ks = (
        arranged(q)[:, :, None, :, None],
        arranged(k)[:, :, None, :, None],
    )
    decays = arranged(decay).view(real, key_heads, share, 1, 1)
    betas = arranged(beta).view(real, key_heads, share, 1, 1)
    fetch = ks * (decays * betas)  # [R, key heads, share, key size, 1]
    wanted = arranged(v).view(real, key_heads, share, value_size) * betas[..., 0]
    found = torch.empty_like(wanted)  # the deltas
    after = torch.empty(
        real, key_heads, share, key_size, value_size, dtype=v.dtype, device=v.device
    )
    state = states.index_select(0, order.slots).unflatten(1, (key_heads, share))
    begin = 0
    for groups_here in order.sizes:
        here = slice(begin, begin + groups_here)
        begin += groups_here
        state = state[:groups_here]
        torch.sub(wanted[here], (state * fetch[here]).sum(-2), out=found[here])
        move_state(state, ks[here], decays[here], found[here], out=after[here])
        state = after[here]
    read = (after * qs).sum(-2).view(real, heads, value_size)
    if order.ordered:
        out[:real] = read
        deltas[:real] = found.view(real, heads, value_size)
    else:
        out[order.rows] = read
        deltas[order.rows] = found.view(real, heads, value_size)
    return out


def move_state(state: Tensor, key: Tensor, decay: Tensor, delta: Tensor, *, out: Tensor) -> None:
    """One row. Three exact roundings, no fused multiply-add: the same bits in every shape."""
    rise = key * delta[..., None, :]
    torch.add(torch.mul(state, decay, out=out), rise, out=out)


def gated_delta_prefill_torch(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor
) -> Tensor:
    """A chunk of a prompt: [n, heads, value size]. state [heads, key size, value size] is moved on
    in place.

    The other shapes are those of `gated_delta_verify`, with n rows, all fp32; log_decay: [n,
    heads], <= 0. CHUNK rows at a time: within them the deltas solve a unit triangular system.
    Raises ValueError, one line, for a wrong shape, dtype or device.
    """
    _check_rows(q, k, v, log_decay, beta)
    count, heads, value_size = v.shape
    key_heads, key_size = k.shape[1:]
    require("state", state, shape=[heads, key_size, value_size], dtypes=FP32, like=q)
    share = heads // key_heads
    q, k = (x.transpose(0, 1).repeat_interleave(share, 0) for x in (q, k))  # [heads, n, key size]
    v = v.transpose(0, 1)
    log_decay, beta = log_decay.t(), beta.t()  # [heads, n]
    parts = []
    # a slot's view may be aligned otherwise than another slot's, and a product's last bits depend
    # on that
    now = state.clone()
    for begin in range(0, count, CHUNK):
        here = slice(begin, begin + CHUNK)
        qs, ks, vs, betas = q[:, here], k[:, here], v[:, here], beta[:, here, None]
        # log of the decay from the chunk's beginning to each row
        fall = log_decay[:, here].cumsum(1)
        later = torch.ones(fall.shape[1], fall.shape[1], dtype=torch.bool, device=q.device).triu(1)
        # [heads, rows, earlier rows]
        between = (fall[:, :, None] - fall[:, None]).masked_fill(later, float("-inf")).exp()
        since = fall.exp()[..., None]
        system = betas * between * (ks @ ks.transpose(1, 2))  # the diagonal counts as 1
        deltas = torch.linalg.solve_triangular(
            system, betas * (vs - since * (ks @ now)), upper=False, unitriangular=True
        )
        parts.append(since * (qs @ now) + (between * (qs @ ks.transpose(1, 2))) @ deltas)
        left = (fall[:, -1:] - fall).exp()[..., None]
        now.mul_(since[:, -1:]).add_((ks * left).transpose(1, 2) @ deltas)
    state.copy_(now)
    return torch.cat(parts, 1).transpose(0, 1)


def _check_rows(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> None:
    require("q", q, shape=[None, None, None], dtypes=FP32)
    rows, key_heads, key_size = q.shape
    require("k", k, shape=[rows, key_heads, key_size], dtypes=FP32, like=q)
    require("v", v, shape=[rows, None, None], dtypes=FP32, like=q)
    heads = v.shape[1]
    if heads % key_heads:
        raise ValueError(f"v has {heads} heads, expected a multiple of {key_heads} key heads")
    require("decay", decay, shape=[rows, heads], dtypes=FP32, like=q)
    require("beta", beta, shape=[rows, heads], dtypes=FP32, like=q)


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor,
    states: Tensor,
    starts: Tensor,
    deltas: Tensor,
) -> None:
    _check_rows(q, k, v, decay, beta)
    require("states", states, shape=[None, v.shape[1], k.shape[2], v.shape[2]], dtypes=FP32, like=q)
    require("starts", starts, shape=[states.shape[0] + 1], dtypes=[torch.int32], like=q)
    require("deltas", deltas, shape=v.shape, dtypes=FP32, like=q)


def _on_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor,
    states: Tensor,
    starts: Tensor,
    *,
    deltas: Tensor,
) -> Tensor:
    tensors = (q, k, v, decay, beta, states, starts)
    kernels = cpu_kernels("gated_delta")
    dense = all(x.is_contiguous() for x in (decay, beta, states, starts, deltas))
    if kernels is None or not dense or not row_by_row(q, k, v):
        return gated_delta_verify_torch(*tensors, deltas=deltas)
    _check(*tensors, deltas)
    return kernels.gated_delta_verify_cpu(*tensors, deltas=deltas)


_operation = operation(
    "gated_delta_verify(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor beta, Tensor states, "
    "Tensor starts, *, "
    "Tensor(a!) deltas) -> Tensor",
    cpu=_on_cpu,
    cuda=_launch,
)


def gated_delta_verify(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor,
    states: Tensor,
    starts: Tensor,
    *,
    deltas: Tensor,
) -> Tensor:
    """See `gated_delta_verify_torch`. One launch to a capture. On a GPU it also refuses strides
    that its kernel does not read."""
    return _operation(q, k, v, decay, beta, states, starts, deltas=deltas)


gated_delta_prefill = gated_delta_prefill_torch
