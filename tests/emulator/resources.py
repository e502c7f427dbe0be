"""What the compiler made of a kernel: registers, stack, spills and instructions, from the tools inside the Triton wheel."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import triton

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)


@dataclass(frozen=True)
class Resources:
    """stack, local: bytes a thread; opcodes: of the machine code, NOPs left out."""

    registers: int
    stack: int
    local: int
    opcodes: Counter[str]

    @property
    def instructions(self) -> int:
        return self.opcodes.total()

    def count(self, *prefixes: str) -> int:
        return sum(n for opcode, n in self.opcodes.items() if opcode.startswith(prefixes))


@lru_cache
def resources(cubin: Path) -> Resources:
    usage = _tool("cuobjdump", "-res-usage", cubin)
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    if found is None:
        raise ValueError(f"cuobjdump said {usage!r}")
    opcodes = Counter(opcode for opcode in INSTRUCTION.findall(_tool("nvdisasm", "-c", cubin)) if opcode != "NOP")
    return Resources(*map(int, found.groups()), opcodes)


def _tool(name: str, *arguments: str | Path) -> str:
    return subprocess.run([TOOLS / name, *arguments], capture_output=True, text=True, check=True).stdout
