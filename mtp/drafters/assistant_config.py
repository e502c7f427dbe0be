"""config.json of a Gemma 4 assistant, and whether a target is the one it was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mtp.targets.gemma.config import ALIASES, GEMMA4, GemmaConfig
from mtp.targets.loading.config import follow, size_in


@dataclass(frozen=True)
class AssistantConfig:
    text: GemmaConfig
    backbone: int  # the target's hidden size
    clusters: int  # of equal size, in which the vocabulary lies; 0 = the head has none
    chosen: int  # best clusters, whose tokens get logits

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> AssistantConfig:
        """From config.json, the text part's settings over the outer ones.

        Raises ValueError, one line, for what the code here does not follow.
        """
        kind = raw.get("model_type")
        if "backbone_hidden_size" not in raw or ALIASES.get(str(kind), kind) != GEMMA4:
            raise ValueError(
                f"config.json: model_type is {kind!r}, expected gemma4_assistant with a {GEMMA4} "
                "part and backbone_hidden_size"
            )
        follow(
            {
                "hidden_size_per_layer_input": (raw.get("hidden_size_per_layer_input"), 0),
                "enable_moe_block": (bool(raw.get("enable_moe_block", False)), False),
                "use_double_wide_mlp": (bool(raw.get("use_double_wide_mlp", False)), False),
            }
        )
        layers = size_in(raw, "num_hidden_layers")
        shared = size_in(raw, "num_kv_shared_layers", 0, least=0) or layers
        if shared != layers:
            raise ValueError(
                f"config.json: num_kv_shared_layers is {shared}, expected all {layers} layers of "
                "an assistant"
            )
        text = GemmaConfig.layers_of({**raw, "num_kv_shared_layers": layers})
        # transformers masks by the distance from the last committed row, and sees those at a
        # distance of the whole window too
        forms = tuple(
            form if form.sliding is None else replace(form, sliding=form.sliding + 1)
            for form in text.forms
        )
        clusters = size_in(raw, "num_centroids", 2048) if raw.get("use_ordered_embeddings") else 0
        chosen = size_in(raw, "centroid_intermediate_top_k", 32) if clusters else 0
        if clusters and (text.vocab % clusters or chosen > clusters):
            raise ValueError(
                f"config.json: num_centroids is {clusters} and centroid_intermediate_top_k "
                f"{chosen}, expected a divisor of {text.vocab} (vocab_size) and at most as many"
            )
        return cls(
            replace(text, forms=forms), size_in(raw, "backbone_hidden_size"), clusters, chosen
        )

    def check_fit(self, hidden: int, vocab: int, kv: Mapping[str, tuple[int, int]]) -> None:
        """Raises ValueError, one line, for another target than the one it was made for.

        kv: by layer type, the target's key heads and head size.
        """
        pairs: dict[str, tuple[Any, Any]] = {
            "hidden size": (self.backbone, hidden),
            "vocabulary": (self.text.vocab, vocab),
        }
        for form in self.text.forms:
            heads, size = kv.get(form.layer_type, (0, 0))
            pairs |= {
                f"{form.layer_type} key heads": (form.kv_heads, heads),
                f"{form.layer_type} head size": (form.size, size),
            }
        for name, (mine, theirs) in pairs.items():
            if mine != theirs:
                raise ValueError(
                    f"the assistant is made for a target of {name} {mine}, "
                    f"but this target has {theirs}"
                )
