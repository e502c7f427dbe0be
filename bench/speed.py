"""`python -m bench.speed`: decoding speed of the shipped model on this machine, as ratios measured in one process.

Alternating runs (ABBA), medians over pairs, and the interval of the ratio by bootstrap over pairs. Tokens are compared before a
ratio is shown. Writes bench/results/speed_<device>.json and prints Markdown tables.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mtp.drafters import load_qwen_mtp
from mtp.drafters.protocol import Drafter
from mtp.engine import Engine
from mtp.execution.buckets import Buckets
from mtp.execution.model import ModelExecutor
from mtp.metrics import repetition
from mtp.policies import Policy, RotateGrow, StaticK
from mtp.request import Request
from mtp.targets import load_target
from mtp.targets.protocol import Target

ROOT = Path(__file__).resolve().parent
MODEL = ROOT.parent / "experiments" / "models" / "tiny_qwen"
TIGHT = Buckets(())
CPU = torch.device("cpu")
Tokens = dict[str, tuple[int, ...]]


def steady_prompts(target: Target, kind: str, length: int, new: int) -> list[tuple[int, ...]]:
    """Shipped prompts whose `new` greedy tokens repeat no 16-gram: on looping text any drafter looks good."""
    steady = []
    for text in prompts(kind, 40, length):
        executor = ModelExecutor(target, None, slots=target.slots, largest_group=1, depth=0, buckets=TIGHT, device=CPU)
        engine = Engine(executor, slots=1, policy=StaticK(0))
        engine.submit(Request("text", text, new, ignore_stop=True))
        finished = engine.run()
        if finished[0].finish == "length" and not repetition(finished):
            steady.append(text)
    return steady


def prompts(kind: str, count: int, length: int) -> list[tuple[int, ...]]:
    """The first `count` shipped prompts of a kind that have `length` tokens, cut to them."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    lines = (ROOT.parent / "experiments" / "prompts" / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    encoded = [tuple(tokenizer.encode(json.loads(line)["prompt"]).ids) for line in lines]
    return [ids[:length] for ids in encoded if len(ids) >= length][:count]


def decode(
    target: Target, drafter: Drafter | None, policy: Policy, texts: Sequence[tuple[int, ...]], new: int, rows: int
) -> tuple[float, Tokens]:
    """Seconds per token of windows, and the tokens."""
    executor = ModelExecutor(target, drafter, slots=target.slots, rows=rows, largest_group=4, depth=policy.depth, buckets=TIGHT, device=CPU)
    engine = Engine(executor, slots=len(texts), rows=rows, policy=policy)
    for number, text in enumerate(texts):
        engine.submit(Request(str(number), text, new, ignore_stop=True))
    finished = engine.run()
    seconds = sum(step.end_s - step.start_s for step in engine.steps if step.kind == "window")
    return seconds / sum(round_.committed for round_ in engine.rounds), {done.id: done.tokens for done in finished}


def alternate(first: Callable[[], tuple[float, Tokens]], second: Callable[[], tuple[float, Tokens]], pairs: int) -> dict[str, Any]:
    """How many times as fast the second is: median and 95% interval of the ratio over pairs run in the order ABBA."""
    first(), second()  # warm
    times: list[tuple[float, float]] = []
    equal = True
    for pair in range(pairs):
        order = (first, second) if pair % 2 == 0 else (second, first)
        results = {call: call() for call in order}
        equal &= results[first][1] == results[second][1]
        times.append((results[first][0], results[second][0]))
    ratios = np.array([a / b for a, b in times])
    draws = np.median(np.random.default_rng(0).choice(ratios, (2000, len(ratios))), axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    medians = np.median(np.array(times), axis=0)
    return {
        "ratio": float(np.median(ratios)),
        "interval": [float(low), float(high)],
        "first_ms_per_token": 1e3 * float(medians[0]),
        "second_ms_per_token": 1e3 * float(medians[1]),
        "pairs": pairs,
        "tokens": "equal" if equal else "differ",
    }


def speculation(target: Target, drafter: Drafter, new: int, pairs: int) -> list[dict[str, Any]]:
    found = []
    for kind in ("code", "prose"):
        steady = steady_prompts(target, kind, 32, new)
        print(f"{kind}: {len(steady)} texts that do not loop", flush=True)
        for slots in (1, 4):
            texts = steady[:slots]
            for rows, policy in ((8, RotateGrow()), (8, StaticK(1)), (16, RotateGrow()), (16, StaticK(3))):
                if rows == 16 and slots == 1:
                    continue  # one slot never gets more than 4 rows
                plain = partial(decode, target, None, StaticK(0), texts, new, rows)
                result = alternate(plain, partial(decode, target, drafter, policy, texts, new, rows), pairs)
                name = "rotate_grow" if isinstance(policy, RotateGrow) else f"static_k {policy.depth}"
                found.append({"workload": kind, "requests": slots, "policy": name, "rows": rows, **result})
                print(f"| {kind} | {slots} | {name} | {rows} | {_cells(result)} |", flush=True)
    return found


def against_transformers(target: Target, new: int, pairs: int) -> list[dict[str, Any]]:
    """Our plain decoding against transformers' plain `generate`, the same folder, dtype and threads."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=target.dtype).eval()
    found = []
    for slots in (1, 4):
        texts = prompts("code", slots, 32)

        def theirs(texts: Sequence[tuple[int, ...]] = texts) -> tuple[float, Tokens]:
            ids = torch.tensor(texts)
            with torch.inference_mode():
                began = time.perf_counter()
                model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False)
                prefilled = time.perf_counter()
                out = model.generate(
                    ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False, eos_token_id=None
                )
                seconds = (time.perf_counter() - prefilled) - (prefilled - began)  # decoding alone
            tokens = {str(number): tuple(row[ids.shape[1] :].tolist()) for number, row in enumerate(out)}
            return seconds / (len(texts) * (new - 1)), tokens

        result = alternate(theirs, partial(decode, target, None, StaticK(0), texts, new, 8), pairs)
        found.append({"requests": slots, **result})
        print(f"| {slots} | {_cells(result)} |", flush=True)
    return found


def window_cost(target: Target, new: int) -> dict[str, Any]:
    """Milliseconds of one verify by rows, medians, and the least-squares line through them."""
    from triton_kernels import pack_window

    counts, costs = (1, 2, 4, 8), []
    slots = target.slots
    for slot in range(slots):
        target.clear(slot)
        target.prefill(slot, torch.tensor(prompts("code", 1, 32)[0], dtype=torch.int32), 0)
    zero = torch.zeros(slots, dtype=torch.int32)
    for rows in counts:
        groups = torch.tensor([max(0, min(4, rows - 4 * slot)) for slot in range(slots)], dtype=torch.int32)
        window = pack_window(zero + 5, torch.full((slots, 3), 6, dtype=torch.int32), zero + 32, groups, bucket=rows)
        samples = []
        for _ in range(new):
            began = time.perf_counter()
            target.verify(window)
            samples.append(time.perf_counter() - began)
        costs.append(1e3 * float(np.median(samples)))
    slope, base = np.polyfit(counts, costs, 1)
    return {"rows": counts, "verify_ms": costs, "base_ms": float(base), "ms_per_row": float(slope), "samples": new}


def _cells(result: dict[str, Any]) -> str:
    low, high = result["interval"]
    times = f"{result['first_ms_per_token']:.2f} | {result['second_ms_per_token']:.2f}"
    return f"{times} | {result['ratio']:.2f} ({low:.2f} to {high:.2f}) | {result['tokens']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=128, help="new tokens of each request")
    parser.add_argument("--pairs", type=int, default=6, help="alternating pairs per comparison")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    target = load_target(MODEL, slots=4, context=512, device=CPU, rows=16)
    drafter = load_qwen_mtp(MODEL, target, buckets=TIGHT)
    print("| workload | requests | policy | rows | plain ms/token | speculative ms/token | ratio (95%) | tokens |")
    print("|---|---|---|---|---|---|---|---|")
    speculative = speculation(target, drafter, options.tokens, options.pairs)
    print("\n| requests | transformers ms/token | ours ms/token | ratio (95%) | tokens |\n|---|---|---|---|---|")
    plain = against_transformers(target, options.tokens, options.pairs)
    cost = window_cost(target, 200)
    print("\n| rows | " + " | ".join(map(str, cost["rows"])) + " |\n|---|" + "---|" * len(cost["rows"]))
    print("| verify, ms | " + " | ".join(f"{ms:.2f}" for ms in cost["verify_ms"]) + " |")
    print(f"\nline: {cost['base_ms']:.2f} + {cost['ms_per_row']:.3f} * rows ms")
    machine = {"machine": platform.machine(), "torch": torch.__version__, "threads": options.threads, "dtype": str(target.dtype)}
    results = {**machine, "new_tokens": options.tokens, "speculation": speculative, "against_transformers": plain, "window_cost": cost}
    (ROOT / "results" / "speed_cpu.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
