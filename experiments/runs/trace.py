"""`profile.windows=N`: torch's profile of a run's first prefill chunk and of N windows, as one
trace file that Perfetto opens."""

from __future__ import annotations

import gzip
import json
import os
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from omegaconf import DictConfig

from experiments.config.build import only_keys
from experiments.config.checks import BadInput, integer
from experiments.io import write_whole
from mtp.engine import Engine
from mtp.profiling import profiling_ranges

FILE = "trace.json.gz"
MOST_WINDOWS = 1000  # a window of a small model is a thousand events


@dataclass(frozen=True)
class ProfileSettings:
    """Which windows of a run are traced."""

    windows: int = 0  # how many are recorded; 0: none, and no trace
    skip: int = 0  # windows before them

    @classmethod
    def of(cls, node: Any) -> ProfileSettings:
        """node: None = off. Raises BadInput."""
        if node is None:
            return cls()
        if not isinstance(node, DictConfig):
            raise BadInput(
                f"profile is {node}, expected profile.windows=N, and profile.skip=M if need be"
            )
        only_keys("profile", node, {"windows", "skip"})
        return cls(
            integer("profile.windows", node.get("windows", 0), 0, MOST_WINDOWS),
            integer("profile.skip", node.get("skip", 0), 0),
        )


def trace_windows(engine: Engine, profile: ProfileSettings, path: Path) -> int:
    """Steps the engine until the last window to be recorded, or its end; gives how many were."""
    first = profile.skip
    with TraceRecorder() as recorder:
        more = True
        while more and engine.next_window < first + profile.windows:
            recorder.record(not engine.steps or engine.next_window >= first)
            more = engine.step()
    recorder.write(path)
    return max(0, engine.next_window - first)


class TraceRecorder:
    """A context: on its way out, nothing is recorded any more. Several stretches of time become
    one trace."""

    def __init__(self) -> None:
        self._trace: dict[str, Any] = {"traceEvents": []}
        self._open: ExitStack | None = None

    def __enter__(self) -> TraceRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.record(False)

    def record(self, on: bool) -> None:
        """From now on, or no longer."""
        if on and self._open is None:
            self._open = self._stretch()
        elif not on and self._open is not None:
            self._open.close()
            self._open = None

    def _stretch(self) -> ExitStack:
        import torch
        from torch.profiler import ProfilerActivity, profile

        # else every start and stop is a line on stderr
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        cuda = torch.cuda.is_available()
        profiler = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
        )
        with ExitStack() as stack:
            stack.callback(self._keep, profiler)
            stack.enter_context(profiler)
            if cuda:
                stack.callback(torch.cuda.synchronize)  # what was launched belongs to the stretch
            stack.enter_context(profiling_ranges(_range))
            return stack.pop_all()

    def _keep(self, profiler: Any) -> None:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "stretch.json"
            profiler.export_chrome_trace(str(file))
            made = json.loads(file.read_text(encoding="utf-8"))
        made.pop("traceName")  # that temporary file
        # times are microseconds since a moment that all stretches of a process share
        assert made["baseTimeNanoseconds"] == self._trace.get(
            "baseTimeNanoseconds", made["baseTimeNanoseconds"]
        )
        self._trace = made | {"traceEvents": [*self._trace["traceEvents"], *made["traceEvents"]]}

    def write(self, path: Path) -> None:
        write_whole(path, gzip.compress(json.dumps(self._trace).encode(), mtime=0))


def _range(name: str) -> AbstractContextManager[Any]:
    """None within a capture: its work runs later, in replays, where the host sees one launch."""
    from torch.profiler import record_function

    from mtp.graphs.capture import capturing

    return nullcontext() if capturing() else record_function(name)
