"""The two executors behind the engine's seam."""
