"""One way to load a tokenizer: as transformers reads the same file."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from mtp.files import LFS_POINTER, is_lfs_pointer


def load_tokenizer(path: Path) -> Tokenizer:
    """Truncation and padding that the file stores are not applied: prompts are what they are.

    Raises ValueError, in one line, where the file is no tokenizer.
    """
    if is_lfs_pointer(path):
        raise ValueError(f"{path} {LFS_POINTER}")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as wrong:  # the library raises plain Exception
        raise ValueError(f"{path} cannot be read: {' '.join(str(wrong).split())}") from wrong
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
