"""What needs a GPU, or the code compiled for one."""
