"""The acceptance tape: a request as a table, its file, its synthesis, its statistics."""

from mtp.tape.tape import Tape, leading, read_tapes, text_of, write_tapes

__all__ = ["Tape", "leading", "read_tapes", "text_of", "write_tapes"]
