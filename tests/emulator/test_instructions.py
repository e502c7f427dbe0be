"""What the emulator says instructions do, against the PTX manual's words, case by case."""

from __future__ import annotations

import pytest
import torch

from tests.emulator.instructions import REGISTRY
from tests.emulator.ptx import PtxError
from tests.emulator.snippets import execute

LOW, HIGH = -(2**31), 2**31 - 1

# body from %r1 (and %r2) to %r3, values of %r1, %r2, expected %r3
WORDS = [
    ("add.s32 %r3, %r1, %r2;", HIGH, 1, LOW),
    ("sub.s32 %r3, %r1, %r2;", LOW, 1, HIGH),
    ("mul.lo.s32 %r3, %r1, %r2;", 1 << 30, 6, LOW),
    ("mad.lo.s32 %r3, %r1, %r2, 5;", 3, -4, -7),
    ("neg.s32 %r3, %r1;", 5, 0, -5),
    ("mov.b32 %r3, 0f3F800000;", 0, 0, 0x3F800000),
    ("div.s32 %r3, %r1, %r2;", -7, 2, -3),
    ("rem.s32 %r3, %r1, %r2;", -7, 2, -1),
    ("add.rn.f32 %r3, %r1, %r2;", 0x3F800000, 0x33800000, 0x3F800000),  # 1 + 2^-24: to even
    ("add.rn.f32 %r3, %r1, %r2;", 0x3F800001, 0x33800000, 0x3F800002),
    ("sub.rn.f32 %r3, %r1, %r2;", 0x3F800000, 0x40000000, -0x40800000),  # 1 - 2
    # (1 + 2^-23)^2, rounded once
    ("mul.rn.f32 %r3, %r1, %r2;", 0x3F800001, 0x3F800001, 0x3F800002),
    ("mov.b64 %d6, {%r1, %r2}; add.rn.f32x2 %d7, %d6, %d6; mov.b64 {%r4, %r3}, %d7;", 0x40000000, 0x3F800000, 0x40000000),
    ("mov.b64 %d6, {%r1, %r2}; mul.rn.f32x2 %d7, %d6, %d6; mov.b64 {%r3, %r4}, %d7;", 0x40000000, 0x3F800000, 0x40800000),
    ("mov.b64 %d6, {%r1, %r2}; sub.rn.f32x2 %d7, %d6, %d6; mov.b64 {%r3, %r4}, %d7;", 0x40000000, 0x3F800000, 0),
    ("ex2.approx.f32 %r3, %r1;", 0x40400000, 0, 0x41000000),
    ("ex2.approx.f32 %r3, %r1;", -0x800000, 0, 0),  # of -inf
    ("div.full.f32 %r3, %r1, %r2;", 0x3F800000, 0x40000000, 0x3F000000),
    ("min.s32 %r3, %r1, %r2;", -1, 1, -1),
    ("min.u32 %r3, %r1, %r2;", -1, 1, 1),
    ("max.u32 %r3, %r1, %r2;", -1, 1, -1),
    ("and.b32 %r3, %r1, 12;", 10, 0, 8),
    ("or.b32 %r3, %r1, %r2;", 10, 5, 15),
    ("xor.b32 %r3, %r1, %r2;", 10, 3, 9),
    ("not.b32 %r3, %r1;", 0, 0, -1),
    ("shl.b32 %r3, %r1, %r2;", 1, 31, LOW),
    ("shl.b32 %r3, %r1, %r2;", 1, 32, 0),
    ("shr.u32 %r3, %r1, %r2;", -1, 28, 15),
    ("shr.u32 %r3, %r1, %r2;", -1, 40, 0),
    ("shr.s32 %r3, %r1, %r2;", -8, 1, -4),
    ("shr.s32 %r3, %r1, %r2;", -8, 40, -1),
    ("bfe.u32 %r3, %r1, 4, 8;", 0xABCD, 0, 0xBC),
    ("bfe.s32 %r3, %r1, 4, 8;", 0xABCD, 0, 0xBC - 256),
    ("prmt.b32 %r3, %r1, %r2, 0x5410;", 0x33221100, 0x77665544, 0x55441100),
    ("prmt.b32 %r3, %r1, %r2, 0x000B;", LOW, 0, 0x000000FF),
    ("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, 1, 0, %p1;", -1, 0, 1),
    ("setp.lt.u32 %p1, %r1, %r2; selp.b32 %r3, 1, 0, %p1;", -1, 0, 0),
    ("setp.eq.b32 %p1, %r1, %r2; not.pred %p2, %p1; selp.b32 %r3, 1, 0, %p2;", 4, 4, 0),
    ("setp.nan.f32 %p1, %r1, %r2; selp.b32 %r3, 1, 0, %p1;", 0x7FC00000, 0, 1),
    ("setp.nan.f32 %p1, %r1, %r2; selp.b32 %r3, 1, 0, %p1;", 0x7F800000, 0, 0),
    ("mul.wide.s32 %d6, %r1, %r2; shr.u64 %d7, %d6, 32; cvt.u32.u64 %r3, %d7;", LOW, 2, -1),
    ("mul.wide.u32 %d6, %r1, %r2; shr.u64 %d7, %d6, 32; cvt.u32.u64 %r3, %d7;", -1, 2, 1),
    ("mad.wide.s32 %d6, %r1, %r2, 7; cvt.u32.u64 %r3, %d6;", -1, 2, 5),
    ("cvt.s64.s32 %d6, %r1; shr.s64 %d7, %d6, 40; cvt.u32.u64 %r3, %d7;", -5, 0, -1),
    ("cvt.u64.u32 %d6, %r1; shr.u64 %d7, %d6, 40; cvt.u32.u64 %r3, %d7;", -5, 0, 0),
    ("mov.b32 {%h1, %h2}, %r1; mov.b32 %r3, {%h2, %h1};", 0x12345678, 0, 0x56781234),
    ("mov.b32 {_, %h2}, %r1; cvt.f32.bf16 %r3, %h2;", 0x3F800000, 0, 0x3F800000),
    ("mov.b32 {%h1, _}, %r1; cvt.f32.f16 %r3, %h1;", 0x3C00, 0, 0x3F800000),
    ("mov.b64 %d6, {%r1, %r2}; mov.b64 {%r4, %r3}, %d6;", 1, 2, 2),
    ("setp.ne.b32 %p1, %r1, 0; mov.b32 %r3, 1; @%p1 mov.b32 %r3, 2; @!%p1 mov.b32 %r3, 3;", 0, 0, 3),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "first", "second", "want"), WORDS, ids=[word[0] for word in WORDS]
)
def test_word(body, first, second, want):
    source = torch.tensor([first, second] + [0] * 30, dtype=torch.int64).to(torch.int32)
    target = execute(
        f"ld.global.b32 {{ %r1 }}, [ %d0 + 0 ];\nld.global.b32 %r2, [%d0+4];\n{body}\nst.global.b32 [%d3], %r3;",
        source,
        torch.zeros(32, dtype=torch.int32),
    )
    assert target.tolist() == [want] * 32


def test_division_by_zero_raises():
    with pytest.raises(PtxError, match="division by zero"):
        execute(
            "div.s32 %r3, %r0, 0;",
            torch.zeros(1, dtype=torch.int32),
            torch.zeros(32, dtype=torch.int32),
        )


def lanes(body: str) -> list[int]:
    """%r1 is ten times the thread; the result is %r3."""
    body = f"mul.lo.s32 %r1, %r0, 10;\n{body}\nst.global.b32 [%d3], %r3;"
    return execute(
        body, torch.zeros(1, dtype=torch.int32), torch.zeros(64, dtype=torch.int32), threads=64
    ).tolist()


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;", lambda lane: lane ^ 1),
        ("shfl.sync.up.b32 %r3, %r1, 2, 0, -1;", lambda lane: lane - 2 if lane >= 2 else lane),
        (
            "shfl.sync.down.b32 %r3, %r1, 3, 31, -1;",
            lambda lane: lane + 3 if lane + 3 <= 31 else lane,
        ),
        ("shfl.sync.idx.b32 %r3, %r1, 5, 31, -1;", lambda lane: 5),
        # segments of 8
        (
            "shfl.sync.idx.b32 %r3, %r1, 1, 6175, -1;",
            lambda lane: lane // 8 * 8 + 1,
        ),
    ],
)
def test_shuffle(body, want):
    assert lanes(body) == [10 * (warp + want(lane)) for warp in (0, 32) for lane in range(32)]


def test_reductions_are_per_warp():
    assert lanes("redux.sync.add.s32 %r3, %r1, -1;") == [4960] * 32 + [15200] * 32
    assert lanes("redux.sync.max.s32 %r3, %r1, -1;") == [310] * 32 + [630] * 32
    assert lanes("redux.sync.xor.b32 %r3, %r0, -1;") == [0] * 64
    assert lanes("redux.sync.or.b32 %r3, %r0, -1;") == [31] * 32 + [63] * 32
    assert lanes("redux.sync.min.s32 %r3, %r1, -1;") == [0] * 32 + [320] * 32


def test_vectors_bytes_and_shared_memory():
    source = torch.arange(128, dtype=torch.int32)
    body = """
        mad.wide.u32 %d6, %r0, 16, %d0;
        ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %d6 + 0 ];
        mov.b32 %r5, global_smem;
        shl.b32 %r6, %r0, 3;
        add.s32 %r7, %r5, %r6;
        st.shared.v2.b32 [%r7+8], {%r4, %r1};
        bar.sync 0;
        xor.b32 %r8, %r6, 8;
        add.s32 %r9, %r5, %r8;
        ld.shared.v2.b32 {%r10, %r11}, [%r9+8];
        st.global.v2.b32 [%d5], {%r10, %r11};
    """
    assert execute(body, source, torch.zeros(64, dtype=torch.int32)).reshape(32, 2).tolist() == [
        [4 * (i ^ 1) + 3, 4 * (i ^ 1)] for i in range(32)
    ]
    small = torch.tensor([-1, 5, 127, -128] * 8, dtype=torch.int8)
    for kind, want in (
        ("s8", [-1, 5, 127, -128]),
        ("u8", [255, 5, 127, 128]),
        ("b8", [255, 5, 127, 128]),
    ):
        body = (
            f"cvt.u64.u32 %d6, %r0;\nadd.s64 %d7, %d0, %d6;\nld.global.{kind} %r1, "
            "[%d7];\nst.global.b32 [%d3], %r1;"
        )
        assert execute(body, small, torch.zeros(32, dtype=torch.int32)).tolist() == want * 8


@pytest.mark.parametrize("count", [1, 4])
def test_matrices_are_stored_by_rows(count):
    """Row r of matrix m goes to place 7 - r of a table of its own; each thread gives the words
    100 * register + thread."""
    registers = ["%r10", "%r11", "%r12", "%r13"][:count]
    body = f"""
        mov.b32 %r5, global_smem;
        and.b32 %r6, %r0, 7;
        sub.s32 %r6, 7, %r6;
        and.b32 %r7, %r0, 24;
        add.s32 %r6, %r6, %r7;
        shl.b32 %r6, %r6, 4;
        add.s32 %r6, %r6, %r5;
        {" ".join(f"add.s32 {r}, %r0, {100 * m};" for m, r in enumerate(registers))}
        stmatrix.sync.aligned.m8n8.x{count}.shared.b16 [%r6], {{{", ".join(registers)}}};
        bar.sync 0;
        mad.lo.s32 %r8, %r0, 4, %r5;
        {" ".join(f"ld.shared.b32 %r9, [%r8+{128 * m}]; st.global.b32 [%d3+{128 * m}], %r9;" for m in range(count))}
    """
    target = execute(
        body, torch.zeros(1, dtype=torch.int32), torch.zeros(32 * count, dtype=torch.int32)
    )
    want = [
        [100 * m + 4 * (7 - place) + word for place in range(8) for word in range(4)]
        for m in range(count)
    ]
    assert target.view(count, 32).tolist() == want


def test_atomics_count_every_thread_of_every_program():
    body = """
        mov.b32 %r1, 1;
        mov.b64 %d6, 5;
        atom.global.gpu.relaxed.add.u32 %r2, [%d0], %r1;
        red.global.gpu.relaxed.max.s64 [%d1], %d6;
    """
    source, target = torch.zeros(1, dtype=torch.int32), torch.full((1,), -9)
    for seed in (None, 1, 2):
        execute(body, source.zero_(), target, threads=64, programs=3, seed=seed)
        assert (source.item(), target.item()) == (192, 5)


def test_threads_part_and_meet():
    body = """
        setp.lt.s32 %p1, %r0, 40;
        mov.b32 %r1, 1;
        @%p1 bra $L_one;
        mov.b32 %r1, 2;
        bra.uni $L_two;
        $L_one:
        add.s32 %r1, %r1, 10;
        $L_two:
        bar.sync 0;
        st.global.b32 [%d3], %r1;
    """
    target = execute(
        body, torch.zeros(1, dtype=torch.int32), torch.zeros(64, dtype=torch.int32), threads=64
    )
    assert target.tolist() == [11] * 40 + [2] * 24


def test_every_opcode_is_known_as_a_whole():
    assert all(
        opcode == opcode.strip() and "{" not in opcode and ".." not in opcode for opcode in REGISTRY
    )
    assert "ld.global.v4.b32" in REGISTRY
    assert "ld.global.volatile.b32" not in REGISTRY
