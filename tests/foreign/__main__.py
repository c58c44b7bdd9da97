"""`python -m tests.foreign`: every kind of foreign commit in every situation, as a matrix."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import SparkSession

from tests.foreign import consumers, links, producers
from tests.foreign.kinds import KINDS
from tests.foreign.place import Kind
from tests.foreign.sequences import fit, run_sequences
from tests.foreign.verdicts import Cell, Verdict, details, document, rendered

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
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep the cells in this file, and show those that it had, too")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the matrix into this file (docs/foreign.md)")
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
    kept = json.loads(args.keep.read_text()) if args.keep and args.keep.exists() else {}
    for name in args.situations:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"geo-foreign-{name}-") as folder:
            for kind, cells in SITUATIONS[name][0](spark, Path(folder), kinds).items():
                kept.setdefault(kind.slug, {}).update({column: [cell.verdict, cell.why] for column, cell in cells.items()})
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if args.keep:
            args.keep.write_text(json.dumps(kept, indent=1))
    columns = [column for _, filled in SITUATIONS.values() for column in filled]
    matrix = {
        (kind.engine, kind.name): {column: Cell(Verdict(verdict), why) for column, (verdict, why) in kept[kind.slug].items()}
        for kind in KINDS
        if kind.slug in kept
    }
    print("\n".join(rendered(matrix, columns)))
    for verdict in (Verdict.WRONG, Verdict.NONE, Verdict.LOUD):
        print(f"\n{verdict.value}:", *details(matrix, verdict), sep="\n")
    if args.write:
        versions = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "delta-spark", "deltalake"))
        args.write.write_text(document(matrix, columns, versions))
    return int(any(cell.verdict is Verdict.WRONG for cells in matrix.values() for cell in cells.values()))


if __name__ == "__main__":
    sys.exit(main())
