"""Operations, by implementation and shape: checked, then timed."""
