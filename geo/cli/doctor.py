"""`geo doctor`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from geo.cli.arguments import Verbs, add_engine, add_fail_on
from geo.cli.output import Colour, Line, Output
from geo.cli.running import LookedAt, start_spark
from geo.cli.verbs import typed
from geo.config import load
from geo.ops.doctor import examine
from geo.ops.problems import fails
from geo.ops.symptom import Symptom
from geo.reasons import Level
from geo.times import from_us, shown_time


def add_doctor(verbs: Verbs, does: str) -> None:
    p = verbs.add("doctor", does, doctor)
    p.add_argument(
        "--write-check",
        action="append",
        default=[],
        metavar="CLUSTER",
        help="try also what the keys of a cluster on S3 may write, in a folder of its own below the root; may be repeated",
    )
    add_fail_on(p, None, "warn for what links are like, as of geo status; error for the rest")
    add_engine(p)


def doctor(args: argparse.Namespace, output: Output) -> int:
    config = load(args.config)
    spark = None if args.engine == "native" else start_spark("geo doctor", config)
    findings = examine(spark, config, LookedAt("geo doctor", config, args.engine).regions, args.write_check)
    told = [replace(one, fix=typed(one.fix, args.config)) for one in findings]
    output.data(told)
    output.lines(line for one in told for line in _lines(one))
    return exit_code(findings, args.fail_on)


def exit_code(found: Sequence[Symptom], fail_on: Level | None) -> int:
    """`fail_on` None: what links are like counts as for `geo status`, of all else what is an error."""
    of_links, others = [one.level for one in found if one.health], [one.level for one in found if not one.health]
    return int(fails(of_links, fail_on or "warn") or fails(others, fail_on or "error"))


_COLOURS: Mapping[Level, Colour | None] = {"ok": None, "warn": Colour.WARNS, "error": Colour.BAD}

_INDENT = 6
"""Columns by which the lines below a level are indented."""


def _lines(one: Symptom) -> Iterator[Line]:
    when = "" if one.since_us is None else f", since {shown_time(from_us(one.since_us))}"
    parts = (one.where, one.health and one.health.value, one.code and f"{one.code.value}{when}", one.what)
    yield Line(f"{one.level:{_INDENT - 1}} {': '.join(filter(None, parts))}", _COLOURS[one.level], _INDENT)
    if one.fix:
        yield Line(f"{' ' * _INDENT}fix: {one.fix}", indent=_INDENT + 4)
