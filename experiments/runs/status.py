"""How a run ended: its status.json, what is said of it, and the exit code."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.config.checks import BadInput
from experiments.io import write_json
from experiments.runs.entry import INTERRUPTED, on_one_line

FILE = "status.json"


@dataclass(frozen=True)
class Status:
    """What became of a run's work, whatever of it can be shown."""

    state: str  # ok, failed or interrupted
    error: str | None
    line: str | None  # for stderr
    code: int  # the exit code

    @classmethod
    def of(cls, fault: BaseException | None, folder: Path) -> Status:
        """fault: what ended it, None: nothing did."""
        if fault is None:
            return cls("ok", None, None, 0)
        if isinstance(fault, BadInput):
            return cls("failed", str(fault), f"error: {on_one_line(fault)}", 2)
        if isinstance(fault, KeyboardInterrupt):
            return cls("interrupted", "interrupted", f"interrupted: {folder}", INTERRUPTED)
        error = "".join(traceback.format_exception(fault))
        return cls("failed", error, f"failed: {on_one_line(fault)}", 1)

    def kept(self, folder: Path, fingerprint: str | None) -> Status:
        """The same once it is written, and its line says where; where it cannot be written, a
        failure that says so."""
        held = {"state": self.state, "error": self.error, "fingerprint": fingerprint}
        try:
            write_json(folder / FILE, held)
        except OSError as fault:
            unwritten = f"its state is not kept: {on_one_line(fault)}"
            line = f"failed: {unwritten}" if self.line is None else f"{self.line}; {unwritten}"
            return replace(self, line=line, code=self.code or 1)
        if self.code == 1:
            return replace(self, line=f"{self.line} (see {folder / FILE})")
        return self


def state_in(file: Path) -> str | None:
    """None for a file that is not whole."""
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["state"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
