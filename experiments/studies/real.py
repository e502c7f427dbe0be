"""The cells on recorded tapes: every drafter and text, at three row prices and two batch sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.studies.cell import HEAD, Cell

DRAFTERS = ("tiny_qwen_high", "tiny_qwen_mid", "tiny_qwen_low", "prompt_lookup")
TEXTS = ("code", "prose", "mixed")
# d / a. A look-up is one pass over the text for any number of drafts: seven took 1.0 times as long
# as one, and windows with three no longer than with none (docs/costs.md).
LOOK_UP = 0.0


@dataclass(frozen=True)
class RecordedDesign:
    """Recorded tapes of experiments/assets/tapes."""

    drafters: tuple[str, ...] = DRAFTERS
    texts: tuple[str, ...] = TEXTS  # `mixed`: the code and the prose requests in turn

    def cells(self) -> list[Cell]:
        cells = []
        for drafter in self.drafters:
            draft = LOOK_UP if drafter == "prompt_lookup" else HEAD
            for text in self.texts:
                folder = (
                    f"{drafter}-code+{drafter}-prose" if text == "mixed" else f"{drafter}-{text}"
                )
                for slots in (2, 4):
                    for ratio in (0.03, 0.1, 0.25):
                        cell = Cell("", "tape", folder, slots, ratio=ratio, draft=draft)
                        cells.append(replace(cell, name=f"{drafter}-{text}-s{slots}-b{ratio:g}"))
        return cells
