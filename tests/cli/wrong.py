"""`python -m tests.cli.wrong FOLDER`: wrong usages of the command line, from stdin as JSON, one after another in this process, which has no Spark.
Prints of each what was said, the exit code, for how long it ran, what of the folder is another afterwards, and whether Spark was started."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from geo.cli.main import main

TOPIC = "persistent://shop/web/orders"

CONFIG = """\
version: 1
clusters:
  eu: {{root: {0}/eu}}
  us: {{root: {0}/us}}
  away: {{root: /sys/geo}}
links:
  - {{source: eu, target: us}}
  - {{source: us, target: eu}}
"""

SMALL = (
    "topics create --cluster eu --topic {topic}",
    "topics create --cluster eu --topic {topic}-parts --partitions 3",
    "topics create --cluster eu --topic {topic}-typed --columns 'amount DECIMAL(10,2), currency STRING'",
    "topics set --cluster eu --topic {topic} --replication-clusters eu,us",
    "subscriptions create --cluster eu --topic {topic} --subscription billing",
    "subscriptions create --cluster eu --topic {topic} --subscription lake --mode version",
    "subscriptions ack --cluster eu --topic {topic} --subscription lake --version 0",
    "subscriptions reset --cluster eu --topic {topic} --subscription billing --to -1d --yes",
    "subscriptions create --cluster eu --topic {topic} --subscription brief --start 2026-11-29T21:42:40.795243+01:00",
    "subscriptions set --cluster eu --topic {topic} --subscription brief --replicate-subscription-state false",
    "subscriptions delete --cluster eu --topic {topic} --subscription brief --yes",
    "subscriptions create --cluster eu --topic {topic}-parts-partition-0 --subscription billing",
    "links restart --source us --target eu",
    "links restart --source eu --target us --topic {topic}-parts",
    "failover --topic {topic} --subscription billing --from eu --to eu --dry-run",
)
"""What writes something small, and so starts no Spark; but for the last one, which is refused."""


def has_jvm() -> bool:
    spark = sys.modules.get("pyspark")
    return spark is not None and spark.SparkContext._gateway is not None


def _files() -> dict[str, tuple[int, int]]:
    """But for locks, which are files that stay."""
    files = (one for one in Path().rglob("*") if one.is_file() and "locks" not in one.parts)
    return {str(one): (one.stat().st_size, one.stat().st_mtime_ns) for one in files}


def run(line: str) -> dict[str, Any]:
    before, out, err, began = _files(), io.StringIO(), io.StringIO(), time.monotonic()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code: object = main(shlex.split(line.format(topic=TOPIC)))
        except SystemExit as end:
            code = end.code
        except Exception as error:
            code = repr(error)
    seconds, after = time.monotonic() - began, _files()
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return {"code": code, "said": out.getvalue() + err.getvalue(), "seconds": seconds, "changed": changed, "jvm": has_jvm()}


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    Path("geo.yaml").write_text(CONFIG.format(Path.cwd()))
    Path("bad.yaml").write_text("version: 1\nclusters:\n  eu: {root: eu, rooot: eu}\n")
    Path("not.yaml").write_text("clusters: [\n")
    Path("moved.yaml").write_text("version: 1\nclusters:\n  eu: {root: nowhere}\n")
    Path("mine/_delta_log").mkdir(parents=True)
    wrong = json.load(sys.stdin)
    print(json.dumps({"small": [run(line) for line in SMALL], "wrong": [run(line) for line in wrong]}))
    sys.stdout.flush()
    os._exit(0)  # nothing waits for threads that look at what is not there
