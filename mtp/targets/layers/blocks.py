"""Blocks that text models and their MTP heads share: norm, MLP, and where a forward's rows sit.

On a CPU the vectorised sigmoid, SiLU and softplus and the scalar ones that end a contiguous stretch
differ in the last bit. So that a row's bits never depend on its place, they run here on column
slices of a fused projection (rows with gaps between them are walked one by one), or in double.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor
from torch.nn.functional import gelu, rms_norm, silu

from mtp.targets.layers.rope import Rotation
from mtp.targets.loading.weights import Shapes, Weights
from triton_kernels.attention import prefill_attention, window_attention
from triton_kernels.product import Matrix


class Norm:
    """RMS over the last dimension; fp32 in and out.

    weight: as stored; the runtime weight is offset + weight, always
    """

    def __init__(self, weight: Tensor, eps: float, offset: float) -> None:
        self.weight = weight.float() + offset
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return rms_norm(x.float(), x.shape[-1:], eps=self.eps) * self.weight


class WindowRows(NamedTuple):
    """Where a window's rows sit."""

    positions: Tensor  # [rows] int32 cache rows
    starts: Tensor  # [slots + 1] int32
    rotations: Mapping[str, Rotation]  # by layer type
    counts: Tensor | None = None  # [slots] int32, see `window_attention`
    inputs: Tensor | None = None  # what blocks read besides the stream, where a family has that

    def attend(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        keys: Tensor,
        values: Tensor,
        scale: float,
        sliding: int | None = None,
    ) -> Tensor:
        return window_attention(
            q,
            k,
            v,
            keys,
            values,
            self.positions,
            self.starts,
            self.counts,
            scale=scale,
            sliding=sliding,
        )


class PromptRows(NamedTuple):
    """A chunk of one slot's prompt."""

    slot: int
    start: int  # position of its first row
    rotations: Mapping[str, Rotation]  # as of `WindowRows`
    inputs: Tensor | None = None

    def attend(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        keys: Tensor,
        values: Tensor,
        scale: float,
        sliding: int | None = None,
    ) -> Tensor:
        return prefill_attention(
            q, k, v, keys, values, self.slot, self.start, scale=scale, sliding=sliding
        )


Place = WindowRows | PromptRows


class Layer(Protocol):
    """A block of a decoder."""

    def __call__(self, x: Tensor, place: Place) -> Tensor:
        """x: [rows, hidden], the stream; gives it after this layer."""
        ...

    def matrices(self) -> list[Matrix]:
        """All that rows are multiplied with."""
        ...


class Mixer(Protocol):
    project: Matrix  # its fused input projection [out, hidden]
    out: Matrix  # its output projection [hidden, in]

    def __call__(self, x: Tensor, place: Place) -> Tensor:
        """x: [rows, hidden], normed -> what it adds to the stream [rows, hidden]."""
        ...


class Feedforward(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """x: [rows, hidden], normed -> what it adds to the stream [rows, hidden]."""
        ...

    def matrices(self) -> list[Matrix]: ...


def gelu_tanh(x: Tensor) -> Tensor:
    return gelu(x, approximate="tanh")


class Mlp:
    def __init__(self, w: Weights, activation: Callable[[Tensor], Tensor] = silu) -> None:
        self.activation = activation
        self.gate_up = Matrix(w.stacked("gate_proj.weight", "up_proj.weight"))
        self.down = Matrix(w.tensor("down_proj.weight"))

    @staticmethod
    def shapes(hidden: int, inner: int) -> Shapes:
        return {
            "gate_proj.weight": (inner, hidden),
            "up_proj.weight": (inner, hidden),
            "down_proj.weight": (hidden, inner),
        }

    def __call__(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, 1)
        return self.down(self.activation(gate) * up)

    def matrices(self) -> list[Matrix]:
        return [self.gate_up, self.down]


class Block:
    """A layer: mixer and MLP, each on a normed input, each added to the stream."""

    def __init__(
        self, w: Weights, mixer: Mixer, mlp: Feedforward, eps: float, norm_offset: float
    ) -> None:
        self.before_mixer = Norm(w.tensor("input_layernorm.weight"), eps, norm_offset)
        self.before_mlp = Norm(w.tensor("post_attention_layernorm.weight"), eps, norm_offset)
        self.mixer, self.mlp = mixer, mlp

    @staticmethod
    def shapes(hidden: int) -> Shapes:
        """Of its own norms."""
        return {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}

    def __call__(self, x: Tensor, place: Place) -> Tensor:
        x = x + self.mixer(self.before_mixer(x).to(x.dtype), place)
        return x + self.mlp(self.before_mlp(x).to(x.dtype))

    def matrices(self) -> list[Matrix]:
        return [self.mixer.project, self.mixer.out, *self.mlp.matrices()]


def prefixed(prefix: str, shapes: Shapes) -> Shapes:
    return {prefix + name: shape for name, shape in shapes.items()}
