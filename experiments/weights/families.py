"""What converting a GGUF file needs of its architecture.

config.json, tensor names, and what llama.cpp changed in the values.

Sources of the rules: llama.cpp's converters of Hugging Face models (the names; Llama's rotated
pairs are stored side by side there and half a head apart here; Gemma's norms are stored with the 1
added that the model adds), and for what a GGUF file of Gemma 3 does not say (every 6th layer is
full, theta 10,000 of the others) llama.cpp's own code for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from einops import rearrange

Fields = Callable[[str], Any]  # a metadata key's value; None where there is none
Array = np.ndarray[Any, Any]

OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
SHARED = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LLAMA = SHARED | {"ffn_norm": "post_attention_layernorm"}
GEMMA3 = SHARED | {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
FULL_EVERY = 6
LOCAL_THETA = 10_000.0


class Llama:
    def __init__(self, fields: Fields) -> None:
        self.heads, self.kv_heads = (
            fields("llama.attention.head_count"),
            fields("llama.attention.head_count_kv"),
        )
        self._fields = fields

    def config(self) -> dict[str, Any]:
        hidden = self._fields("llama.embedding_length")
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **_sizes(self._fields, "llama"),
            "head_dim": self._fields("llama.attention.key_length") or hidden // self.heads,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self._fields("llama.rope.freq_base") or 10_000.0,
            },
        }

    def name(self, stored: str) -> str | None:
        return _name(stored, LLAMA)

    def value(self, name: str, value: Array) -> Array:
        """Queries and keys [out, hidden]: from pairs side by side to halves."""
        heads = {"q_proj": self.heads, "k_proj": self.kv_heads}.get(name.split(".")[-2])
        if heads is None:
            return value
        return rearrange(
            value, "(head pair two) hidden -> (head two pair) hidden", head=heads, two=2
        )


class Gemma3:
    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    def config(self) -> dict[str, Any]:
        sizes, head = _sizes(self._fields, "gemma3"), self._fields("gemma3.attention.key_length")
        layers = sizes["num_hidden_layers"]
        return {
            "architectures": ["Gemma3ForCausalLM"],
            "model_type": "gemma3_text",
            **sizes,
            "head_dim": head,
            "hidden_activation": "gelu_pytorch_tanh",
            "attention_bias": False,
            "query_pre_attn_scalar": head,
            "sliding_window": self._fields("gemma3.attention.sliding_window"),
            "layer_types": [
                "sliding_attention" if (i + 1) % FULL_EVERY else "full_attention"
                for i in range(layers)
            ],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": LOCAL_THETA},
                "full_attention": {
                    "rope_type": "default",
                    "rope_theta": self._fields("gemma3.rope.freq_base") or 1_000_000.0,
                },
            },
            "final_logit_softcapping": None,
            "attn_logit_softcapping": None,
        }

    def name(self, stored: str) -> str | None:
        return _name(stored, GEMMA3)

    def value(self, name: str, value: Array) -> Array:
        return value - 1 if name.endswith("norm.weight") else value


FAMILIES: dict[str, type[Llama] | type[Gemma3]] = {"llama": Llama, "gemma3": Gemma3}


def _sizes(fields: Fields, kind: str) -> dict[str, Any]:
    return {
        "vocab_size": len(fields("tokenizer.ggml.tokens")),
        "hidden_size": fields(f"{kind}.embedding_length"),
        "intermediate_size": fields(f"{kind}.feed_forward_length"),
        "num_hidden_layers": fields(f"{kind}.block_count"),
        "num_attention_heads": fields(f"{kind}.attention.head_count"),
        "num_key_value_heads": fields(f"{kind}.attention.head_count_kv"),
        "max_position_embeddings": fields(f"{kind}.context_length"),
        # stored in 32 bits
        "rms_norm_eps": float(f"{fields(f'{kind}.attention.layer_norm_rms_epsilon'):.6g}"),
    }


def _name(stored: str, layer: dict[str, str]) -> str | None:
    """The checkpoint's name of a stored tensor; None: there is none."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", stored):
        inner = layer.get(match[2])
        return inner and f"model.layers.{match[1]}.{inner}.weight"
    outer = OUTER.get(stored.removesuffix(".weight"))
    return outer and f"{outer}.weight"
