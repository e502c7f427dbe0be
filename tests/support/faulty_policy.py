"""A policy for tests of sweeps: it fails, or ends its process, for some budgets while a file of
that name exists."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from mtp.policies import StaticK


@dataclass(frozen=True)
class Faulty(StaticK):
    budget: int = 0
    here: str = ""

    def decide(self, slots, *, rows, start):
        if (Path(self.here) / f"fails-{self.budget}").exists():
            raise RuntimeError(f"budget {self.budget} is bad luck")
        if (Path(self.here) / f"dies-{self.budget}").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().decide(slots, rows=rows, start=start)
