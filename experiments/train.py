"""The Hydra entry point of training a tiny model.

`python -m experiments.train minutes=N out=DIR`
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from experiments.config.checks import BadInput
from experiments.io import write_json
from experiments.runs.entry import CONFIGS, enter, refuse
from experiments.training.card import write_card
from experiments.training.corpus import Corpus, documents
from experiments.training.loop import CHECKPOINT, Training
from experiments.training.progress import Progress
from experiments.training.recipe import Recipe
from experiments.training.saved import recipe_in
from experiments.training.team import Team
from experiments.training.tokenizer import train_tokenizer
from experiments.workloads.tokenizer import load_tokenizer
from mtp.files import whole

TOKENIZER_TEXT = 8_000_000  # characters of code, about as many as there are of prose


def train(recipe: Recipe, out: Path, console: Console) -> None:
    """Raises BadInput where the folder holds something else."""
    checkpoint = out / CHECKPOINT
    if checkpoint.is_file():
        if recipe_in(checkpoint) != recipe.as_dict():
            raise BadInput(
                f"out is {out}, which holds an unfinished training with other settings, expected "
                "another folder"
            )
    elif (out / "model.safetensors").exists():
        raise BadInput(f"out is {out}, which holds a model, expected another folder")
    out.mkdir(parents=True, exist_ok=True)
    if checkpoint.is_file():
        tokenizer = load_tokenizer(out / "tokenizer.json")
    else:
        limit = recipe.characters
        code = [one.text for one in documents("code", limit) if not one.held_out]
        share = min(1.0, TOKENIZER_TEXT / sum(map(len, code)))
        chosen = [text for i, text in enumerate(code) if int((i + 1) * share) > int(i * share)]
        prose = [one.text for one in documents("prose", limit) if not one.held_out]
        tokenizer = train_tokenizer([*chosen, *prose], recipe.shape.vocab)
        with whole(out / "tokenizer.json") as aside:
            tokenizer.save(str(aside))
    corpus = Corpus.load(tokenizer, recipe.characters)
    with tempfile.TemporaryDirectory() as folder:
        work_args = (recipe, corpus, out, Path(folder) / "meeting", console)
        if recipe.workers == 1:
            work(0, *work_args)
        else:
            torch.multiprocessing.spawn(work, (*work_args[:-1], None), nprocs=recipe.workers)
    checkpoint.unlink()


def work(
    rank: int, recipe: Recipe, corpus: Corpus, out: Path, meeting: Path, console: Console | None
) -> None:
    """One process of the team; the first one shows and writes."""
    torch.set_num_threads(1)
    team = Team(rank, recipe.workers, meeting)
    with Progress(console or Console(), shown=rank == 0) as progress:
        tokenizer = load_tokenizer(out / "tokenizer.json")
        training = Training(recipe, corpus, tokenizer, out, team, progress)
        training.run()
    if rank == 0:
        write_json(
            out / "training.json",
            {
                "recipe": recipe.as_dict(),
                "tokens": training.place.tokens,
                "history": training.place.history,
            },
        )
    team.leave()


def settings(config: DictConfig) -> tuple[Recipe, Path]:
    values: Any = OmegaConf.to_container(config)
    out = values.pop("out")
    if not isinstance(out, str) or not out:
        raise BadInput(f"out is {out!r}, expected a folder")
    return Recipe.of(values), Path(out)


@hydra.main(version_base="1.3", config_path=CONFIGS, config_name="train")
def job(config: DictConfig) -> None:
    console = Console()
    try:
        recipe, out = settings(config)
        train(recipe, out, console)
        if recipe.characters is None:
            console.print("measuring the figures of its card")
            write_card(out)
    except BadInput as wrong:
        sys.exit(refuse(wrong))
    console.print(f"written: {out}", highlight=False, markup=False, soft_wrap=True)


def run(arguments: Sequence[str]) -> int:
    """The exit code."""
    return enter("train", arguments, settings, job)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
