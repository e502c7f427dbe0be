"""What the trainer asks of a model family: a target, a drafter, the folder they live in."""

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

KV = Mapping[
    str, tuple[Tensor, Tensor]
]  # layer type -> keys, values [batch, kv heads, tokens, head size], rotated


class Read(NamedTuple):
    """What a target leaves for its drafter."""

    hidden: Tensor  # [batch, tokens, hidden] after the last norm
    kv: KV  # of the last layer of each type that has its own; empty where drafters read none


class Drafted(NamedTuple):
    """One step of a chain, for every anchor of a text."""

    hidden: Tensor  # [batch, anchors, hidden], what the next step reads as the target's row
    logits: Tensor  # [batch, anchors, vocabulary]
    clusters: Tensor | None = (
        None  # [batch, anchors, clusters] logits, where the head chooses clusters of the vocabulary first
    )

    @property
    def picks(self) -> Tensor:
        return self.logits.argmax(-1)


class Frozen(Protocol):
    """What a chain needs of its target beside its rows."""

    def embed(self, ids: Tensor) -> Tensor:
        """ids: [..] -> [.., hidden], scaled as the target's first layer gets them."""

    def logits(self, hidden: Tensor) -> Tensor: ...


class Target(nn.Module, ABC):
    shape: Any  # its sizes, a dataclass with `vocab` and `context`

    @abstractmethod
    def state(self) -> Any:
        """An empty cache for `forward` to fill and continue from."""

    @abstractmethod
    def forward(self, ids: Tensor, state: Any = None) -> Tensor:
        """ids: [batch, tokens] -> hidden rows after the last norm [batch, tokens, hidden]."""

    @abstractmethod
    def read(self, ids: Tensor) -> Read: ...

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor: ...

    @abstractmethod
    def embed(self, ids: Tensor) -> Tensor: ...


class Drafter(nn.Module, ABC):
    @abstractmethod
    def chain(
        self, target: Any, ids: Tensor, read: Read, depth: int, own: bool = False
    ) -> list[Drafted]:
        """Drafts 1..depth at every anchor t = 0..anchors - 1 of a text, anchors = tokens - depth.

        target: a `Frozen`, or what else the drafter is made for; ids: [batch, tokens]; read: of these tokens. Step s of anchor t
        reads token t + s + 1 (own: the pick of step s - 1) and the target's state after tokens 0..t alone.
        """

    def beside(self, step: Drafted, hidden: Tensor, wanted: Tensor) -> Tensor:
        """What is minimised beside the distance of a step's distributions. hidden: the target's rows [batch, anchors, hidden];
        wanted: its distributions [batch, anchors, vocabulary]."""
        return torch.zeros(())


@dataclass(frozen=True)
class Family:
    """drafters: name -> file in the folder, the last one is the finished one; snapshots: share of the drafter's time -> which of the
    others is written then. about, beside, measured: what the card says of the model, of what is minimised beside the distance to
    the target, and of what was tried."""

    name: str  # of the shipped model: model=NAME
    shape: type  # a frozen dataclass
    target: Callable[[Any], Target]  # of a shape
    drafter: Callable[[Any], Drafter]  # of a target, to begin training with
    write: Callable[[Any, Any, Tokenizer, Path], None]  # target, drafter -> a folder, bf16
    write_drafter: Callable[[Any, Path], None]  # -> a file
    read: Callable[
        ..., tuple[Any, Any, Tokenizer]
    ]  # a folder and, where it is not the finished one, the drafter's file, fp32
    about: Callable[
        [dict[str, Any], float, float], list[str]
    ]  # shape, MB of weights, MB in all -> paragraphs
    drafters: Mapping[str, str]
    snapshots: Mapping[float, str] = field(default_factory=dict)
    beside: str = ""
    measured: str = ""


FAMILIES = {
    "qwen3_5": "experiments.training.qwen_folder",
    "gemma4": "experiments.training.gemma_folder",
}


def family(name: str) -> Family:
    """Imported when asked for: gemma4 needs transformers."""
    found: Family = importlib.import_module(FAMILIES[name]).FAMILY
    return found
