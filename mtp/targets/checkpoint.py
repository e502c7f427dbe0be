"""A Hugging Face checkpoint folder: its config, stop ids and tensors, every one of which is accounted for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from mtp.targets.config import TextConfig

NAMED = 20  # tensors that one error names at most


class Checkpoint:
    """weights: the one weight file that is read, relative to the folder; None: all that lie in it.

    config: the text model's settings, a multimodal config's outer ones filling what it leaves out. tokenizer: path of
    tokenizer.json, None without one. Refuses, in one line: a missing path or config, broken files, a tensor stored twice.
    """

    def __init__(self, path: str | Path, weights: str | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise ValueError(f"checkpoint {self.path}: no such folder")
        outer = self._json("config.json")
        if outer is None:
            raise ValueError(f"checkpoint {self.path}: no config.json")
        self.config: dict[str, Any] = outer | (outer.get("text_config") or {})
        if "tie_word_embeddings" in outer:  # the outer model owns the head
            self.config["tie_word_embeddings"] = outer["tie_word_embeddings"]
        generation = self._json("generation_config.json") or {}
        self.stop_ids = unite_stop_ids(
            outer.get("eos_token_id"), self.config.get("eos_token_id"), generation.get("eos_token_id"), self._tokenizer_stop()
        )
        tokenizer = self.path / "tokenizer.json"
        self.tokenizer = tokenizer if tokenizer.is_file() else None
        self._files = self._index(weights)

    def text_config(self) -> TextConfig:
        """Refuses, in one line, an architecture that is not supported."""
        try:
            return TextConfig.read(self.config)
        except ValueError as error:
            raise ValueError(f"checkpoint {self.path}: {error}") from error

    def holds(self, prefix: str) -> bool:
        """Whether a tensor's name begins so."""
        return any(name.startswith(prefix) for names in self._files.values() for name in names)

    def read(self, shapes: Mapping[str, tuple[int, ...]], *, prefixes: tuple[str, ...], optional: Iterable[str] = ()) -> dict[str, Tensor]:
        """Tensors by name, as stored, on the CPU. Every name under the prefixes must be one of `shapes`, with that shape.

        A multimodal file's `model.language_model.` counts as `model.`; its other parts are not looked at."""
        found: dict[str, Tensor] = {}
        wrong: list[str] = []
        for file, names in self._files.items():
            with safe_open(self.path / file, "pt") as opened:
                for name, stored in names.items():
                    if name not in shapes:
                        continue
                    shape = tuple(opened.get_slice(stored).get_shape())
                    if shape == shapes[name]:
                        # into aligned memory of its own: on a CPU a product's last bits depend on its operands' alignment
                        found[name] = opened.get_tensor(stored).clone()
                    else:
                        wrong.append(f"{name} {list(shape)} (expected {list(shapes[name])})")
        stored_names = {name for names in self._files.values() for name in names}
        problems = {
            "missing": [name for name in shapes if name not in stored_names and name not in set(optional)],
            "mis-shaped": wrong,
            "unknown": sorted(name for name in stored_names if name.startswith(prefixes) and name not in shapes),
        }
        if any(problems.values()):
            raise ValueError(
                f"checkpoint {self.path}: " + "; ".join(f"{kind} {_listed(names)}" for kind, names in problems.items() if names)
            )
        return found

    def _index(self, weights: str | None) -> dict[str, dict[str, str]]:
        """Per file, our tensor name -> the stored one."""
        index = self._json("model.safetensors.index.json")
        if weights is not None:
            files = [weights]
        elif index is None:
            files = sorted(file.name for file in self.path.glob("*.safetensors"))
        else:
            files = sorted(set(index.get("weight_map", {}).values()))
        if not files:
            raise ValueError(f"checkpoint {self.path}: no safetensors file")
        seen: dict[str, str] = {}
        doubled: list[str] = []
        result: dict[str, dict[str, str]] = {}
        for file in files:
            try:
                with safe_open(self.path / file, "pt") as opened:
                    stored_names = sorted(opened.keys())
            except (OSError, SafetensorError) as error:
                raise ValueError(f"checkpoint {self.path}: cannot read {file}: {error}") from error
            names = result.setdefault(file, {})
            for stored in stored_names:
                name = our_name(stored)
                if name is None:
                    continue
                if name in seen:
                    doubled.append(f"{name} (in {seen[name]} and {file})")
                seen[name] = file
                names[name] = stored
        if doubled:
            raise ValueError(f"checkpoint {self.path}: doubled {_listed(doubled)}")
        return result

    def _json(self, name: str) -> dict[str, Any] | None:
        file = self.path / name
        if not file.is_file():
            return None
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"checkpoint {self.path}: {name} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise ValueError(f"checkpoint {self.path}: {name} holds no object")
        return value

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


def unite_stop_ids(*sources: int | Iterable[int] | None) -> frozenset[int]:
    """One set of what config, generation config and tokenizer each name: an id, several, or none."""
    united: set[int] = set()
    for source in sources:
        if source is None:
            continue
        try:
            united |= {int(one) for one in source}  # type: ignore[union-attr]
        except TypeError:
            united.add(int(source))  # type: ignore[arg-type]
    return frozenset(united)


def our_name(stored: str) -> str | None:
    """None: a part of a multimodal model that is not its language model."""
    if stored.startswith("model.visual."):
        return None
    return "model." + stored.removeprefix("model.language_model.") if stored.startswith("model.language_model.") else stored


def _listed(names: list[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
