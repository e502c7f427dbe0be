"""A Hugging Face checkpoint folder: its config, stop ids and tensors, all accounted for."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from mtp.files import LFS_POINTER, is_lfs_pointer
from mtp.targets.loading.config import part_in
from mtp.targets.loading.notes import note
from mtp.targets.loading.weights import (
    EMBEDDING,
    HEAD,
    STORED_AS,
    Progress,
    Stored,
    Weights,
    stored_in,
)

MIB = 1 << 20
NAMED = 20  # tensors that one error names at most
OTHER_PARTS = tuple(
    f"model.{part}."
    for part in ("visual", "vision_tower", "audio_tower", "embed_vision", "embed_audio")
)
OTHER_PARTS += ("model.multi_modal_projector.",)
AROUND_TEXT = (  # a model of several parts says it outside of its text part
    "model_type",
    "dtype",
    "torch_dtype",
    "quantization_config",
    "backbone_hidden_size",
    "use_ordered_embeddings",
    "num_centroids",
    "centroid_intermediate_top_k",
)
WEIGHT_FILES = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".ckpt", ".npz", ".h5", ".msgpack")


class Checkpoint:
    """The files of a folder; no weight is read yet.

    weights: the one weight file that is read, relative to the folder; None: all that lie in it

    config: the text model's settings; of a multimodal config's outer ones only what is of the whole
    tokenizer: path of tokenizer.json, None without one
    left_out: weight files of the folder that are not read

    Raises ValueError, one line: a missing path or config, broken files, a tensor stored twice.
    """

    def __init__(self, path: str | Path, weights: str | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise ValueError(f"checkpoint {self.path}: no such folder")
        outer = self._json("config.json")
        if outer is None:
            raise ValueError(f"checkpoint {self.path}: no config.json")
        text = self._part(outer, "text_config")
        around = {key: outer[key] for key in AROUND_TEXT if key in outer} if text else outer
        self.config: dict[str, Any] = {**around, **text}
        if "tie_word_embeddings" in outer:  # the outer model owns the head
            self.config["tie_word_embeddings"] = outer["tie_word_embeddings"]
        generation = self._json("generation_config.json") or {}
        self._stops = {
            "config.json: eos_token_id": outer.get("eos_token_id"),
            "config.json: text_config.eos_token_id": text.get("eos_token_id"),
            "generation_config.json: eos_token_id": generation.get("eos_token_id"),
            "tokenizer_config.json: eos_token": self._tokenizer_stop(),
        }
        try:
            self.stop_ids = unite_stop_ids(self._stops)
        except ValueError as error:
            raise ValueError(f"checkpoint {self.path}: {error}") from error
        tokenizer = self.path / "tokenizer.json"
        self.tokenizer = tokenizer if tokenizer.is_file() else None
        self._stored = self._index(weights)

    def check_stop_ids(self, vocab: int) -> None:
        """Raises ValueError, one line, for one that no pick can be: the text would never end."""
        for where, named in self._stops.items():
            if max(unite_stop_ids({where: named}), default=0) >= vocab:
                raise ValueError(
                    f"checkpoint {self.path}: {where} is {named}, "
                    f"expected token ids below {vocab} (vocab_size)"
                )

    def holds(self, prefix: str) -> bool:
        """Whether a tensor's name begins so."""
        return any(name.startswith(prefix) for name in self._stored)

    def stored_as(self) -> torch.dtype | None:
        """The dtype that config.json names, else that of the embedding."""
        named = self.config.get("dtype") or self.config.get("torch_dtype")
        if named is not None:
            return getattr(torch, str(named).removeprefix("torch."), None)
        embedding = self._stored.get(EMBEDDING) or self._stored.get(HEAD)
        return STORED_AS.get(embedding.dtype) if embedding is not None else None

    def matrices(self) -> Counter[tuple[int, int]]:
        """Shapes [out, in] that a row is multiplied with, and how many of each.

        A tied head counts once, experts as they are stored.
        """
        shapes = {
            name: one.shape
            for name, one in self._stored.items()
            if name.startswith(("model.", "lm_head.")) and len(one.shape) == 2
        }
        shapes.pop("model.embed_tokens_per_layer.weight", None)
        if HEAD in shapes:
            shapes.pop(EMBEDDING, None)
        return Counter((shape[0], shape[1]) for shape in shapes.values())

    def fingerprint(self, name: str) -> str:
        """A hash of a tensor's dtype, shape, first and last MiB: are two checkpoints of one model?

        Raises ValueError where there is no such tensor.
        """
        if name not in self._stored:
            raise ValueError(f"checkpoint {self.path}: missing {name}")
        one = self._stored[name]
        found = hashlib.sha256(f"{one.dtype} {list(one.shape)}".encode())
        with one.file.open("rb") as opened:
            for begin in (one.offset, max(one.offset, one.offset + one.size - MIB)):
                opened.seek(begin)
                found.update(opened.read(min(MIB, one.size)))
        return found.hexdigest()

    def shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Of the tensors whose name begins so."""
        return {name: one.shape for name, one in self._stored.items() if name.startswith(prefix)}

    def read(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        prefixes: tuple[str, ...],
        dtype: torch.dtype,
        device: torch.device,
        optional: Iterable[str] = (),
        progress: Progress | None = None,
    ) -> Weights:
        """Tensors by name. Every name under the prefixes must be one of `shapes`, with that shape.

        A multimodal file's `model.language_model.` counts as `model.`; its other parts are left
        alone. Raises ValueError, one line, that lists what is missing, mis-shaped, of another dtype
        or unknown.
        """
        found = {name: self._stored[name] for name in shapes if name in self._stored}
        problems = {
            "missing": [name for name in shapes if name not in found and name not in set(optional)],
            "mis-shaped": [
                f"{name} {list(one.shape)} (expected {list(shapes[name])})"
                for name, one in found.items()
                if one.shape != shapes[name]
            ],
            "of another dtype": [
                f"{name} {one.dtype} (expected {', '.join(STORED_AS)})"
                for name, one in found.items()
                if one.dtype not in STORED_AS
            ],
            "unknown": sorted(
                name for name in self._stored if name.startswith(prefixes) and name not in shapes
            ),
        }
        if any(problems.values()):
            raise ValueError(
                f"checkpoint {self.path}: "
                + "; ".join(f"{kind} {_listed(names)}" for kind, names in problems.items() if names)
            )
        return Weights(found, dtype=dtype, device=device, progress=progress)

    def _index(self, weights: str | None) -> dict[str, Stored]:
        """By our name for a tensor: where it lies."""
        index = self._json("model.safetensors.index.json")
        if weights is not None:
            files = [weights]
        elif index is None:
            files = sorted(file.name for file in self.path.glob("*.safetensors"))
        else:
            files = sorted(set(self._part(index, "weight_map").values()))
        self.left_out = sorted(
            file.name
            for file in self.path.iterdir()
            if file.suffix in WEIGHT_FILES and file.name not in files
        )
        if not files:
            instead = (
                f" but {', '.join(self.left_out)}, which are not read" if self.left_out else ""
            )
            raise ValueError(f"checkpoint {self.path}: no safetensors file{instead}")
        if self.left_out and weights is None:  # else one was chosen
            why = "the index does not list" if index is not None else "are no safetensors"
            note(f"checkpoint {self.path}: left out, {why}: {', '.join(self.left_out)}")
        found: dict[str, Stored] = {}
        doubled: list[str] = []
        for file in files:
            try:
                held = stored_in(self.path / file)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise ValueError(f"checkpoint {self.path}: cannot read {file}: {error}") from error
            for stored, one in sorted(held.items()):
                name = our_name(stored)
                if name is None:
                    continue
                if name in found:
                    doubled.append(f"{name} (in {found[name].file.name} and {file})")
                found[name] = one
        if doubled:
            raise ValueError(f"checkpoint {self.path}: doubled {_listed(doubled)}")
        return found

    def _json(self, name: str) -> dict[str, Any] | None:
        file = self.path / name
        if not file.is_file():
            return None
        if is_lfs_pointer(file):
            raise ValueError(f"checkpoint {self.path}: {name} {LFS_POINTER}")
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"checkpoint {self.path}: {name} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise ValueError(f"checkpoint {self.path}: {name} holds no object")
        return value

    def _part(self, outer: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        try:
            return part_in(outer, key)
        except ValueError as error:
            raise ValueError(f"checkpoint {self.path}: {error}") from error

    @cached_property
    def highest_token(self) -> int | None:
        """The highest id that text encodes to, None without a tokenizer.

        Special tokens past the others do not count: a text model may share its tokenizer with one
        that also sees images.
        """
        tokenizer = self._json("tokenizer.json") or {}
        vocabulary = (tokenizer.get("model") or {}).get("vocab") or {}
        plain = [
            int(added["id"])
            for added in tokenizer.get("added_tokens") or []
            if not added.get("special")
        ]
        # byte-level and WordPiece tables go from a text to its id; Unigram's is a list
        ids = [
            *(vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))),
            *plain,
        ]
        return max(ids, default=None)

    def _tokenizer_stop(self) -> int | None:
        """The id of the tokenizer's own end token."""
        settings = self._json("tokenizer_config.json") or {}
        token = settings.get("eos_token")
        token = token.get("content") if isinstance(token, dict) else token
        if not isinstance(token, str):
            return None
        for number, added in (settings.get("added_tokens_decoder") or {}).items():
            if added.get("content") == token:
                return int(number)
        tokenizer = self._json("tokenizer.json") or {}
        for added in tokenizer.get("added_tokens") or []:
            if added.get("content") == token:
                return int(added["id"])
        vocabulary = (tokenizer.get("model") or {}).get("vocab")
        return vocabulary.get(token) if isinstance(vocabulary, dict) else None


def unite_stop_ids(sources: Mapping[str, Any]) -> frozenset[int]:
    """One set of what config, generation config and tokenizer each name: an id, several, or none.

    sources: by file and key. Raises ValueError, one line, for anything else.
    """
    united: set[int] = set()
    for where, source in sources.items():
        named = source.tolist() if isinstance(source, torch.Tensor) else source
        ids = named if isinstance(named, list) else [named] if named is not None else []
        if not all(type(one) is int and one >= 0 for one in ids):
            raise ValueError(f"{where} is {source!r}, expected token ids")
        united.update(ids)
    return frozenset(united)


def our_name(stored: str) -> str | None:
    """None: a part of a multimodal model that is not its language model."""
    if stored.startswith(OTHER_PARTS):
        return None
    if stored.startswith("model.language_model."):
        return "model." + stored.removeprefix("model.language_model.")
    # as Gemma 3's multimodal files were first published
    return stored.removeprefix("language_model.")


def _listed(names: list[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
