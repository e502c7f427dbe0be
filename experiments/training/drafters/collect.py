"""The target's texts and hidden rows: plain decoding by the engine, in as many slots as fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from experiments.training.drafters.store import Store, StoredRow, Text
from experiments.training.drafters.texts import Prompt
from mtp.buckets import Buckets
from mtp.drafters.protocol import Drafted
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.policies import StaticK
from mtp.request import Request
from mtp.targets.protocol import Target
from triton_kernels import Packed

SAVE_S = 20.0  # between writes


class Tap:
    """A `Drafter` that drafts nothing and keeps every hidden row it is fed."""

    max_depth = 0

    def __init__(self, target: Target, length: int) -> None:
        self.context = target.limits.context
        self.rows = torch.zeros(  # [slots, length, hidden]
            target.slots, length, target.hidden_size, dtype=torch.bfloat16, device=target.device
        )

    def bind(self, target: Target) -> None: ...

    def clear(self, slot: int) -> None: ...

    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        self.rows[slot, start : start + len(hidden)] = hidden.bfloat16()

    def advance(
        self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int
    ) -> Drafted:
        # plain decoding keeps every row but padding
        real = torch.arange(len(window.ids), device=kept.device) < window.starts[-1]
        places = window.slots[real].long(), window.positions[real].long()
        self.rows[places] = hidden[real].bfloat16()
        nothing = torch.zeros(len(kept), depth, device=kept.device)
        return Drafted(nothing.int(), nothing, torch.zeros_like(kept))


class Collector:
    """Each prompt with the target's greedy text after it, `length` tokens in all.

    Stop ids are banned until then.
    """

    def __init__(
        self,
        target: Target,
        store: Store,
        watch: Callable[[int, float], None] = lambda rows, tokens_per_s: None,
    ) -> None:
        slots, self.length = target.slots, store.tokens.shape[1]
        self.target, self.store, self.watch, self.slots = target, store, watch, slots
        self.tap = Tap(target, self.length)
        self.executor = ModelExecutor(
            target,
            self.tap,
            slots=slots,
            rows=slots,
            largest_group=1,
            depth=0,
            buckets=Buckets(()),
            device=target.device,
        )

    def run(self, prompts: Iterator[tuple[int, bool, Prompt]], enough: Callable[[], bool]) -> None:
        """Until there are no more prompts, or `enough`; what has begun by then is finished.

        prompts: number, held out, prompt
        """
        engine = Engine(self.executor, slots=self.slots, rows=self.slots, policy=StaticK(0))
        asked: dict[str, tuple[int, bool, Prompt]] = {}
        rows: list[StoredRow] = []
        texts: list[Text] = []

        def whole(request: str, _: Sequence[int]) -> None:
            """A text is taken the moment it is whole: then its slot is cleared."""
            slot, stream = next(
                (slot, one) for slot, one in engine.streams.items() if one.request.id == request
            )
            if len(ids := [*stream.request.prompt, *stream.tokens]) >= self.length:
                number, held_out, prompt = asked.pop(request)
                rows.append(
                    StoredRow(number, prompt.kind, held_out, min(len(prompt.ids), self.length))
                )
                texts.append(self._text(slot, ids[: self.length]))

        engine.on_tokens = whole
        began = saved = time.monotonic()
        before = len(self.store.rows)
        while True:
            while (
                len(engine.scheduler.queue) < self.slots
                and not enough()
                and (asked_next := next(prompts, None)) is not None
            ):
                number, _, prompt = asked_next
                asked[str(number)] = asked_next
                # a given text is read by its prefill; its one new token is not kept
                new = max(1, self.length - len(prompt.ids))
                engine.submit(Request(str(number), prompt.ids, new, min_new_tokens=new))
            going = engine.step()
            if failed := [one for one in engine.finished if one.finish == "error"]:
                raise RuntimeError(f"collecting failed: {failed[0].error}")
            engine.finished.clear()
            if rows and (not going or time.monotonic() - saved > SAVE_S):
                self.store.append(rows, texts)
                saved = time.monotonic()
                rows.clear()
                texts.clear()
                self.watch(
                    len(self.store.rows),
                    (len(self.store.rows) - before) * self.length / (saved - began),
                )
            if not going:
                return

    def _text(self, slot: int, ids: list[int]) -> Text:
        here = slice(self.length - 1)
        kv = {
            kind: torch.stack([one[slot, :, here] for one in self.target.kv(kind)]).bfloat16().cpu()
            for kind in self.store.kv
        }
        return Text(
            torch.tensor(ids, dtype=torch.int32), self.tap.rows[slot, here].clone().cpu(), kv
        )
