"""The gated delta rule by chunks, differentiable.

Per head, state S [key, value], token t:

    S = exp(g_t) S + k_t (beta_t (v_t - exp(g_t) S^T k_t))^T
    o_t = S^T q_t

Inside a chunk the rule is a unit lower triangular system; its inverse is a product
of matrix powers, which costs log2(chunk) batched products and differentiates faster on a CPU than a
triangular solve does.
"""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor
from torch.nn.functional import pad

CHUNK = 32


def unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def inverse_unit_lower(below: Tensor) -> Tensor:
    """(1 + below)^-1, the product of 1 + (-below)^(2^i).

    below: [.., n, n], strictly lower triangular
    """
    power = -below
    result = power + torch.eye(below.shape[-1], dtype=below.dtype)
    width = 2
    while width < below.shape[-1]:
        power = power @ power
        result = result + result @ power
        width *= 2
    return result


def gated_delta(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The rule over a text, and the state after its last token. All tensors are fp32.

    q, k: [batch, heads, tokens, key]
    v: [batch, heads, tokens, value]
    decay, beta: [batch, heads, tokens]; decay: its log, <= 0
    state: [batch, heads, key, value] before the text, None: zero

    Gives [batch, heads, tokens, value] and [batch, heads, key, value].
    """
    with torch.autocast("cpu", enabled=False):
        q, k = unit(q) * q.shape[-1] ** -0.5, unit(k)
        if state is None:
            state = v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])
        return (
            _one(q, k, v, decay, beta, state)
            if q.shape[2] == 1
            else _chunks(q, k, v, decay, beta, state)
        )


def _one(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    state = state * decay.exp()[..., None]
    state = state + k.mT @ (beta[..., None] * (v - k @ state))
    return q @ state, state


def _chunks(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    tokens = q.shape[2]
    fill = -tokens % CHUNK
    if fill:  # a padded token has beta 0 and no decay: it changes nothing
        q, k, v = (pad(x, (0, 0, 0, fill)) for x in (q, k, v))
        decay, beta = pad(decay, (0, fill)), pad(beta, (0, fill))
    q, k, v, decay, beta = (
        rearrange(x, "b head (chunk t) ... -> b head chunk t ...", t=CHUNK)
        for x in (q, k, v, decay, beta)
    )
    total = decay.cumsum(-1)
    causal = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    # decay from column to row
    between = (total[..., :, None] - total[..., None, :]).masked_fill(~causal, float("-inf")).exp()
    keys = k.mT
    solve = inverse_unit_lower(((k * beta[..., None]) @ keys * between).tril(-1))
    fresh = solve @ (v * beta[..., None])
    reads = solve @ (k * (beta * total.exp())[..., None])
    inner = q @ keys * between
    q = q * total.exp()[..., None]
    writes = (k * (total[..., -1:] - total).exp()[..., None]).mT
    whole = total[..., -1].exp()[..., None, None]
    outs = []
    # unbind, not indexing: its gradient is one stack and no zero-filled copies
    for new, read, query, mix, write, keep in zip(
        *(x.unbind(2) for x in (fresh, reads, q, inner, writes, whole)), strict=True
    ):
        value = new - read @ state
        outs.append(query @ state + mix @ value)
        state = state * keep + write @ value
    out = rearrange(torch.stack(outs, 2), "b head chunk t value -> b head (chunk t) value")
    return out[:, :, :tokens], state
