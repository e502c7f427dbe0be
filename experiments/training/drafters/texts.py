"""The text a drafter learns from, and the prompts that are cut from it.

The text is the pinned corpus or files of yours.
"""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from experiments.config.checks import BadInput
from experiments.training.corpus import KINDS, Document, documents
from experiments.workloads.chat import Render

PIECE = 4000  # characters; a plain file is cut so, so that a part of it can be held out


def read(data: Sequence[str] | None) -> dict[str, list[Document]]:
    """By kind: the pinned corpus, or files, whose names are their kinds. Raises BadInput.

    data: files; .jsonl or .jsonl.xz: a `text` a line, else plain text
    """
    if data is None:
        return {kind: documents(kind) for kind in KINDS}
    found: dict[str, list[Document]] = {}
    for name in data:
        file = Path(name)
        made = list(_documents(file))
        if not any(one.held_out for one in made) or all(one.held_out for one in made):
            raise BadInput(
                f"data names {name}, which is too short to hold a part of it out, expected more "
                "text"
            )
        found.setdefault(file.name.split(".")[0], []).extend(made)
    return found


def _documents(file: Path) -> Iterator[Document]:
    with (
        lzma.open(file, "rt", encoding="utf-8")
        if file.suffix == ".xz"
        else file.open(encoding="utf-8") as lines
    ):
        if ".jsonl" in file.suffixes:
            for number, line in enumerate(lines, 1):
                try:
                    fields = json.loads(line)
                    yield Document(
                        str(fields.get("source", f"{file.name}/{number}")),
                        str(fields.get("licence", "")),
                        fields["text"],
                    )
                except (ValueError, KeyError, AttributeError) as wrong:
                    raise BadInput(
                        f"data names {file}, whose line {number} is no object with a text"
                    ) from wrong
        else:
            text = lines.read()
            for number in range(0, len(text), PIECE):
                yield Document(f"{file.name}/{number}", "", text[number : number + PIECE])


@dataclass(frozen=True)
class Prompt:
    kind: str
    ids: tuple[int, ...]
    given: bool  # all of the row, not only its beginning


@dataclass(frozen=True)
class Cut:
    """How prompts are cut."""

    length: int  # tokens of a row
    prompt: int  # tokens of a prompt, before it is rendered
    given: float  # share of rows that are all given text
    chat: float  # share of the others that are rendered as a chat
    seed: int


def prompts(
    texts: dict[str, list[Document]],
    tokenizer: Tokenizer,
    render: Render | None,
    cut: Cut,
    *,
    held_out: bool,
) -> Iterator[Prompt]:
    """Endless, the kinds by turns; the same for the same arguments. Raises BadInput.

    A row begins with a line of a document.
    """
    chance = random.Random(f"{cut.seed}-{held_out}")
    chosen = {
        kind: [one.text for one in found if one.held_out is held_out]
        for kind, found in texts.items()
    }
    failures = 0
    while True:
        for kind, found in chosen.items():
            ids, given = None, chance.random() < cut.given
            while ids is None:
                ids = _cut(
                    chance.choice(found),
                    chance,
                    tokenizer.encode,
                    cut.length if given else cut.prompt,
                )
                failures = 0 if ids else failures + 1
                if failures > 1000:
                    raise BadInput(
                        f"data of kind {kind} has no text of {cut.length} tokens, expected longer "
                        "documents or a smaller length"
                    )
            if not given and render is not None and chance.random() < cut.chat:
                ids = tokenizer.encode(
                    render(tokenizer.decode(list(ids))), add_special_tokens=False
                ).ids
                if len(ids) > cut.length - cut.prompt:
                    continue
            yield Prompt(kind, tuple(ids), given)


def _cut(
    text: str, chance: random.Random, encode: Callable[[str], object], count: int
) -> list[int] | None:
    """`count` tokens from the beginning of a line on; None: there are not so many."""
    begin = text.find("\n", chance.randrange(len(text))) + 1  # not found: the beginning of the text
    ids: list[int] = encode(text[begin : begin + 12 * count]).ids  # type: ignore[attr-defined]
    return ids[:count] if len(ids) >= count else None
