"""Tiny GGUF files of random weights, with the metadata that the converted packages have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType
from tokenizers import pre_tokenizers

WORDS = ["he", "ll", "hell", "hello", "Ġw", "Ġhe", "12"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ he", "1 2"]


def write_llama_gguf(
    path: Path,
    *,
    hidden: int = 32,
    heads: int = 4,
    kv_heads: int = 2,
    layers: int = 2,
    inner: int = 48,
) -> Path:
    """Tied, byte-level BPE as SmolLM's. Values are small integers over 64: bf16 holds them
    exactly."""
    tokens = [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        *WORDS,
    ]
    writer = _writer(path, "llama", hidden, heads, kv_heads, layers, inner)
    writer.add_rope_freq_base(10_000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(
        "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    )
    size = hidden // heads
    shapes = {"token_embd": (len(tokens), hidden), "output_norm": (hidden,)}
    for i in range(layers):
        shapes |= {
            f"blk.{i}.attn_norm": (hidden,),
            f"blk.{i}.ffn_norm": (hidden,),
            f"blk.{i}.attn_q": (heads * size, hidden),
            f"blk.{i}.attn_k": (kv_heads * size, hidden),
            f"blk.{i}.attn_v": (kv_heads * size, hidden),
            f"blk.{i}.attn_output": (hidden, heads * size),
            f"blk.{i}.ffn_gate": (inner, hidden),
            f"blk.{i}.ffn_up": (inner, hidden),
            f"blk.{i}.ffn_down": (hidden, inner),
        }
    return _finish(writer, path, shapes)


def write_gemma3_gguf(
    path: Path,
    *,
    hidden: int = 32,
    heads: int = 2,
    size: int = 24,
    layers: int = 7,
    inner: int = 48,
) -> Path:
    """One kv head, SentencePiece-BPE as Gemma's."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    spaces = ["\n", "\n\n", "  ", "   "]
    letters = ["▁", *"helowrd", "é"]
    words = ["he", "ll", "hell", "hello", "▁w", "wo", "▁wo", "▁wor", "▁world"]
    tokens = [*special, *spaces, *[f"<0x{byte:02X}>" for byte in range(256)], *letters, *words]
    types = (
        [TokenType.CONTROL] * 4
        + [TokenType.USER_DEFINED] * 4
        + [TokenType.BYTE] * 256
        + [TokenType.NORMAL] * (len(letters) + len(words))
    )
    writer = _writer(path, "gemma3", hidden, heads, 1, layers, inner)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_sliding_window(16)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(
        [-1000.0] * 8
        + [0.0] * 256
        + [-100.0] * len(letters)
        + [-float(i) for i in range(len(words))]
    )
    writer.add_token_types(types)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    shapes = {"token_embd": (len(tokens), hidden), "output_norm": (hidden,)}
    for i in range(layers):
        norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        shapes |= {f"blk.{i}.{norm}": (hidden,) for norm in norms} | {
            f"blk.{i}.attn_{one}_norm": (size,) for one in "qk"
        }
        shapes |= {
            f"blk.{i}.attn_q": (heads * size, hidden),
            f"blk.{i}.attn_k": (size, hidden),
            f"blk.{i}.attn_v": (size, hidden),
            f"blk.{i}.attn_output": (hidden, heads * size),
            f"blk.{i}.ffn_gate": (inner, hidden),
            f"blk.{i}.ffn_up": (inner, hidden),
            f"blk.{i}.ffn_down": (hidden, inner),
        }
    return _finish(writer, path, shapes)


def _writer(
    path: Path, kind: str, hidden: int, heads: int, kv_heads: int, layers: int, inner: int
) -> GGUFWriter:
    writer = GGUFWriter(path, kind)
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    return writer


def _finish(writer: GGUFWriter, path: Path, shapes: dict[str, tuple[int, ...]]) -> Path:
    random = np.random.default_rng(0)
    for name, shape in shapes.items():
        offset = 1 if len(shape) == 1 else 0
        writer.add_tensor(
            f"{name}.weight", (offset + random.integers(-16, 17, shape) / 64).astype(np.float32)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
