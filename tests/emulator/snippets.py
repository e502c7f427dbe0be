"""Small hand-written PTX kernels for the emulator's own tests."""

from __future__ import annotations

import torch

from tests.emulator.machine import run

HEAD = """
.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.visible .entry snippet(
	.param .u64 .ptr .global .align 1 snippet_param_0,
	.param .u64 .ptr .global .align 1 snippet_param_1
)
.reqntid {threads}
{{
	.reg .pred %p<16>;
	.reg .b16 %h<16>;
	.reg .b32 %r<32>;
	.reg .b64 %d<32>;
	.loc 1 7 1
	ld.param.b64 %d0, [snippet_param_0];
	ld.param.b64 %d1, [snippet_param_1];
	mov.u32 %r0, %tid.x;
	mad.wide.u32 %d2, %r0, 4, %d0;
	mad.wide.u32 %d3, %r0, 4, %d1;
	mad.wide.u32 %d4, %r0, 8, %d0;
	mad.wide.u32 %d5, %r0, 8, %d1;
{body}
	ret;
}}
"""


def execute(
    body: str,
    source: torch.Tensor,
    target: torch.Tensor,
    *,
    threads: int = 32,
    programs: int = 1,
    seed: int | None = None,
) -> torch.Tensor:
    """%d0, %d1: source and target; %r0: the thread; %d2, %d3 (%d4, %d5): its 4-byte (8-byte)
    cells of both. Returns the target."""
    lines = "\n".join(
        "\t" + line.strip() if not line.strip().endswith(":") else line.strip()
        for line in body.splitlines()
    )
    run(HEAD.format(threads=threads, body=lines), (programs,), [source, target], seed=seed)
    return target
