"""One thread: tiny products gain nothing from two, and two wait for each other badly on a busy machine."""

import torch

torch.set_num_threads(1)
