"""`python -m experiments.report DIR`: the report of a folder of runs, in DIR/report unless --out
says otherwise."""

from __future__ import annotations

from pathlib import Path

from experiments.config.checks import BadInput
from experiments.config.command import Command


def main() -> None:
    parser = Command(
        prog="python -m experiments.report",
        description="One page, tables and plots of all runs at or below DIR.",
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="a folder of runs or sweeps")
    parser.add_argument(
        "--baseline",
        metavar="KEY=VALUE,...",
        help="against which arm; policy=static_k,policy.k=1 (default: plain decoding)",
    )
    parser.add_argument(
        "--mix-versions", action="store_true", help="take runs of several code versions together"
    )
    parser.add_argument("--out", type=Path, help="the folder to write to (default: DIR/report)")
    given = parser.parse_args()
    from experiments.report.files import write  # matplotlib takes a second: not for --help

    try:
        print(write(given.dir, given.out, baseline=given.baseline, mix_versions=given.mix_versions))
    except BadInput as wrong:
        parser.error(str(wrong))


if __name__ == "__main__":
    main()
