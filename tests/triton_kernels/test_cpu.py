"""The CPU's own kernels against their twins: on random windows, and bit by bit on company, length
and place."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from bench.inputs.mixers import attention_data, random_attention, random_conv, random_delta
from experiments.io import PROJECT
from tests.support.kernels.checks import check_attention, check_causal_conv, check_gated_delta
from triton_kernels import attention, causal_conv, gated_delta, gated_delta_commit, launch

pytest.importorskip("numba")
ON_CPU = SimpleNamespace(
    attention=SimpleNamespace(_launch=attention._on_cpu),
    gated_delta=SimpleNamespace(_launch=gated_delta._on_cpu),
    gated_delta_commit=SimpleNamespace(_launch=gated_delta_commit._on_cpu),
    causal_conv=SimpleNamespace(
        _launch_verify=causal_conv._verify_on_cpu, _launch_commit=causal_conv._commit_on_cpu
    ),
)


@pytest.fixture
def twins_refused(monkeypatch):
    """What is compared with the twins is not the twins."""
    for module, names in {
        attention: ["window_attention_torch"],
        gated_delta: ["gated_delta_verify_torch"],
        gated_delta_commit: ["gated_delta_commit_torch"],
        causal_conv: ["causal_conv_verify_torch", "causal_conv_commit_torch"],
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, only_by_tests(getattr(module, name)))


def only_by_tests(twin):
    def call(*args, **options):
        assert "tests" in sys._getframe(1).f_code.co_filename, "a twin ran in place of a kernel"
        return twin(*args, **options)

    return call


@pytest.mark.usefixtures("twins_refused")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("seed", range(50))
def test_attention_of_random_windows(seed, dtype):
    check_attention(random_attention(seed, dtype=dtype), ON_CPU)


@pytest.mark.usefixtures("twins_refused")
@pytest.mark.parametrize("seed", range(40))
def test_the_delta_rule_of_random_windows(seed):
    check_gated_delta(random_delta(seed), ON_CPU)


@pytest.mark.usefixtures("twins_refused")
@pytest.mark.parametrize("seed", range(40))
def test_the_convolution_of_random_windows(seed):
    check_causal_conv(random_conv(seed), ON_CPU)


def test_rows_outside_the_cache_are_refused():
    data = attention_data(3, lengths=[0, 0, 0], sizes=[1, 0, 0], dtype=torch.float32)
    data.positions.fill_(data.keys.shape[2])
    with pytest.raises(ValueError, match="outside its slot's cache"):
        attention.window_attention(*data.tensors(), **data.options)


def test_without_numba_the_twins_do_the_work(monkeypatch):
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    launch.cpu_kernels.cache_clear()
    try:
        assert launch.cpu_kernels("attention") is None
        check_attention(random_attention(3, dtype=torch.float32), ON_CPU)
        check_gated_delta(random_delta(3), ON_CPU)
        check_causal_conv(random_conv(3), ON_CPU)
    finally:
        launch.cpu_kernels.cache_clear()


CONV = """
import torch
from triton_kernels.causal_conv import causal_conv_verify
starts = torch.tensor([0, 2], dtype=torch.int32)
print(causal_conv_verify(torch.ones(2, 8), torch.ones(4, 8), torch.ones(1, 3, 8), starts).sum())
"""


@pytest.mark.slow
def test_kernels_are_compiled_once_and_where_nothing_can_be_written_too(tmp_path):
    def said(home):
        env = {"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(home)}
        ran = subprocess.run([sys.executable, "-c", CONV], capture_output=True, text=True, env=env)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == "tensor(62.8489)\n"
        return ran.stderr

    assert said(tmp_path / "home").startswith("compiling kernels for this CPU, once, into ")
    assert said(tmp_path / "home") == ""
    (tmp_path / "file").write_text("no folder")
    said(tmp_path / "file")
