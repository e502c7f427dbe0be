"""Literal implementations that outputs are compared with."""
