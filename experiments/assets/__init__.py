"""Data that ships: models and their heads, recorded tapes, prompts, and the training corpus."""

from pathlib import Path

ASSETS = Path(__file__).resolve().parent
MODELS = ASSETS / "models"
TAPES = ASSETS / "tapes"
PROMPTS = ASSETS / "prompts"
CORPUS = ASSETS / "corpus"
