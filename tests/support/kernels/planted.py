"""Copies of the kernels with a fault planted in them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import triton_kernels
from tests.emulator.memory import MemoryFault
from tests.support.kernels.checks import KERNELS

SOURCE = Path(triton_kernels.__file__).parent
USUAL = {"slots": 5, "depth": 3, "bucket": 8}
WRONG = (AssertionError, MemoryFault)


class Fault(NamedTuple):
    """right: text of `file` that becomes `wrong`; check, sizes: what must notice it, and by
    which exceptions."""

    name: str
    file: str
    right: str
    wrong: str
    check: str
    sizes: dict[str, Any] = USUAL
    notices: tuple[type[Exception], ...] = WRONG


@contextmanager
def planted(fault: Fault, folder: Path) -> Iterator[Any]:
    """A copy of the package, under its own name and with its own operations, that has the fault."""
    name = f"planted_{fault.name}"
    package = folder / name
    package.mkdir()
    for path in SOURCE.glob("*.py"):
        text = path.read_text().replace("triton_kernels", name).replace('"mtplab"', f'"{name}"')
        if path.name == fault.file:
            assert fault.right in text, f"{fault.name}: there is nowhere to plant this"
            text = text.replace(fault.right, fault.wrong)
        (package / path.name).write_text(text)
    sys.path.insert(0, str(folder))
    try:
        yield SimpleNamespace(
            **{part: importlib.import_module(f"{name}.{part}") for part in vars(KERNELS)}
        )
    finally:
        sys.path.remove(str(folder))
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[module]
