"""A CPU recorder with the rules of CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mtp.graphs.capture import CaptureError, DryRun, Work, under_way
from mtp.layouts.cache import Graph

HOST_READS = {
    "item",
    "tolist",
    "numpy",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__array__",
    "is_nonzero",
    "equal",
}
DATA_SHAPES = {"aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_consecutive"}


class CpuGraph:
    """Recorded operations; a replay runs them again and writes the results to the same places.

    Results hold no values before the first replay, nor after `reset`, when the memory is no longer
    the graph's: both times they are poisoned.
    """

    def __init__(self, release: Callable[[int], None]) -> None:
        self.calls: list[tuple[Any, tuple, dict, list[Tensor]]] = []
        self.bytes = 0
        self._release = release

    @torch.inference_mode()
    def replay(self) -> None:
        for operation, args, kwargs, results in self.calls:
            values = operation(*args, **kwargs)
            for place, value in zip(results, _tensors(values), strict=True) if results else ():
                place.copy_(value)

    @torch.inference_mode()
    def poison(self) -> None:
        for _, _, _, results in self.calls:
            for tensor in results:
                _poison(tensor)

    def reset(self) -> None:
        self.poison()
        self.calls.clear()
        self._release(self.bytes)
        self.bytes = 0


class CpuGraphs:
    """A backend that records every torch operation and every kernel (one opaque operation each).

    While recording, nothing takes effect, new results are poisoned, and what reads the host or
    shapes by data is refused: work that a CUDA graph would break on fails here too.
    """

    def __init__(self, dry_run: DryRun) -> None:
        self._dry_run = dry_run
        self._bytes = 0
        self._recording = False

    def warm(self, work: Work) -> None:
        with self._dry_run(), under_way():
            work()

    @torch.inference_mode()
    def capture(self, work: Work) -> Graph:
        if self._recording:
            raise CaptureError("a capture is already under way")
        graph = CpuGraph(self._free)
        recorder = _Recorder(graph)
        self._recording = True
        try:
            with under_way(), _NoHostReads(recorder), recorder:
                work()
        finally:
            self._recording = False
        if recorder.broken:  # an error that the work swallowed still invalidates the capture
            raise CaptureError(recorder.broken)
        graph.poison()
        self._bytes += graph.bytes
        return graph

    def pool_bytes(self) -> int:
        return self._bytes

    def _free(self, held: int) -> None:
        self._bytes -= held


class _Recorder(TorchDispatchMode):
    def __init__(self, graph: CpuGraph) -> None:
        super().__init__()
        self.graph = graph
        self.broken: str | None = None
        self.inside = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; True would import the whole compiler: over a second."""
        return False

    def refuse(self, what: str) -> None:
        self.broken = self.broken or f"{what}: not permitted in a capture"
        raise CaptureError(self.broken)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name
        by_mask = name == "aten::index" and any(
            index.dtype == torch.bool for index in _tensors(args[1])
        )
        if name in DATA_SHAPES or by_mask:
            self.refuse(f"{name} gives a shape that depends on data")
        if self.broken:
            raise CaptureError(self.broken)
        written = _written(func, args, kwargs)
        before = [tensor.clone() for tensor in written]
        # an operation of ours is one launch: what its twin reads on a CPU is its own affair
        self.inside = True
        try:
            values = func(*args, **kwargs)
        finally:
            self.inside = False
        for tensor, old in zip(written, before, strict=True):
            tensor.copy_(old)  # a capture takes no effect
        given = {tensor.untyped_storage().data_ptr() for tensor in _tensors((args, kwargs))}
        results = _tensors(values)
        fresh = [tensor for tensor in results if tensor.untyped_storage().data_ptr() not in given]
        if fresh and len(fresh) != len(results):
            raise CaptureError(f"{name} gives both views and new tensors")
        if fresh or written:
            self.graph.calls.append((func, args, kwargs, fresh))
        for tensor in fresh:
            self.graph.bytes += tensor.untyped_storage().nbytes()
        return values


class _NoHostReads(TorchFunctionMode):
    """Reads of values by the host, which are not all operations that a dispatch mode sees."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in HOST_READS and not self._recorder.inside:
            self._recorder.refuse(f"{name} is a host read")
        return func(*args, **(kwargs or {}))


def _written(func: Any, args: tuple, kwargs: dict) -> list[Tensor]:
    found = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += _tensors(args[place] if place < len(args) else kwargs.get(argument.name))
    return found


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [tensor for item in value for tensor in _tensors(item)]


def _poison(tensor: Tensor) -> None:
    if tensor.is_floating_point():
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min + 1)
