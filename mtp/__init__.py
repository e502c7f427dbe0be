"""Batched MTP speculative decoding: several requests share one target model and one window of
rows."""
