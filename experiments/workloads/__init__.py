"""What is decoded: prompts, or tapes."""
