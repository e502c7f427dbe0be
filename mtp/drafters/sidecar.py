"""A sidecar: a folder with a drafter for a target that lies elsewhere.

What its config.json says besides the target's settings.
"""

from __future__ import annotations

from typing import Any

from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.weights import EMBEDDING, HEAD


def draft_vocab_of(checkpoint: Checkpoint) -> tuple[int, ...] | None:
    """`draft_vocab`: the tokens that it drafts; None: all of the target's.

    Ascending ids, so that of equal logits the lowest id wins. Raises ValueError, one line.
    """
    ids = checkpoint.config.get("draft_vocab")
    if ids is None:
        return None
    size = checkpoint.config.get("vocab_size", 0)
    if (
        not isinstance(ids, list)
        or not ids
        or not all(type(one) is int and 0 <= one < size for one in ids)
        or ids != sorted(set(ids))
    ):
        raise ValueError(
            f"checkpoint {checkpoint.path}: config.json: "
            f"draft_vocab is no ascending list of token ids from 0 to {size - 1}"
        )
    return tuple(ids)


def about_target(target: Checkpoint) -> dict[str, Any]:
    """`mtp_target` of a sidecar that is written for this checkpoint."""
    found = {
        key: target.fingerprint(name)
        for key, name in (("embedding", EMBEDDING), ("head", HEAD))
        if target.holds(name)
    }
    if found.get("head") == found.get("embedding"):  # tied
        del found["head"]
    return found


def check_target_of(checkpoint: Checkpoint, target: Checkpoint) -> None:
    """Raises ValueError, one line, for another target than the one the sidecar was trained with."""
    wanted = checkpoint.config.get("mtp_target")
    theirs = about_target(target)
    if wanted is not None and wanted != {key: theirs.get(key) for key in wanted}:
        raise ValueError(
            f"the drafter of {checkpoint.path} was trained with a target of other weights than "
            f"{target.path}: expected the checkpoint it was trained with"
        )
