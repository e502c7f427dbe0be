"""One literal reference per operation (`oracle`, `mixer_oracle`), and the operations in eager torch
(`plain_torch`, `plain_mixers`), which are timed and checked like any other implementation."""
