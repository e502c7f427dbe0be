"""Other projects' kernels on the same windows."""
