"""Command lines that are not Hydra's."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Command(argparse.ArgumentParser):
    """Bad input ends with one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")
