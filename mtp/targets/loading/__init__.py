"""Checkpoint folders: configs, weights, dtypes."""
