"""Layouts: what captured graphs are keyed by, the cache that holds them, and how a window runs through it."""

from mtp.layouts.cache import LayoutCache, LayoutStats
from mtp.layouts.keyed import Eager, Keyed, Layout
from mtp.layouts.keys import KEYS, LayoutKey, count_layouts, layout_key

__all__ = [
    "KEYS",
    "Eager",
    "Keyed",
    "Layout",
    "LayoutCache",
    "LayoutKey",
    "LayoutStats",
    "count_layouts",
    "layout_key",
]
