"""PTX text -> basic blocks of instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache


class PtxError(Exception):
    """Something the compiled code does, or something about it, is wrong."""


class Unknown(PtxError):
    """The emulator does not know this text. It never guesses."""


@dataclass(frozen=True)
class Instruction:
    """guard: (predicate register, negated); line: of the Triton source; text: as written."""

    opcode: str
    operands: tuple[str, ...]
    guard: tuple[str, bool] | None
    line: str
    text: str

    def __str__(self) -> str:
        return f"`{self.text}` (source line {self.line})"


@dataclass
class Kernel:
    """registers: name -> type; a label names the block it stands before."""

    name: str
    params: tuple[tuple[str, str], ...]
    threads: int
    registers: dict[str, str] = field(default_factory=dict)
    blocks: list[list[Instruction]] = field(default_factory=lambda: [[]])
    labels: dict[str, int] = field(default_factory=dict)


PARAM = re.compile(r"\.param \.(\w+)(?: \.ptr \.global \.align \d+)? (\w+)$")
REGISTERS = re.compile(r"\.reg \.(\w+)\s+(%\w+)<(\d+)>$")
INSTRUCTION = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*)$")
ENDS_BLOCK = ("bra", "ret", "bar")
SAYS_NOTHING = (".file", ".section", ".loc", ".pragma")


@lru_cache(maxsize=256)
def parse(ptx: str) -> Kernel:
    """The one kernel of a PTX module."""
    text = re.sub(r"//[^\n]*", "", ptx)
    entries = re.findall(r"\.entry (\w+)\((.*?)\)\s*([^{]*)\{(.*?)\n\}", text, re.DOTALL)
    if len(entries) != 1 or ".func" in text:
        raise Unknown(f"{len(entries)} kernels and {text.count('.func')} functions in one module")
    name, params, directives, body = entries[0]
    threads = re.search(r"\.reqntid (\d+)(?:, 1, 1)?\s", directives + "\n")
    if threads is None:
        raise Unknown(f"directives of {name}: {directives.strip()!r}")
    found = [PARAM.match(param.strip()) for param in params.split(",")]
    if not all(found):
        raise Unknown(f"parameters of {name}: {params.strip()!r}")
    kernel = Kernel(name, tuple((match[2], match[1]) for match in found if match), int(threads[1]))
    line = "?"
    for statement in _statements(body):
        if statement.startswith(".loc"):
            line = statement.split()[2]
        elif statement.endswith(":"):
            if kernel.blocks[-1]:
                kernel.blocks.append([])
            kernel.labels[statement[:-1]] = len(kernel.blocks) - 1
        elif match := REGISTERS.match(statement):
            kernel.registers |= {f"{match[2]}{i}": match[1] for i in range(int(match[3]))}
        elif not statement.startswith(SAYS_NOTHING):
            _append(kernel, statement, line)
    return kernel


def _statements(body: str) -> Iterator[str]:
    """Labels and directives stand on a line of their own, all else ends with a semicolon."""
    pending = ""
    for raw in body.splitlines():
        text = " ".join(raw.split())
        if not pending and (text.endswith(":") or text.startswith(SAYS_NOTHING)):
            yield text
            continue
        *complete, pending = (pending + " " + text).split(";")
        pending = pending.strip()
        yield from (statement.strip() for statement in complete if statement.strip())
    if pending:
        raise Unknown(f"unfinished: {pending}")


def _append(kernel: Kernel, statement: str, line: str) -> None:
    match = INSTRUCTION.match(statement)
    if match is None:
        raise Unknown(statement)
    negated, guard, opcode, operands = match.groups()
    split = tuple(part.strip() for part in re.split(r",(?![^{]*\})", operands) if part.strip())
    kernel.blocks[-1].append(
        Instruction(opcode, split, (guard, bool(negated)) if guard else None, line, statement)
    )
    if opcode.split(".")[0] in ENDS_BLOCK:
        kernel.blocks.append([])
