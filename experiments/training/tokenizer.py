"""A byte-level BPE tokenizer of our own, and the files transformers reads it from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from experiments.io import write_json
from mtp.files import whole

END = "<|endoftext|>"


def train_tokenizer(texts: Iterable[str], vocab: int) -> Tokenizer:
    """vocab: entries, the 256 bytes and END included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> int:
    """Makes the folder. Returns the end token's id."""
    folder.mkdir(parents=True, exist_ok=True)
    with whole(folder / "tokenizer.json") as aside:
        tokenizer.save(str(aside))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    write_json(folder / "tokenizer_config.json", settings, indent=2)
    end: int | None = tokenizer.token_to_id(END)
    assert end is not None
    return end
