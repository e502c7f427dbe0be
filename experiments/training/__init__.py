"""Training of the tiny model that ships: text, tokenizer, trainable forward, MTP head, figures."""
