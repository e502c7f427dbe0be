"""What this machine is called."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path


@cache
def processor() -> str:
    """The model of its CPU, else its architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text()) if cpuinfo.is_file() else None
    return found[1].strip() if found else platform.processor() or platform.machine()
