"""The model executor whose device plans: from the logits of one window to the inputs of the next,
nothing is read by the host.

verify: the planned window becomes the one in work, target forward. commit: picks, accepted prefixes
and their commit in one launch (`advance_window accept`), the target keeps rows, the drafter chains,
and the next window is planned and packed in one launch (`plan`); where there is no drafter, nothing
lies between the two and one launch does both (`all`).
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mtp.commit import Committed
from mtp.execution.buffers import copy_into
from mtp.execution.model import FINISH, NUMERIC_ERROR, ModelExecutor
from mtp.executor import Outcome
from mtp.policies import RotateGrow, StaticK
from mtp.profiling import profiled
from mtp.windows import Group
from triton_kernels import Advanced, Packed, SlotLimits, SlotState, advance_window
from triton_kernels.accept import ERROR


class DevicePlanningModel(ModelExecutor):
    """See `ModelExecutor` and `DevicePlanningExecutor`. policy: what the device plans by; rows:
    of a window, always padded to one bucket."""

    def __init__(
        self, *arguments: Any, policy: RotateGrow | StaticK, rows: int = 8, **options: Any
    ) -> None:
        super().__init__(*arguments, rows=rows, **options)
        self.policy, self.rows = policy, rows
        name, k = ("static_k", policy.k) if isinstance(policy, StaticK) else ("rotate_grow", 0)
        self._plan: dict[str, Any] = {"rows": rows, "policy": name, "k": k, "sizes": policy.sizes}
        b = self.buffers

        def table(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int32, device=self._device)

        self._live = table(b.slots)
        # drafts that may be verified; context, 0 for a slot that is held back
        self._caps = table(2, b.slots)
        # of the rotation: after and before the window that is planned
        self._start, self._start_before = table(1), table(1)
        self._start_of_others = table(1)  # where the other turn's next window begins
        self._staged_starts = table(b.slots + 1)  # of the window that was staged last
        self._next = Packed(
            table(b.rows), table(b.rows), table(b.rows), table(b.rows), table(b.slots + 1)
        )
        self._state = SlotState(
            b.anchors, b.positions, b.produced, self._live, b.held, b.drafts, self._start
        )
        self._limits = SlotLimits(
            b.max_new, self._caps[1], b.min_new, self._caps[0], b.stop_ids, b.stop_counts
        )
        self._logits = torch.zeros(
            b.rows, self.target.logit_width, dtype=self.target.dtype, device=self._device
        )
        self._result = table(3 + b.drafts.shape[1] + 1, b.slots)
        # host memory, two of each in turn: a copy to or from the one before may still be under way
        pinned = self._device.type == "cuda"
        self._results_on_host = deque(
            torch.zeros(self._result.shape, dtype=torch.int32, pin_memory=pinned) for _ in range(2)
        )
        self._caps_on_host = deque(
            torch.zeros(2, b.slots, dtype=torch.int32, pin_memory=pinned) for _ in range(2)
        )
        self._capped: list[list[int]] = []
        self._speculative = True
        self._stale = True  # the planned window no longer follows from the slots' state
        self._last: DevicePlannedWindow | None = None

    # ---- slots

    def release(self, slot: int) -> None:
        super().release(slot)
        self._live[slot].fill_(0)
        self._stale = True

    def prefill(self, slot: int, start: int, stop: int, depth: int) -> Outcome | None:
        outcome = super().prefill(slot, start, stop, depth)
        self._live[slot].fill_(int(outcome is not None and outcome.committed.finish is None))
        self._stale = True
        super().now()  # the chunk's time is the prefill's, not the next window's
        return outcome

    # ---- windows

    @profiled("stage")
    @torch.inference_mode()
    def advance(
        self, caps: Mapping[int, int | None], depth: int, *, speculative: bool
    ) -> DevicePlannedWindow:
        """Stage the next window: as it was planned or, where the host changed a slot, a cap or
        the turn since, planned again."""
        if self._last is not None:
            self._last.fetch()
        slots = range(self.buffers.slots)
        capped = [
            [self.max_depth * (caps.get(slot, 1) is None) for slot in slots],
            [self.limits.context * (caps.get(slot) != 0) for slot in slots],
        ]
        if capped != self._capped:
            self._caps_on_host.rotate()
            self._caps.copy_(
                self._caps_on_host[0].copy_(torch.tensor(capped, dtype=torch.int32)),
                non_blocking=True,
            )
            self._capped, self._stale = capped, True
        if speculative != self._speculative:
            start = self._start_before.clone()
            self._start_before.copy_(self._start_of_others)
            self._start_of_others.copy_(start)
            self._speculative, self._stale = speculative, True
        if self._stale:
            self._start.copy_(self._start_before)
            self._plan_next()
            self._stale = False
        self._staged_starts.copy_(self._next.starts)
        self._last = DevicePlannedWindow(self, depth)
        return self._last

    @torch.inference_mode()
    def verify(self, bucket: int, bans: bool) -> None:
        copy_into(self.buffers.window(bucket), self._next)
        self._logits.copy_(self._forward(bucket))

    @torch.inference_mode()
    def commit(self, bucket: int, depth: int) -> None:
        b = self.buffers
        window = b.window(bucket)
        alone = self.drafting.drafter is None
        if alone:
            self._start_before.copy_(self._start)
        advanced = self._accept_in_place("all" if alone else "accept")
        self._result.copy_(advanced.result)
        self._keep_rows(window, advanced.kept)
        if not alone:
            self._chain(window, advanced, depth)
            self._plan_next()

    @profiled("accept")
    def _accept_in_place(self, stage: Any) -> Advanced:
        """Picks, accepted prefixes and the slots' move; in stage `all` the next window's plan
        and rows too."""
        return self._advance(stage, logits=self._logits, vocab=self.limits.vocab)

    @profiled("commit")
    def _keep_rows(self, window: Packed, kept: Tensor) -> None:
        self.target.commit(window, kept)

    @profiled("draft")
    def _chain(self, window: Packed, advanced: Advanced, depth: int) -> None:
        self.draft(window, advanced.kept, advanced.result[2], advanced.picks, depth)

    @profiled("pack")
    def _plan_next(self) -> None:
        self._start_before.copy_(self._start)
        self._advance("plan")

    def _advance(self, stage: Any, **inputs: Any) -> Advanced:
        return advance_window(stage, self._state, self._limits, self._next, **inputs, **self._plan)

    @contextlib.contextmanager
    def dry_run(self) -> Iterator[None]:
        """The planned window is empty: accepting it changes nothing. What is planned meanwhile
        is taken back."""
        planned = (*self._next, self._start, self._start_before, self._result)
        kept = [table.clone() for table in planned]
        self._next.starts.zero_()
        try:
            yield
        finally:
            copy_into(planned, tuple(kept))

    def now(self) -> float:
        """The host's clock: waiting for the device here would put a host read between windows."""
        return time.perf_counter()

    def to_host(self) -> tuple[Tensor, torch.cuda.Event | None]:
        """The results of the last window on their way to the host, and the event after which
        they are there."""
        if self._device.type != "cuda":
            return self._result.clone(), None
        self._results_on_host.rotate()
        place, event = self._results_on_host[0], torch.cuda.Event()
        place.copy_(self._result, non_blocking=True)
        event.record()
        return place, event

    def rows_in_work(self) -> list[int]:
        """Per slot. Waits for the device."""
        return self._staged_starts.diff().tolist()


class DevicePlannedWindow:
    """One window that the device planned. Its groups are the host's to know once its results
    have come."""

    def __init__(self, executor: DevicePlanningModel, depth: int) -> None:
        self._executor, self._depth = executor, depth
        self._bucket = executor.buffers.rows
        self._result: Tensor | None = None
        self._event: torch.cuda.Event | None = None
        self.graph_constants: Hashable = (self._bucket, depth, executor.target.dtype, "planned")
        self.graph_epoch = executor.drafting.reloads

    def verify(self) -> None:
        self._executor.verify(self._bucket, False)

    def commit(self) -> None:
        self._executor.commit(self._bucket, self._depth)

    def fetch(self) -> None:
        """The results start their way to the host; the next window may overwrite the device's
        own."""
        if self._result is None:
            self._result, self._event = self._executor.to_host()

    @property
    def groups(self) -> list[Group]:
        rows = self._executor.rows_in_work() if self._result is None else self._rows()[0]
        return [Group(slot, count) for slot, count in enumerate(rows) if count]

    @property
    def padded(self) -> int:
        return self._bucket - sum(group.rows for group in self.groups)

    @profiled("read")
    def outcomes(self) -> Sequence[Outcome]:
        self.fetch()
        rows, kept, finish, *tokens = self._rows()
        reasons = self._executor.drafting.speculation_disabled
        found = []
        for slot in (slot for slot, count in enumerate(rows) if count):
            text = tuple(column[slot] for column in tokens[: kept[slot]])
            committed = Committed(text, kept[slot], max(0, kept[slot] - 1), FINISH[finish[slot]])
            error = NUMERIC_ERROR if finish[slot] == ERROR else None
            found.append(Outcome(slot, committed, error=error, speculation_disabled=reasons(slot)))
        return found

    def _rows(self) -> list[list[int]]:
        assert self._result is not None
        if self._event is not None:
            self._event.synchronize()
        return self._result.tolist()
