"""What of the mixers' part of `make gpu-check` can run on a CPU: its comparisons and its
windows, twin against twin."""

from __future__ import annotations

import pytest
import torch

from bench.gpu import mixers as gpu_mixers

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", gpu_mixers.CALLS)
def test_a_difference_is_noticed_and_the_twin_has_none(name):
    assert gpu_mixers.check_eager(name, 3, CPU) == []
    call, make = gpu_mixers.CALLS[name]
    data = make(3)
    results = [tensor.clone() for tensor in call(gpu_mixers.to(data, CPU), True)]
    assert gpu_mixers.differences(name, data, results) == []
    for i, tensor in enumerate(results):
        wrong = [other.clone() for other in results]
        wrong[i].view(-1)[0] = 5.0 if tensor.view(-1)[0] != 5.0 else 6.0
        assert gpu_mixers.differences(name, data, wrong) == [f"{name}: result {i} differs"]


@pytest.mark.parametrize("name", gpu_mixers.CALLS)
def test_replayed_windows_fit_the_same_buffers(name):
    first, *others = gpu_mixers.windows_of_one_shape(name, 0)
    for other in others:
        for field in gpu_mixers.fields(first):
            a, b = getattr(first, field.name), getattr(other, field.name)
            assert (a.shape == b.shape) if isinstance(a, torch.Tensor) else a == b


def test_padded_attention_is_the_same_attention():
    data = gpu_mixers.long_window(2, 70, torch.float32, CPU)
    ours = gpu_mixers._attention(data, False)[0]  # which also writes the window's keys and values
    out = gpu_mixers.padded(data)().transpose(1, 2).reshape(data.q.shape)
    torch.testing.assert_close(out, ours, atol=1e-5, rtol=0)
