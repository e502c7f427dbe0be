"""What the emulator refuses: unknown text, accesses outside tensors, misalignment, races,
barriers that part the threads."""

from __future__ import annotations

import pytest
import torch

from tests.emulator.memory import MemoryFault, Race
from tests.emulator.ptx import PtxError, Unknown, parse
from tests.emulator.snippets import HEAD, execute


def words(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int32)


@pytest.mark.parametrize(
    "body",
    [
        "tanh.approx.f32 %r1, %r0;",  # instruction
        "ld.global.volatile.b32 %r1, [%d2];",  # modifier
        "ld.global.b128 %d6, [%d0];",  # type
        "ld.global.v2.b32 {%r1, %r2, %r3}, [%d4];",  # count
        "add.s32 %r1, %r0, %clock;",  # special register
        "add.s32 %r1, %r0, 0f3F800000;",  # a float for an integer
        "add.s32 %r1, %d0, 1;",  # width
        "add.s32 %r1, %r0;",  # operands
        "shfl.sync.bfly.b32 %r1|%p1, %r0, 1, 31, -1;",  # a second result
        "shfl.sync.bfly.b32 %r1, %r0, 1, 31, 15;",  # members
        "bar.sync 1;",
        "bar.sync 0, 32;",
        "ld.global.b32 %r1, [%d2+%r0];",  # address
        "{ .reg .b32 %t; mov.b32 %t, 1; }",  # scope
        "call.uni foo;",
        "mov.b32 %r1, 1",  # unfinished
    ],
)
def test_what_it_does_not_know_raises(body):
    with pytest.raises(Unknown):
        execute(body, words(64), words(64))


def test_modules_it_does_not_know():
    with pytest.raises(Unknown):
        parse(HEAD.format(threads=32, body="") + "\n.func foo() { ret; }\n")
    with pytest.raises(Unknown):
        parse(HEAD.format(threads=32, body="").replace(".reqntid 32", ".maxntid 32"))


@pytest.mark.parametrize(
    "access",
    ["ld.global.b32 %r1, [%d2+4];", "ld.global.b32 %r1, [%d2+-4];", "st.global.b32 [%d3+4], %r0;"],
)
def test_outside_a_tensor(access):
    with pytest.raises(MemoryFault, match="outside every tensor"):
        execute(access, words(32), words(32))


def test_between_the_rows_of_a_tensor():
    spread = torch.zeros(2, 40, dtype=torch.int32)
    execute("ld.global.b32 %r1, [%d2];", spread[:, :32], words(32))
    with pytest.raises(MemoryFault, match="outside every tensor"):
        execute("ld.global.b32 %r1, [%d2];", spread[:, :31], words(32))


@pytest.mark.parametrize(
    "access",
    [
        "ld.global.b32 %r1, [%d2+2];",
        "ld.global.v2.b32 {%r1, %r2}, [%d2];",
        "st.global.b64 [%d3], %d0;",
    ],
)
def test_misaligned(access):
    with pytest.raises(MemoryFault, match="misaligned"):
        execute(access, words(64), words(64))


STORE, LOAD, STORE_THERE, LOAD_THERE = (
    "st.global.b32 [%d3], %r0;",
    "ld.global.b32 %r2, [%d3];",
    "st.global.b32 [%d6], %r0;",
    "ld.global.b32 %r2, [%d6];",
)
ORDERS = [(STORE, LOAD_THERE), (LOAD, STORE_THERE), (STORE, STORE_THERE)]
NEIGHBOUR = "xor.b32 %r1, %r0, {other};\nmad.wide.u32 %d6, %r1, 4, %d1;\n"


@pytest.mark.parametrize(
    ("between", "other", "threads", "races"),
    [
        ("", 1, 32, True),
        ("bar.warp.sync -1;", 1, 32, False),
        ("bar.warp.sync -1;", 32, 64, True),  # other warps do not wait
        ("bar.sync 0;", 32, 64, False),
        ("", 0, 64, False),  # its own cell
    ],
)
@pytest.mark.parametrize("order", ORDERS, ids=["write, read", "read, write", "write, write"])
def test_races_between_threads(order, between, other, threads, races):
    body = NEIGHBOUR.format(other=other) + "\n".join((order[0], between, order[1]))
    if races:
        with pytest.raises(Race):
            execute(body, words(1), words(64), threads=threads)
    else:
        execute(body, words(1), words(64), threads=threads)


def test_races_in_shared_memory():
    body = (
        "mov.b32 %r1, global_smem;\nshl.b32 %r2, %r0, 2;\nadd.s32 %r3, %r1, %r2;\nxor.b32 %r4, "
        "%r2, 128;\nadd.s32 %r5, %r1, %r4;\n"
    )
    body += "st.shared.b32 [%r3], %r0;\n{}\nld.shared.b32 %r6, [%r5];\nst.global.b32 [%d3], %r6;"
    with pytest.raises(Race):
        execute(body.format(""), words(1), words(64), threads=64)
    assert execute(body.format("bar.sync 0;"), words(1), words(64), threads=64).tolist() == [
        i ^ 32 for i in range(64)
    ]


def test_one_address_takes_one_value():
    with pytest.raises(Race, match="different values"):
        execute("st.global.b32 [%d1], %r0;", words(1), words(1))
    execute("mov.b32 %r1, 3;\nst.global.b32 [%d1], %r1;", words(1), words(1))


@pytest.mark.parametrize(("order", "races"), [("relaxed", True), ("acq_rel", False)])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_races_between_programs(order, races, seed):
    """Each writes its own cell and takes a ticket; the last reads all cells."""
    body = f"""
        mov.u32 %r1, %ctaid.x;
        mad.wide.u32 %d6, %r1, 4, %d1;
        setp.eq.b32 %p1, %r0, 0;
        @%p1 st.global.b32 [ %d6 + 0 ], {{ %r1 }};
        mov.b32 %r2, 1;
        @%p1 atom.global.gpu.{order}.add.u32 %r3, [ %d0 + 0 ], %r2;
        @%p1 st.shared.b32 [ global_smem + 0 ], %r3;
        bar.sync 0;
        ld.shared.b32 %r4, [global_smem];
        setp.lt.s32 %p2, %r0, 4;
        setp.eq.b32 %p3, %r4, 3;
        and.pred %p4, %p2, %p3;
        @%p4 ld.global.b32 %r5, [%d3];
    """
    if races:
        with pytest.raises(Race, match="of program"):
            execute(body, words(1), words(4), programs=4, seed=seed)
    else:
        assert execute(body, words(1), words(4), programs=4, seed=seed).tolist() == [0, 1, 2, 3]


def test_a_barrier_that_some_threads_do_not_reach():
    body = "setp.lt.s32 %p1, %r0, 32;\n@%p1 bra $L_end;\nbar.sync 0;\n$L_end:"
    with pytest.raises(PtxError, match="not every thread"):
        execute(body, words(1), words(1), threads=64)


def test_a_shuffle_that_a_part_of_a_warp_reaches():
    with pytest.raises(PtxError, match="part of a warp"):
        execute(
            "setp.lt.s32 %p1, %r0, 7;\n@%p1 shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;",
            words(1),
            words(1),
        )


def test_registers_start_as_rubbish():
    assert execute("st.global.b32 [%d3], %r9;", words(1), words(32)).tolist() != [0] * 32
