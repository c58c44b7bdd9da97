"""`geo doctor`."""

from __future__ import annotations

import argparse

from geo.cli.arguments import Verbs, add_engine
from geo.cli.findings import typed
from geo.cli.output import Output
from geo.cli.running import LookedAt, start_spark
from geo.config import load
from geo.ops.doctor import examine
from geo.ops.symptom import Symptom
from geo.times import from_us


def add_doctor(verbs: Verbs, does: str) -> None:
    p = verbs.add("doctor", does, doctor)
    p.add_argument(
        "--write-check",
        action="append",
        default=[],
        metavar="CLUSTER",
        help="try also what the keys of a cluster on S3 may write, in a folder of its own below the root; may be repeated",
    )
    p.add_argument(
        "--fail-on", choices=("warn", "error"), default="error", help="the least that makes the exit code 1 (default: error)"
    )
    add_engine(p)


def doctor(args: argparse.Namespace, output: Output) -> int:
    config = load(args.config)
    spark = None if args.engine == "native" else start_spark("geo doctor", config)
    findings = examine(spark, config, LookedAt("geo doctor", config, args.engine).clusters, args.write_check)
    output.data([_as_json(one) for one in findings])
    for one in findings:
        told = one.what if one.code is None else f"{one.code.value}{_since(one)}: {one.what}"
        output.text(f"{one.level:5} {one.where}: {told}" + (f"\n      fix: {typed(one.fix, args.config)}" if one.fix else ""))
    bad = ("error", "warn") if args.fail_on == "warn" else ("error",)
    return 1 if any(one.level in bad for one in findings) else 0


def _as_json(one: Symptom) -> dict[str, object]:
    since = None if one.since_us is None else f"{from_us(one.since_us):%Y-%m-%dT%H:%M:%SZ}"
    code = None if one.code is None else one.code.value
    return {"level": one.level, "where": one.where, "what": one.what, "fix": one.fix, "code": code, "since": since}


def _since(one: Symptom) -> str:
    return "" if one.since_us is None else f", since {from_us(one.since_us):%Y-%m-%d %H:%M:%SZ}"
