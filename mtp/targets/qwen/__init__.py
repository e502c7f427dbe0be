"""The Qwen and Llama family."""
