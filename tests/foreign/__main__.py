"""`python -m tests.foreign`: every kind of foreign commit in every situation, as a matrix."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from tests.foreign import consumers, links, producers
from tests.foreign.kinds import KINDS
from tests.foreign.place import Kind
from tests.foreign.sequences import fit, run_sequences
from tests.foreign.verdicts import Cell, Verdict, details, rendered

Situation = Callable[[SparkSession, Path, Sequence[Kind]], Mapping[Kind, Mapping[str, Cell]]]

SITUATIONS: dict[str, tuple[Situation, Sequence[str]]] = {
    "rest": (links.at_rest, ("source, at rest", "target, at rest", "tail")),
    "running": (links.while_running, ("source, running", "target, running")),
    "producer": (producers.with_live_producers, (producers.COLUMN,)),
    "consumer": (consumers.with_consumers, (consumers.COLUMN,)),
}
"""By name: what it does, and the columns it fills."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run foreign", description=__doc__)
    parser.add_argument("--only", default="", help="kinds whose engine and name contain this")
    parser.add_argument("--situations", nargs="+", choices=SITUATIONS, default=list(SITUATIONS))
    parser.add_argument("--sequences", type=int, metavar="N", help="so many random sequences of them, and no matrix")
    parser.add_argument("--seed", type=int, default=1, help="of the first sequence (default: %(default)s)")
    parser.add_argument("--write", type=Path, help="write the matrix into this file")
    args = parser.parse_args()
    from geo.session import session
    from tests.processes import LEAST

    kinds = [kind for kind in KINDS if args.only.lower() in f"{kind.engine} {kind.name}".lower()]
    spark = session("delta-geo foreign", master="local[2]", conf=LEAST)
    if args.sequences:
        with tempfile.TemporaryDirectory(prefix="geo-foreign-sequences-") as folder:
            wrong = run_sequences(spark, Path(folder), list(filter(fit, kinds)), args.sequences, args.seed)
        print("\n".join(wrong) or f"{args.sequences} sequences: each is right in the end, or a link is FAILED and says why.")
        return int(bool(wrong))
    matrix: dict[tuple[str, str], dict[str, Cell]] = {(kind.engine, kind.name): {} for kind in kinds}
    columns: list[str] = []
    for name in args.situations:
        situation, filled = SITUATIONS[name]
        columns += filled
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"geo-foreign-{name}-") as folder:
            for kind, cells in situation(spark, Path(folder), kinds).items():
                matrix[kind.engine, kind.name].update(cells)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    lines = rendered(matrix, columns)
    print("\n".join(lines))
    for verdict in (Verdict.WRONG, Verdict.NONE, Verdict.LOUD):
        print(f"\n{verdict.value}:", *details(matrix, verdict), sep="\n")
    if args.write:
        args.write.write_text("\n".join(lines) + "\n")
    return int(any(cell.verdict is Verdict.WRONG for cells in matrix.values() for cell in cells.values()))


if __name__ == "__main__":
    sys.exit(main())
