"""The further layers of an MTP head that has several: layer k makes draft k + 1.

Entry i of layer k pairs the row that layer k - 1 left at entry i with token i + k + 1, as
transformers' MtpModel runs them. So after n committed tokens only the entries up to n - 1 - k can
be final: the k after them are made of drafts. They are provisional, rebuilt each time, and the
next commit writes the final ones over them. A commit of m rows makes m entries final in every
layer: of a row that is fed with the token after position p, layer k gets entry p - k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from mtp.drafters.chain import Chain
from mtp.targets.layers.blocks import PromptRows, WindowRows
from mtp.targets.layers.rope import Rotation
from triton_kernels import Packed
from triton_kernels.product import Matrix

# ids [rows], hidden [rows, hidden], where they sit -> [rows, hidden] after the head's norm
HeadLayer = Callable[[Tensor, Tensor, WindowRows | PromptRows], Tensor]


class FurtherLayers:
    """All layers but the first. State: each layer's input row at its last final entry, per slot.

    layers: those after the first
    rotations: by layer type, of positions [rows]
    """

    def __init__(
        self,
        layers: Sequence[HeadLayer],
        rotations: Callable[[Tensor], dict[str, Rotation]],
        slots: int,
        hidden: int,
        like: Matrix,
    ) -> None:
        self._layers, self._rotations = layers, rotations
        self._lasts = torch.zeros(len(layers), slots, hidden, dtype=like.dtype, device=like.device)

    def __len__(self) -> int:
        return len(self._layers)

    def prefill(self, slot: int, ids: Tensor, out: Tensor, start: int) -> None:
        """A chunk of a prompt.

        ids: [n], the tokens after positions start..start + n - 1
        out: [n, hidden], the first layer's output there
        """
        stop, first = start + len(ids), start  # first: the position of `out`'s first row
        for k, layer in enumerate(self._layers, 1):
            before = self._lasts[k - 1, slot].clone()
            if len(out):
                self._lasts[k - 1, slot] = out[-1]
            here = max(start, k)
            hidden = torch.cat([before[None], out])[:-1] if here == first else out[: stop - here]
            out, first = out[:0], here
            if here < stop:
                rows = PromptRows(
                    slot,
                    here - k,
                    self._rotations(torch.arange(here - k, stop - k, device=ids.device)),
                )
                out = layer(ids[here - start :], hidden, rows)

    def feed(self, window: Packed, kept: Tensor, picks: Tensor, out: Tensor) -> None:
        """The kept rows of a verified window; their picks are the tokens after them.

        kept: [slots] int32; picks: [bucket] int32; out: [bucket, hidden], the first layer's output.
        """
        slots, rows = window.slots.long(), torch.arange(len(picks), device=picks.device)
        held = (rows < window.starts[-1]) & (window.group_index < kept[slots])
        last = (window.starts[:-1] + kept - 1).clamp(min=0, max=len(picks) - 1)
        for k, layer in enumerate(self._layers, 1):
            opens = (window.group_index == 0)[:, None]
            hidden = torch.where(opens, self._lasts[k - 1].index_select(0, slots), out.roll(1, 0))
            moved = torch.where((kept > 0)[:, None], out.index_select(0, last), self._lasts[k - 1])
            self._lasts[k - 1].copy_(moved)
            positions = window.positions - k
            out = self._run(
                layer, picks, hidden, positions, slots, held & (positions >= 0), len(kept)
            )

    def draft(self, k: int, drafts: Tensor, window: Packed, chain: Chain, rows: Tensor) -> Tensor:
        """Layer k's output at its k provisional entries, k >= 1: [chains, k, hidden].

        The last one gives draft k + 1.

        drafts: [chains, k], the drafts so far
        rows: [chains, k - 1, hidden], what this gave for the layer before
        """
        chains = len(drafts)
        slots = window.slots.index_select(0, chain.last).long()
        back = torch.arange(k - 1, -1, -1, dtype=torch.int32, device=drafts.device)
        place = (window.positions.index_select(0, chain.last)[:, None] - back).flatten()
        first = self._lasts[k - 1].index_select(0, slots)[:, None]
        hidden = torch.cat([first, rows], 1).flatten(0, 1)
        active = torch.arange(chains, device=drafts.device) < chain.starts[-1]
        valid = active.repeat_interleave(k) & (place >= 0)
        layer, count = self._layers[k - 1], self._lasts.shape[1]
        return self._run(
            layer, drafts.flatten(), hidden, place, slots.repeat_interleave(k), valid, count
        ).unflatten(0, (chains, k))

    def clear(self, slot: int) -> None:
        self._lasts[:, slot] = 0

    def _run(
        self,
        layer: HeadLayer,
        ids: Tensor,
        hidden: Tensor,
        positions: Tensor,
        slots: Tensor,
        valid: Tensor,
        count: int,
    ) -> Tensor:
        """The valid rows, which are in slot order, as a window of their own."""
        order = torch.argsort(~valid, stable=True)
        groups = torch.zeros(count, dtype=torch.int32, device=ids.device).index_add_(
            0, slots, valid.int()
        )
        place = positions.index_select(0, order).clamp(min=0)
        rows = WindowRows(
            place, pad(groups.cumsum(0, dtype=torch.int32), (1, 0)), self._rotations(place)
        )
        out = layer(ids.index_select(0, order), hidden.index_select(0, order), rows)
        return torch.empty_like(out).index_copy_(0, order, out)
