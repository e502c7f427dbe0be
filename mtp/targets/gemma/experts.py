"""The experts of a Gemma 4 layer, which work beside its MLP, on the same stream."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import rms_norm

from mtp.targets.gemma.config import GemmaConfig
from mtp.targets.layers.blocks import Norm, gelu_tanh
from mtp.targets.layers.experts import Routed, choose
from mtp.targets.loading.weights import Shapes, Weights
from triton_kernels.product import Matrix

NORMS = (
    "post_feedforward_layernorm_1",
    "pre_feedforward_layernorm_2",
    "post_feedforward_layernorm_2",
)


class GemmaExperts:
    """The router, the experts and the norms between them and the MLP. w: of the layer.

    The router reads the stream by a norm of its own, which has a weight for each element and none
    for each row.
    """

    def __init__(self, w: Weights, config: GemmaConfig) -> None:
        assert config.experts is not None
        self.per_row, self.eps, self.root = config.experts.per_row, config.eps, config.hidden**-0.5
        norms = (Norm(w.tensor(f"{name}.weight"), config.eps, config.norm_offset) for name in NORMS)
        self.after_mlp, self.before, self.after = norms
        self.scale, self.route = w.tensor("router.scale"), Matrix(w.tensor("router.proj.weight"))
        self.of_expert = w.tensor("router.per_expert_scale").float()
        self.routed = Routed(
            w.tensor("experts.gate_up_proj"), w.tensor("experts.down_proj"), gelu_tanh
        )

    @staticmethod
    def shapes(config: GemmaConfig) -> Shapes:
        form, hidden = config.experts, config.hidden
        assert form is not None
        return {f"{name}.weight": (hidden,) for name in NORMS} | {
            "router.scale": (hidden,),
            "router.proj.weight": (form.count, hidden),
            "router.per_expert_scale": (form.count,),
            "experts.gate_up_proj": (form.count, 2 * form.inner, hidden),
            "experts.down_proj": (form.count, hidden, form.inner),
        }

    def __call__(self, x: Tensor, mlp: Tensor) -> Tensor:
        """x: [rows, hidden], the stream; mlp: [rows, hidden], the MLP's output. Gives both
        together.
        """
        y = rms_norm(x.float(), x.shape[-1:], eps=self.eps).to(x.dtype) * self.scale * self.root
        chosen, shares = choose(self.route(y), self.per_row)
        made = self.routed(self.before(x).to(x.dtype), chosen, shares * self.of_expert[chosen]).to(
            x.dtype
        )
        return self.after_mlp(mlp).to(x.dtype) + self.after(made).to(x.dtype)
