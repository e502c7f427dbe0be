"""One thread, here and in what tests start: tiny products gain nothing from two, and two wait
for each other badly on a busy machine."""

import os

import torch

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)
