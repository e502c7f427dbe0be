"""A GGUF file's tokenizer as tokenizer.json.

Byte-level BPE as SmolLM has it, and SentencePiece-BPE as Gemma has it.
"""

from __future__ import annotations

from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from experiments.weights.families import Fields

CONTROL, USER_DEFINED = 3, 4  # token types of a GGUF file
SPACE = "▁"


def tokenizer_of(fields: Fields) -> Tokenizer:
    """Raises ValueError for a kind that is not known here: a wrong split would be silent."""
    kind, split = fields("tokenizer.ggml.model"), fields("tokenizer.ggml.pre")
    if (kind, split) == ("gpt2", "smollm"):
        tokenizer = _byte_level(fields)
    elif (kind, split) == ("llama", "default"):
        tokenizer = _sentence_piece(fields)
    else:
        raise ValueError(
            f"the GGUF tokenizer is {kind!r} split as {split!r}, supported: gpt2 as smollm, llama "
            "as default"
        )
    types = fields("tokenizer.ggml.token_type")
    special, added = [], []
    for token, type_ in zip(fields("tokenizer.ggml.tokens"), types, strict=True):
        if type_ == CONTROL:
            special.append(AddedToken(token, special=True, normalized=False))
        elif type_ == USER_DEFINED:
            # a run of spaces is one token, and spaces are only such after normalising
            added.append(
                AddedToken(token.replace(" ", SPACE), special=False, normalized=" " in token)
            )
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(added)
    if fields("tokenizer.ggml.add_bos_token"):
        begin = fields("tokenizer.ggml.bos_token_id")
        text = fields("tokenizer.ggml.tokens")[begin]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{text} $A", pair=f"{text} $A {text} $B", special_tokens=[(text, begin)]
        )
    return tokenizer


def settings_of(fields: Fields) -> dict[str, Any]:
    """tokenizer_config.json."""
    tokens = fields("tokenizer.ggml.tokens")
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    found = {name: fields(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    settings |= {name: tokens[number] for name, number in found.items() if number is not None}
    template = fields("tokenizer.chat_template")
    return settings | ({"chat_template": template} if template else {})


def _byte_level(fields: Fields) -> Tokenizer:
    vocabulary = {token: number for number, token in enumerate(fields("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in fields("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(fields: Fields) -> Tokenizer:
    if fields("tokenizer.ggml.add_space_prefix"):
        raise ValueError("the GGUF tokenizer puts a space before the text, which is not supported")
    tokens = [token.replace(" ", SPACE) for token in fields("tokenizer.ggml.tokens")]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = tokens[fields("tokenizer.ggml.unknown_token_id")]
    merges = _merges(
        vocabulary, fields("tokenizer.ggml.scores"), fields("tokenizer.ggml.token_type")
    )
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def _merges(
    vocabulary: dict[str, int], scores: list[float], types: list[int]
) -> list[tuple[str, str]]:
    """Every split of a token into two, best tokens first.

    SentencePiece joins the neighbours whose whole has the best score.
    """
    normal = sorted(
        (token for token, number in vocabulary.items() if types[number] == 1),
        key=lambda token: -scores[vocabulary[token]],
    )
    found = []
    for token in normal:
        parts = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [
            (left, right) for left, right in parts if left in vocabulary and right in vocabulary
        ]
        found += sorted(known, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
    return found
