"""Layouts: what captured graphs are keyed by, the cache that holds them, and how a window runs
through it."""

from mtp.layouts.cache import LayoutCache
from mtp.layouts.keyed import Keyed
from mtp.layouts.keys import KEYS, LayoutKey, count_layouts, layout_key
from mtp.layouts.layout import Eager, Layout, LayoutStats

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
