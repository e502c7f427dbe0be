"""What the compiler makes of every kernel, on a machine without a GPU."""

from __future__ import annotations

import re

import pytest
import triton

from bench.gpu.compiling import resources
from tests.emulator.driver import emulated
from tests.support import ROOT
from tests.support.kernels.variants import (
    ARCHS,
    ATTENTION,
    BEGIN,
    BEGIN_ATTENTION,
    END,
    END_ATTENTION,
    STATE,
    VARIANTS,
    WINDOW,
    attention_kernels,
    attention_table,
    compiled,
    table,
)
from triton_kernels import argmax

DOCS = ROOT / "docs" / "kernels.md"
ACCEPTS = [
    name
    for name in VARIANTS
    if "all" in name or ("accept" in name.split()[-1] and "advance" in name)
]
PICKS = [name for name in VARIANTS if "argmax" in name]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_spills(name, arch):
    used = resources(compiled(name, arch).files["cubin"])
    assert (used.stack, used.local, used.count("LDL", "STL")) == (0, 0, 0)
    # two programs on a multiprocessor
    assert used.registers <= 65536 // (compiled(name, arch).warps * 32) // 2


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", PICKS + ACCEPTS)
def test_logits_are_read_by_the_widest_loads(name, arch):
    """Every vector of the chunk at 16 bytes; narrow loads are the row's ends, bans and tables."""
    launch = compiled(name, arch)
    wide = argmax.CHUNK // argmax.WIDEST_LOAD // (launch.warps * 32)
    assert resources(launch.files["cubin"]).count("LDG.E.128") == wide
    assert len(re.findall(r"ld\.global\.v4\.b32", launch.ptx)) == wide


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", VARIANTS)
def test_atomics_are_as_designed(name, arch):
    """One relaxed maximum and one ticket that releases and acquires; a pick also takes its key
    in one exchange."""
    # whether a maximum that nobody reads is `red` or `atom` is up to the compiler
    atomics = sorted(
        re.findall(r"(?<![\w.])(?:atom|red)\.global\.([\w.]+)", compiled(name, arch).ptx)
    )
    best, ticket, exchange = "gpu.relaxed.max.s64", "gpu.acq_rel.add.u32", "gpu.relaxed.exch.b64"
    want = {"row_argmax": [ticket, exchange, best], "all": [ticket, best], "accept": [ticket, best]}
    kind = name.split()[0] if name in PICKS else name.split()[1] if "advance" in name else ""
    assert atomics == want.get(kind, [])


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", [name for name in WINDOW if name not in PICKS + ACCEPTS])
def test_small_kernels_are_one_warp(name, arch):
    launch = compiled(name, arch)
    assert (launch.grid, launch.warps) == ((1, 1, 1), 1)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", [name for name in STATE if "delta" in name])
def test_a_product_and_a_sum_keep_their_own_roundings(name, arch):
    """A state that verify passes through and the one that commit leaves have the same bits, and
    the twin's."""
    if arch >= 100 and triton.__version__ < "3.9":
        pytest.skip("its ptxas fuses packed products and sums (f32x2) although it is told not to")
    launch = compiled(name, arch)
    assert not re.findall(r"\bfma\.", launch.ptx)
    assert resources(launch.files["cubin"]).count("FFMA") == 0


@pytest.mark.parametrize("name", VARIANTS)
def test_compiles_for_gfx942(name):
    text = compiled(name, "gfx942").files["amdgcn"].read_text()
    for spills in ("vgpr_spill_count", "private_segment_fixed_size"):
        assert re.findall(rf"\.{spills}:\s+(\d+)", text) == ["0"], spills


def test_docs_record_the_figures():
    recorded = DOCS.read_text().partition(BEGIN)[2].partition(END)[0].strip()
    if recorded.startswith(f"Triton {triton.__version__}:"):
        assert recorded == table(), (
            "run python -m tests.support.kernels.variants and put its table into docs/kernels.md"
        )
    assert all(f"| {name} |" in recorded for name in VARIANTS)


FAST = [
    (name, arch)
    for name in ("bf16, 16 heads of 128 over 2", "fp32, 16 heads of 128 over 2")
    for arch in (90, 120)
]


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        pytest.param(n, a, marks=() if (n, a) in FAST else pytest.mark.slow)
        for n in ATTENTION
        for a in ARCHS
    ],
)
def test_attention_does_not_spill_and_fits(name, arch):
    for launch in attention_kernels(name, arch):
        used = resources(launch.files["cubin"])
        assert (used.stack, used.local, used.count("LDL", "STL")) == (0, 0, 0)
        assert launch.shared <= 99 << 10 if arch == 120 else launch.shared <= 163 << 10


@pytest.mark.parametrize(("name", "arch"), FAST)
def test_attention_reads_the_cache_by_the_widest_loads_and_multiplies_in_matrix_units(name, arch):
    attention, merge = attention_kernels(name, arch)
    used = resources(attention.files["cubin"])
    assert used.count("LDGSTS") == used.count("LDGSTS.E.BYPASS.128") > 0
    assert bool(used.count("HMMA", "HGMMA")) == name.startswith("bf16")
    assert resources(merge.files["cubin"]).count("LDG.E.128") > 0


@pytest.mark.parametrize(
    "name",
    [
        "bf16, 16 heads of 128 over 2",
        *(pytest.param(n, marks=pytest.mark.slow) for n in [*ATTENTION][1:]),
    ],
)
def test_attention_compiles_for_gfx942(name):
    for launch in attention_kernels(name, "gfx942"):
        assert launch.shared <= 64 << 10


@pytest.mark.slow
def test_docs_record_the_figures_of_attention():
    recorded = DOCS.read_text().partition(BEGIN_ATTENTION)[2].partition(END_ATTENTION)[0].strip()
    if recorded.startswith(f"Triton {triton.__version__}:"):
        assert recorded == attention_table(), (
            "run python -m tests.support.kernels.variants and put its table into docs/kernels.md"
        )
    assert all(f"| {name} |" in recorded for name in ATTENTION)


def test_one_launch_each():
    for name in VARIANTS:
        with emulated(90, execute=False) as driver:
            VARIANTS[name]()
        assert len(driver.launches) == 1
