"""What the trainer needs of a model family: a target, a drafter, the folder they live in."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

# layer type -> keys, values [batch, kv heads, tokens, head size], rotated
KV = Mapping[str, tuple[Tensor, Tensor]]


class TargetRows(NamedTuple):
    """What a target leaves for its drafter."""

    hidden: Tensor  # [batch, tokens, hidden] after the last norm
    kv: KV  # of the last layer of each type that has its own; empty where drafters read none


class ChainStep(NamedTuple):
    """One step of a chain, for every anchor of a text."""

    hidden: Tensor  # [batch, anchors, hidden], what the next step reads as the target's row
    logits: Tensor  # [batch, anchors, vocabulary]
    # [batch, anchors, clusters] logits, where the head chooses clusters of the vocabulary first
    clusters: Tensor | None = None

    @property
    def picks(self) -> Tensor:
        """[batch, anchors] int64, the best of each row."""
        return self.logits.argmax(-1)


class ChainTarget(Protocol):
    """What a chain needs of its target beside its rows."""

    def embed(self, ids: Tensor) -> Tensor:
        """ids: [..] -> [.., hidden], scaled as the target's first layer gets them."""

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [.., hidden] after a last norm -> [.., tokens that are drafted]."""


class TrainableTarget(nn.Module, ABC):
    shape: Any  # its sizes, a dataclass with `vocab` and `context`

    @abstractmethod
    def state(self) -> Any:
        """An empty cache for `forward` to fill and continue from."""

    @abstractmethod
    def forward(self, ids: Tensor, state: Any = None) -> Tensor:
        """ids: [batch, tokens] -> hidden rows after the last norm [batch, tokens, hidden]."""

    @abstractmethod
    def read(self, ids: Tensor) -> TargetRows:
        """ids: [batch, tokens]."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [.., hidden] -> [.., vocabulary]."""

    @abstractmethod
    def embed(self, ids: Tensor) -> Tensor:
        """ids: [..] -> [.., hidden]."""


class TrainableDrafter(nn.Module, ABC):
    @abstractmethod
    def chain(
        self, target: Any, ids: Tensor, read: TargetRows, depth: int, own: bool = False
    ) -> list[ChainStep]:
        """Drafts 1..depth at every anchor t = 0..anchors - 1 of a text, anchors = tokens - depth.

        Step s of anchor t reads token t + s + 1 (own: the pick of step s - 1) and the target's
        state after tokens 0..t alone.

        target: a `ChainTarget`, or what else the drafter is made for
        ids: [batch, tokens]
        read: the target's rows of these tokens
        """

    def beside(self, step: ChainStep, hidden: Tensor, wanted: Tensor) -> Tensor:
        """What is minimised beside the distance of a step's distributions: a scalar.

        hidden: the target's rows [batch, anchors, hidden]
        wanted: its distributions [batch, anchors, vocabulary]
        """
        return torch.zeros(())


@dataclass(frozen=True)
class TrainableFamily:
    """What the trainer builds, writes and says of one family of models."""

    name: str  # of the shipped model: model=NAME
    shape: type  # a frozen dataclass
    target: Callable[[Any], TrainableTarget]  # of a shape
    drafter: Callable[[Any], TrainableDrafter]  # of a target, to begin training with
    write: Callable[[Any, Any, Tokenizer, Path], None]  # target, drafter -> a folder, bf16
    write_drafter: Callable[[Any, Path], None]  # -> a file
    # a folder and, where it is not the finished one, the drafter's file, fp32
    read: Callable[..., tuple[Any, Any, Tokenizer]]
    # for the card: shape, MB of weights, MB in all -> paragraphs
    about: Callable[[dict[str, Any], float, float], list[str]]
    drafters: Mapping[str, str]  # name -> file in the folder, the finished one last
    # share of the drafter's time -> which of the others is written then
    snapshots: Mapping[float, str] = field(default_factory=dict)
    beside: str = ""  # for the card: what is minimised beside the distance to the target
    measured: str = ""  # for the card: what was tried


FAMILIES = {
    "qwen3_5": "experiments.training.qwen_folder",
    "gemma4": "experiments.training.gemma_folder",
}


def family(name: str) -> TrainableFamily:
    """Imported on first use: gemma4 needs transformers."""
    found: TrainableFamily = importlib.import_module(FAMILIES[name]).FAMILY
    return found
