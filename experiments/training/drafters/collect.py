"""The target's texts and hidden rows, by our own engine: plain decoding, as many slots as the kernels take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from experiments.training.drafters.store import Row, Store
from experiments.training.drafters.texts import Prompt
from mtp.drafters.protocol import Drafted
from mtp.engine import Engine
from mtp.execution.buckets import Buckets
from mtp.execution.model import ModelExecutor
from mtp.policies import StaticK
from mtp.request import Finished, Request
from mtp.targets.protocol import Target
from triton_kernels import Packed

SAVE_S = 20.0  # between writes


class Tap:
    """A `Drafter` that drafts nothing and keeps every hidden row it is fed: rows [slots, length, hidden]."""

    max_depth = 0

    def __init__(self, target: Target, length: int) -> None:
        self.context = target.limits.context
        self.rows = torch.zeros(target.slots, length, target.hidden_size, dtype=torch.bfloat16, device=target.device)

    def bind(self, target: Target) -> None: ...

    def clear(self, slot: int) -> None: ...

    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        self.rows[slot, start : start + len(hidden)] = hidden.bfloat16()

    def advance(self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int) -> Drafted:
        real = torch.arange(len(window.ids), device=kept.device) < window.starts[-1]  # plain decoding keeps every row but padding
        self.rows[window.slots[real].long(), window.positions[real].long()] = hidden[real].bfloat16()
        nothing = torch.zeros(len(kept), depth, device=kept.device)
        return Drafted(nothing.int(), nothing, torch.zeros_like(kept))


class Collector:
    """Each prompt with the target's greedy text after it, `length` tokens in all; stop ids are banned until then."""

    def __init__(self, target: Target, store: Store, watch: Callable[[int, float], None] = lambda rows, tokens_per_s: None) -> None:
        slots, self.length = target.slots, store.tokens.shape[1]
        self.store, self.watch, self.slots = store, watch, slots
        self.tap = Tap(target, self.length)
        self.executor = ModelExecutor(
            target, self.tap, slots=slots, rows=slots, largest_group=1, depth=0, buckets=Buckets(()), device=target.device
        )

    def run(self, prompts: Iterator[tuple[int, bool, Prompt]], enough: Callable[[], bool]) -> None:
        """prompts: number, held out, prompt. Until there are no more, or enough() says so: what is begun then is ended."""
        engine = Engine(self.executor, slots=self.slots, rows=self.slots, policy=StaticK(0), on_tokens=lambda *_: None)
        asked: dict[str, tuple[int, bool, Prompt]] = {}
        seats: dict[str, int] = {}

        def seat(request: str, tokens: Sequence[int]) -> None:
            if request not in seats:
                seats[request] = next(slot for slot, stream in engine.streams.items() if stream.request.id == request)

        engine.on_tokens = seat
        made: list[tuple[Row, Tensor, Tensor]] = []
        began = saved = time.monotonic()
        seen = tokens = 0
        while True:
            while len(engine.waiting) < self.slots and not enough() and (asked_next := next(prompts, None)) is not None:
                number, _, prompt = asked_next
                asked[str(number)] = asked_next
                # a given text is read by its prefill; its one new token is not kept
                new = max(1, self.length - len(prompt.ids))
                engine.submit(Request(str(number), prompt.ids, new, min_new_tokens=new))
            going = engine.step()
            for finished in engine.finished[seen:]:
                made.append(self._row(finished, asked.pop(finished.id), seats[finished.id]))
                tokens += self.length
            seen = len(engine.finished)
            if made and (not going or time.monotonic() - saved > SAVE_S):
                rows, ids, hidden = zip(*made, strict=True)
                self.store.append(list(rows), torch.stack(ids), torch.stack(hidden))
                made, saved = [], time.monotonic()
                self.watch(len(self.store.rows), tokens / (saved - began))
            if not going:
                return

    def _row(self, finished: Finished, asked: tuple[int, bool, Prompt], slot: int) -> tuple[Row, Tensor, Tensor]:
        if finished.finish == "error":
            raise RuntimeError(f"collecting failed: {finished.error}")
        number, held_out, prompt = asked
        ids = torch.tensor((finished.prompt + finished.tokens)[: self.length], dtype=torch.int32)
        begin = self.length if prompt.given else len(prompt.ids)
        return Row(number, prompt.kind, held_out, begin), ids, self.tap.rows[slot, : self.length - 1].clone().cpu()
