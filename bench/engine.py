"""`python -m bench.engine`: decoding speed of a target and its drafter on this machine, against
plain decoding and transformers.

Two ways alternate in one process (ABBA); their tokens are compared before a ratio is shown; prefill
is taken off on both sides the same way; a ratio is a median over pairs with its 95% interval by
bootstrap over pairs. Rows go to bench/results/<machine>-<date>.jsonl. Further arguments are
overrides of a run (`target.dtype=fp32`). Exit code 1 where a policy's tokens differ, 2 for bad
input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.decoding.alternating import product
from bench.decoding.comparisons import Comparison, against, decode_row, speculation, stats
from bench.decoding.rows_to_time import line_of, lines
from bench.decoding.runs import LoadedModel, Text, load, steady_prompts
from bench.decoding.transformers_peer import assistance, load_transformers
from bench.decoding.window_time import windows
from bench.rows import RESULTS, Row, default_stem, write_rows_to
from experiments.config.checks import BadInput
from experiments.config.command import Command
from mtp.costs import Cost


class Bench:
    """options: of the command line; more: overrides of a run; path: the file of rows. Prints and
    writes as it goes."""

    def __init__(self, options: argparse.Namespace, more: Sequence[str], path: Path) -> None:
        self.options, self.path = options, path
        self.more = [*more, *([f"device.threads={options.threads}"] if options.threads else [])]

    def keep(self, *rows: Row) -> None:
        write_rows_to(self.path, rows)

    def load(self, slots: int) -> LoadedModel:
        """With a slot for each request: a slot that nobody uses costs time too. Raises BadInput."""
        model = load(
            self.options.target,
            self.options.drafter,
            slots=slots,
            rows=max(self.options.rows),
            more=self.more,
        )
        if model.made.drafter is None:
            raise BadInput(f"--drafter is {self.options.drafter}, expected one that drafts")
        return model

    def run(self) -> int:
        options = self.options
        model = self.load(max(options.requests))
        # `auto` looks once
        self.more += (
            []
            if any("target.dtype=" in one for one in self.more)
            else [f"target.dtype={model.dtype}"]
        )
        print(f"{model.name} in {model.dtype} on {model.made.device}")
        cost = self.windows(model)
        texts = {}
        for kind in options.workloads:
            texts[kind] = steady_prompts(
                model.made,
                kind,
                count=max(options.requests),
                length=options.prompt,
                new=options.tokens,
            )
            print(
                f"{kind}: {len(texts[kind])} texts of {options.prompt} + {options.tokens} tokens "
                "that do not loop"
            )
        cases = [
            (kind, found[:n])
            for kind, found in texts.items()
            for n in options.requests
            if n <= len(found)
        ]
        if not cases:
            raise BadInput(
                f"--tokens is {options.tokens}: no text of that length goes without loops, "
                "expected fewer"
            )
        compared = self.speculation(cases, cost)
        if options.transformers:
            self.transformers(cases, compared)
        return int(any(one.ratio is None for one in compared))

    def windows(self, model: LoadedModel) -> Cost:
        """The cost table; policies plan with the line of the first context."""
        costs = []
        for context in self.options.contexts:
            found = windows(model, context=context, seconds=self.options.seconds, passes=40)
            self.keep(*found)
            costs.append(line_of(found)[0])
            print(
                *lines(found),
                "",
                "| rows | slots | p20, ms | p50, ms | p80, ms |",
                "|" + "---|" * 5,
                sep="\n",
            )
            for row in (row for row in found if row["shape"]["depth"] == 0):
                times = " | ".join(
                    f"{row[name] / 1e3:.2f}" for name in ("p20_us", "p50_us", "p80_us")
                )
                print(f"| {row['shape']['rows']} | {row['shape']['slots']} | {times} |")
            print(flush=True)
        return costs[0]

    def speculation(self, cases: Sequence[tuple[str, list[Text]]], cost: Cost) -> list[Comparison]:
        """More rows than the fewest only where the requests could not fill them otherwise."""
        fewest = min(self.options.rows)
        compared = []
        print(
            "\n| workload | requests | rows | policy | plain, ms/token | ms/token | ratio (95%) | "
            "tokens |\n|" + "---|" * 8
        )
        for kind, texts in cases:
            model, requests = self.load(len(texts)), len(texts)
            for rows in (
                rows for rows in self.options.rows if rows == fewest or 4 * requests > fewest
            ):
                plain: list[float] = []
                for one in speculation(
                    model,
                    kind,
                    texts,
                    rows,
                    cost,
                    new=self.options.tokens,
                    pairs=self.options.pairs,
                ):
                    print(
                        f"| {kind} | {requests} | {rows} | {one.second} | {one.cells()} |",
                        flush=True,
                    )
                    self.keep(one.row())
                    plain += one.pairs.first_s
                    compared.append(one)
                self.keep(decode_row("plain", compared[-1].shape, plain))
        return compared

    def transformers(
        self, cases: Sequence[tuple[str, list[Text]]], compared: Sequence[Comparison]
    ) -> None:
        """Ours as (our plain / their plain) x (our best policy / our plain), and their assisted
        generation beside it."""
        model = self.load(1)
        their = load_transformers(model.folder, model.made.target.dtype, model.made.device)
        assisted, why = assistance(their, model.folder, model.drafter, cases[0][1][0])
        print(
            "\ntransformers' assisted generation: "
            f"{why if assisted else f'none for this pair ({why})'}"
        )
        print(
            "\n| workload | requests | transformers, ms/token | ours, ms/token | plain / theirs | "
            "tokens | best policy / plain | product |"
        )
        print("|" + "---|" * 8)
        how = {"new": self.options.tokens, "pairs": self.options.pairs}
        for kind, texts in cases:
            mine = [
                one
                for one in compared
                if (one.shape["workload"], one.shape["requests"]) == (kind, len(texts))
                and one.ratio
            ]
            if not mine:
                continue
            plain = against(self.load(len(texts)), kind, texts, their, assisted=None, **how)
            best = max(mine, key=lambda one: product(one.pairs.ratios).middle)
            whole = product(plain.pairs.ratios, best.pairs.ratios) if plain.ratio else None
            name = f"{best.second} at {best.shape['rows']} rows"
            print(
                f"| {kind} | {len(texts)} | {plain.cells()} | {name}: {best.ratio} | "
                f"{whole or 'not shown'} |",
                flush=True,
            )
            self.keep(
                plain.row()
                | {
                    "implementation": "plain, beside transformers",
                    "best": name,
                    "product": stats(whole),
                }
            )
            self.keep(decode_row("transformers", plain.shape, plain.pairs.first_s))
            if assisted and len(texts) == 1:
                fast = against(model, kind, texts, their, assisted=assisted, **how)
                print(f"| {kind}, theirs assisted | 1 | {fast.cells()} | | |", flush=True)
                self.keep(fast.row())


def counts(text: str) -> list[int]:
    """Integers between commas."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise argparse.ArgumentTypeError(f"{text}, expected integers of at least 1")
    return [int(part) for part in parts]


def amount(text: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text}, expected an integer of at least {least}")
    return int(text)


def workloads(text: str) -> list[str]:
    known = ("code", "prose", "mixed", "chat")
    if not set(text.split(",")) <= set(known):
        raise argparse.ArgumentTypeError(f"{text}, expected some of {','.join(known)}")
    return text.split(",")


def main() -> int:
    parser = Command(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--target", default="tiny_qwen", help="a name in configs/target, or a checkpoint folder"
    )
    parser.add_argument(
        "--drafter", help="a name in configs/drafter, or a folder; default: the one of a run"
    )
    parser.add_argument("--workloads", type=workloads, default="code,prose")
    parser.add_argument("--requests", type=counts, default="1,2,4,8")
    parser.add_argument("--rows", type=counts, default="8,16", help="of a window")
    parser.add_argument("--prompt", type=amount, default=32, help="prompt tokens of a request")
    parser.add_argument(
        "--tokens", type=partial(amount, least=2), default=96, help="new tokens of a request"
    )
    parser.add_argument("--pairs", type=amount, default=5, help="alternating pairs of a comparison")
    parser.add_argument(
        "--contexts", type=counts, default="64,768", help="of the windows that are timed by rows"
    )
    parser.add_argument(
        "--seconds", type=amount, default=15, help="of timing windows, at each context, at most"
    )
    parser.add_argument("--threads", type=amount, help="default: as a run chooses")
    parser.add_argument("--no-transformers", dest="transformers", action="store_false")
    parser.add_argument(
        "--out", type=Path, help="the file of rows; default bench/results/<machine>-<date>.jsonl"
    )
    options, more = parser.parse_known_args()
    path = options.out or RESULTS / f"{default_stem()}.jsonl"
    try:
        if options.tokens <= max(options.requests):
            raise BadInput(
                f"--tokens is {options.tokens}, expected more than the most requests "
                f"({max(options.requests)})"
            )
        code = Bench(options, more, path).run()
    except (BadInput, ValueError) as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    print(f"\nwritten to {path}; its plot: make bench-report ROWS={path}")
    return code


if __name__ == "__main__":
    sys.exit(main())
