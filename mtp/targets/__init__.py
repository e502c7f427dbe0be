"""Targets: models that verify windows of rows."""
