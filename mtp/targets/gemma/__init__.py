"""The Gemma family."""
