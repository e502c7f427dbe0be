"""Attention, delta rule and short convolution on one GPU: against their twins, by replay on
other data, and what they cost. Part of `make gpu-check`. On a CPU the same comparisons run twin
against twin, for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bench.inputs.mixers import (
    AttentionData,
    attention_data,
    random_attention,
    random_conv,
    random_delta,
    to,
)
from bench.ops.device_time import median_us
from triton_kernels import attention, causal_conv, gated_delta, gated_delta_commit

LENGTHS = (1_000, 8_000, 64_000, 256_000)  # tokens in a slot's cache, as 1k, 8k, ...
SEEDS, REPLAYED = 40, 4
# share of the copy bandwidth, and from how many bytes of keys and values on
GOAL, FROM_BYTES = (
    0.85,
    64_000_000,
)
ERROR = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
DTYPES = tuple(ERROR)


def _attention(data: AttentionData, twin: bool) -> list[Tensor]:
    work = attention.window_attention_torch if twin else attention.window_attention
    return [work(*data.tensors(), **data.options), data.keys, data.values]


def _delta(data: Any, twin: bool) -> list[Tensor]:
    """Verify, then the commit of what it left: the states are those of the twin's commit up to
    the deltas' last bits."""
    verify = gated_delta.gated_delta_verify_torch if twin else gated_delta.gated_delta_verify
    commit = (
        gated_delta_commit.gated_delta_commit_torch
        if twin
        else gated_delta_commit.gated_delta_commit
    )
    out = verify(*data.verify_arguments(), deltas=data.deltas)
    states, *rest = data.commit_arguments()
    commit(states, *rest)
    return [out, data.deltas, states, data.states]


def _conv(data: Any, twin: bool) -> list[Tensor]:
    verify = causal_conv.causal_conv_verify_torch if twin else causal_conv.causal_conv_verify
    commit = causal_conv.causal_conv_commit_torch if twin else causal_conv.causal_conv_commit
    out = verify(*data.verify_arguments())
    states, *rest = data.commit_arguments()
    commit(states, *rest)
    counted = torch.arange(len(out), device=out.device)[:, None] < data.starts[-1]
    return [torch.where(counted, out, 0.0), states, data.states]


Call = Callable[[Any, bool], list[Tensor]]
CALLS: dict[str, tuple[Call, Callable[[int], Any]]] = {
    "window_attention": (
        _attention,
        lambda seed: random_attention(seed, most=5_000, dtype=DTYPES[seed % 3]),
    ),
    "gated_delta": (_delta, lambda seed: random_delta(seed, slots=1 + seed % 4)),
    "causal_conv": (_conv, lambda seed: random_conv(seed, slots=1 + seed % 4)),
}


def differences(name: str, data: Any, got: list[Tensor]) -> list[str]:
    """What is not the twin's on the CPU, given the data as it was before the kernel ran."""
    found = []
    for i, (a, b) in enumerate(zip(got, CALLS[name][0](to(data, "cpu"), True), strict=True)):
        error = ERROR[b.dtype]
        if not torch.allclose(a.cpu(), b, rtol=error, atol=error, equal_nan=True):
            found.append(f"{name}: result {i} differs")
    return found


def check_eager(name: str, seed: int, device: torch.device) -> list[str]:
    call, make = CALLS[name]
    data = make(seed)
    return differences(name, data, call(to(data, device), False))


def windows_of_one_shape(name: str, seed: int) -> list[Any]:
    """Windows of other lengths, groups and kept rows that fit the same buffers."""
    if name == "window_attention":
        lengths = [(0, 3_000, 1), (511, 0, 64), (7, 1, 2_900), (2_000, 512, 0)]
        sizes = [(1, 4, 2), (8, 0, 0), (0, 3, 4), (2, 2, 1)]
        dtype = DTYPES[seed % 3]
        return [
            attention_data(
                seed + i, lengths=length, sizes=size, shape=(6, 2, 64), dtype=dtype, capacity=3_072
            )
            for i, (length, size) in enumerate(zip(lengths, sizes, strict=True))
        ]
    if name == "gated_delta":
        return [random_delta(seed + i, shape=(2, 6, 64, 40)) for i in range(REPLAYED)]
    return [random_conv(seed + i, shape=(4, 300)) for i in range(REPLAYED)]


def check_replay(name: str, seed: int, device: torch.device) -> list[str]:
    """One capture, replayed on windows of other lengths and groups."""
    call, found = CALLS[name][0], []
    first, *others = windows_of_one_shape(name, seed)
    static = to(first, device)
    call(to(first, device), False)  # compiles
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        results = call(static, False)
    for again, data in enumerate(others):
        for field in fields(data):
            if isinstance(place := getattr(static, field.name), Tensor):
                place.copy_(getattr(data, field.name))
        graph.replay()
        torch.cuda.synchronize()
        found += [f"{line} in replay {again}" for line in differences(name, data, results)]
    return found


# ---- time


def copy_bandwidth(device: torch.device, size: int = 1 << 30) -> float:
    """Bytes a microsecond that a large copy reads and writes."""
    source, target = torch.empty(2, size, dtype=torch.uint8, device=device).unbind()
    return 2 * size / median_us(lambda: target.copy_(source), launches=4)


def long_window(
    slots: int, length: int, dtype: torch.dtype, device: torch.device, rows: int = 4
) -> AttentionData:
    """`slots` groups of `rows` rows, 32 heads of 128 over 4."""
    shape, heads, kv_heads, size = (slots * rows, 40, 128), 32, 4, 128
    q, k, v = (
        torch.randn(shape, device=device).to(dtype).split_with_sizes([heads, kv_heads, kv_heads], 1)
    )
    capacity = -(-(length + rows) // 64) * 64
    keys, values = (
        torch.randn(slots, kv_heads, capacity, size, device=device, dtype=dtype) for _ in range(2)
    )
    places = length + torch.arange(rows, device=device, dtype=torch.int32).repeat(slots)
    starts = rows * torch.arange(slots + 1, device=device, dtype=torch.int32)
    return AttentionData(
        q, k, v, keys, values, places, starts, None, scale=size**-0.5, sliding=None, softcap=None
    )


def padded(data: AttentionData) -> Callable[[], Tensor]:
    """torch's own attention on the same rows, every slot padded to the whole cache."""
    slots, _, capacity, size = data.keys.shape
    q = data.q.view(slots, -1, data.q.shape[1], size).transpose(1, 2)
    limits = data.positions.view(slots, 1, -1, 1)
    seen = torch.arange(capacity, device=q.device) <= limits
    return partial(
        scaled_dot_product_attention,
        q,
        data.keys,
        data.values,
        attn_mask=seen,
        scale=data.scale,
        enable_gqa=True,
    )


def attention_costs(
    device: torch.device, bandwidth: float, lengths: tuple[int, ...] = LENGTHS
) -> Iterator[dict[str, Any]]:
    """bytes: keys and values, each once; below some 50 MB they stay in the cache of a large GPU
    and the share can exceed 1."""
    for slots in (1, 2):
        for length in lengths:
            data = long_window(slots, length, torch.bfloat16, device)
            us = median_us(partial(_attention, data, False))
            moved = (
                2
                * slots
                * data.keys.shape[1]
                * (length + 4)
                * data.keys.shape[3]
                * data.keys.element_size()
            )
            share = moved / us / bandwidth
            row: dict[str, Any] = {
                "slots": slots,
                "length": length,
                "us": round(us, 2),
                "bytes": moved,
                "share": round(share, 3),
            }
            row["goal"] = None if moved < FROM_BYTES else share >= GOAL
            yield row | {"sdpa_us": round(median_us(padded(data), launches=4), 2)}


def delta_costs(device: torch.device, bandwidth: float) -> Iterator[dict[str, Any]]:
    """Groups of 2 rows, 16 and 32 heads of 128: verify reads every state once, commit reads and
    writes it once."""
    for slots in (1, 4):
        data = random_delta(
            1, slots=slots, shape=(16, 32, 128, 128), starts=[2 * slot for slot in range(slots + 1)]
        )
        data = to(data, device)
        kept, size = torch.full_like(data.kept, 2), data.states.numel() * data.states.element_size()
        states, keys, deltas, decays = (
            x[None] for x in (data.states, data.k, data.deltas, data.decay)
        )
        verify = partial(
            gated_delta.gated_delta_verify, *data.verify_arguments(), deltas=data.deltas
        )
        commit = partial(
            gated_delta_commit.gated_delta_commit, states, keys, deltas, decays, data.starts, kept
        )
        for name, work, moved in (("verify", verify, size), ("commit", commit, 2 * size)):
            us = median_us(work)
            yield {
                "slots": slots,
                "what": name,
                "us": round(us, 2),
                "bytes": moved,
                "share": round(moved / us / bandwidth, 3),
            }


def check(device: torch.device) -> tuple[list[str], dict[str, Any]]:
    """All of it, printed as it goes: what differs, and the costs."""
    found: list[str] = []
    for name in CALLS:
        before = len(found)
        for seed in range(SEEDS):
            found += check_eager(name, seed, device)
        for seed in range(3):
            found += check_replay(name, seed, device)
        print(
            f"{name}: {'within its tolerance of its twin' if len(found) == before else 'DIFFERS'}",
            flush=True,
        )
    bandwidth = copy_bandwidth(device)
    print(f"copy: {bandwidth / 1e3:.1f} GB/s read and written", flush=True)
    costs: dict[str, Any] = {
        "copy_bytes_per_us": round(bandwidth),
        "attention": [],
        "gated_delta": [],
    }
    for key, rows in (
        ("attention", attention_costs(device, bandwidth)),
        ("gated_delta", delta_costs(device, bandwidth)),
    ):
        for row in rows:
            costs[key].append(row)
            print(
                f"{key}: " + ", ".join(f"{name} {value}" for name, value in row.items()), flush=True
            )
    return found, costs
