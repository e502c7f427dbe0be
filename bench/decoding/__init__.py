"""The engine on real models against plain decoding and transformers."""
