"""The linear-attention layers of the Qwen 3.5 family, and the state of all of them."""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor
from torch.nn.functional import rms_norm, silu, softplus

from mtp.targets.layers.blocks import Place, PromptRows
from mtp.targets.loading.weights import Shapes, Weights
from mtp.targets.qwen.config import QwenConfig
from triton_kernels.causal_conv import causal_conv_commit, causal_conv_prefill, causal_conv_verify
from triton_kernels.gated_delta import gated_delta_prefill, gated_delta_verify
from triton_kernels.gated_delta_commit import gated_delta_commit
from triton_kernels.product import Matrix


class LinearState:
    """Committed state of every slot, and what a verified window leaves for its commit. All fp32.

    rows: most rows of a window
    """

    def __init__(
        self, config: QwenConfig, layers: int, slots: int, rows: int, device: torch.device
    ) -> None:
        def table(*shape: int) -> Tensor:
            return torch.zeros(layers, *shape, dtype=torch.float32, device=device)

        heads, key_size, value_size = (
            config.linear_value_heads,
            config.linear_key_size,
            config.linear_value_size,
        )
        self.recurrent = table(slots, heads, key_size, value_size)
        self.past_inputs = table(slots, config.taps - 1, config.linear_channels)
        self.inputs = table(rows, config.linear_channels)  # scratch from here on
        self.keys = table(rows, config.linear_key_heads, key_size)
        self.deltas = table(rows, heads, value_size)
        self.decays = table(rows, heads)

    def commit(self, starts: Tensor, kept: Tensor) -> None:
        gated_delta_commit(self.recurrent, self.keys, self.deltas, self.decays, starts, kept)
        causal_conv_commit(self.past_inputs, self.inputs, starts, kept)

    def clear(self, slot: int) -> None:
        self.recurrent[:, slot] = 0
        self.past_inputs[:, slot] = 0


class GatedDelta:
    """A mixer: short convolution over queries, keys and values, gated delta rule, gated norm.

    index: its layer in `state`
    """

    def __init__(self, w: Weights, config: QwenConfig, state: LinearState, index: int) -> None:
        parts = (f"in_proj_{part}.weight" for part in ("qkv", "z", "b", "a"))
        self.project = Matrix(w.stacked(*parts))
        self.out = Matrix(w.tensor("out_proj.weight"))
        taps = w.tensor("conv1d.weight").float()
        self.taps = rearrange(taps, "channel 1 tap -> tap channel").contiguous()
        # its gates' parameters are small and sensitive: as stored, not rounded to the model's dtype
        self.rate = -w.tensor("A_log", torch.float32).exp().double()  # [heads]
        self.bias = w.tensor("dt_bias", torch.float32).double()
        # the one norm of the family that is not an offset
        self.norm_weight = w.tensor("norm.weight").float()
        self.eps = config.eps
        self.key_heads, self.key_size = config.linear_key_heads, config.linear_key_size
        self.heads, self.value_size = config.linear_value_heads, config.linear_value_size
        self.widths = [config.linear_channels, self.heads * self.value_size, self.heads, self.heads]
        self.state, self.index = state, index

    @staticmethod
    def shapes(config: QwenConfig) -> Shapes:
        hidden, heads, channels = config.hidden, config.linear_value_heads, config.linear_channels
        inner = heads * config.linear_value_size
        return {
            "in_proj_qkv.weight": (channels, hidden),
            "in_proj_z.weight": (inner, hidden),
            "in_proj_b.weight": (heads, hidden),
            "in_proj_a.weight": (heads, hidden),
            "conv1d.weight": (channels, 1, config.taps),
            "A_log": (heads,),
            "dt_bias": (heads,),
            "norm.weight": (config.linear_value_size,),
            "out_proj.weight": (hidden, inner),
        }

    def __call__(self, x: Tensor, place: Place) -> Tensor:
        mixed, gate, b, a = self.project(x).float().split_with_sizes(self.widths, 1)
        beta = b.double().sigmoid().float()  # [rows, heads]
        log_decay = self.rate * softplus(a.double() + self.bias)
        if isinstance(place, PromptRows):  # y: [rows, heads, value size]
            y = self._prompt(mixed, log_decay.float(), beta, place.slot)
        else:
            y = self._window(mixed, log_decay, beta, place.starts)
        y = rms_norm(y, y.shape[-1:], eps=self.eps) * self.norm_weight
        y = y * silu(gate.unflatten(1, (self.heads, self.value_size)))
        return self.out(y.flatten(1).to(x.dtype))

    def _window(self, mixed: Tensor, log_decay: Tensor, beta: Tensor, starts: Tensor) -> Tensor:
        state, layer, rows = self.state, self.index, len(mixed)
        inputs = state.inputs[layer, :rows].copy_(mixed)
        decay = state.decays[layer, :rows].copy_(log_decay.exp())
        conv = causal_conv_verify(inputs, self.taps, state.past_inputs[layer], starts)
        q, k, v = self._split(conv, state.keys[layer, :rows])
        deltas = state.deltas[layer, :rows]
        return gated_delta_verify(
            q, k, v, decay, beta, state.recurrent[layer], starts, deltas=deltas
        )

    def _prompt(self, mixed: Tensor, log_decay: Tensor, beta: Tensor, slot: int) -> Tensor:
        state, layer = self.state, self.index
        conv = causal_conv_prefill(mixed, self.taps, state.past_inputs[layer, slot])
        return gated_delta_prefill(
            *self._split(conv), log_decay, beta, state.recurrent[layer, slot]
        )

    def _split(self, conv: Tensor, keys: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (unit length, scaled), keys (unit length, into `keys`), values."""
        both = 2 * self.key_heads * self.key_size
        qk = conv[:, :both].unflatten(1, (2, self.key_heads, self.key_size))
        length = torch.rsqrt(qk.square().sum(-1, keepdim=True) + 1e-6)
        q = qk[:, 0] * (length[:, 0] * self.key_size**-0.5)
        k = torch.mul(qk[:, 1], length[:, 1], out=keys)
        return q, k, conv[:, both:].unflatten(1, (self.heads, self.value_size))
