"""The MTP head: one attention block, chained on its own output.

It reads pairs of the embedding of token i + 1 and the target's hidden row i.
"""

from __future__ import annotations

import torch
from einops import repeat
from torch import Tensor, nn

from experiments.training.chain import attend_chained
from experiments.training.model import Block, Norm, QwenModel
from experiments.training.trainable import ChainStep, TargetRows, TrainableDrafter


class MtpHead(TrainableDrafter):
    """Starts as a copy of the target's last block and norm.

    Parameters carry the checkpoint's names without `mtp.`.
    """

    def __init__(self, model: QwenModel) -> None:
        super().__init__()
        hidden = model.shape.hidden
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (
            Norm(hidden),
            Norm(hidden),
            Norm(hidden),
        )
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.layers = nn.ModuleList([Block(model.shape, "full_attention")])
        with torch.no_grad():
            self.fc.weight.copy_(
                torch.cat([torch.randn(hidden, hidden) * 0.02, torch.eye(hidden)], 1)
            )
            self.norm.weight.copy_(model.model.norm.weight)
        last = model.model.layers[-1]
        assert isinstance(last, Block)
        assert last.full
        self.layers[0].load_state_dict(last.state_dict())

    def chain(
        self, target: QwenModel, ids: Tensor, read: TargetRows, depth: int, own: bool = False
    ) -> list[ChainStep]:
        """See `TrainableDrafter`. Step s of anchor t stands for position t + s.

        As in use, it attends to the committed entries 0..t, which all are made from the target's
        rows, and to its own provisional entries of the steps before.
        """
        block, anchors = self.layers[0], ids.shape[1] - depth
        assert isinstance(block, Block)
        attention = block.self_attn
        share = attention.shape.heads // attention.shape.kv_heads
        scale = attention.shape.head_size**-0.5
        out, picks = read.hidden[:, :anchors], ids[:, 1 : 1 + anchors]
        keys: list[Tensor] = []
        values: list[Tensor] = []
        steps = []
        for step in range(depth):
            token = picks if own else ids[:, 1 + step : 1 + step + anchors]
            x = self.fc(
                torch.cat(
                    [self.pre_fc_norm_embedding(target.embed(token)), self.pre_fc_norm_hidden(out)],
                    -1,
                )
            )
            q, k, v, gate = attention.qkv(block.input_layernorm(x), target.rope, step)
            k, v = (
                repeat(one, "b head t size -> b (head share) t size", share=share) for one in (k, v)
            )
            keys.append(k)
            values.append(v)
            mixed = attend_chained(q, keys, values, scale)
            out = self.norm(block.finish(x + attention.leave(mixed, gate)))
            steps.append(ChainStep(out, target.logits(out)))
            picks = steps[-1].picks if own else picks
        return steps
