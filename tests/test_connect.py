"""Over Spark Connect, with a server of its own: verbs that look answer as ever, and each that would write is refused by name before it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import JAVA, LEAST
from tests.world import TOPIC, World

_PROGRAM = """
import json, sys, warnings
from pyspark.sql import SparkSession
from geo.cli.main import main
from geo.errors import SetupError
from geo.jars import ensure_jars, locked_jars
from geo.session import LOCAL_DEFAULTS, SPARK_DEFAULTS
from geo.delta.driver import Driver

warnings.simplefilter("ignore")  # it says of each setting that a server has it from its start
least, verbs = json.loads(sys.argv[1]), json.loads(sys.argv[2])
builder = SparkSession.builder.remote("local[2]").config("spark.jars", ",".join(map(str, ensure_jars(jars=locked_jars(())))))
for key, value in {**SPARK_DEFAULTS, **LOCAL_DEFAULTS, **least}.items():
    builder = builder.config(key, value)
begun_later = Driver(lambda: spark)
begun_later.refuse_connect()
spark = builder.getOrCreate()
try:
    print("LATER", begun_later.spark, flush=True)
except SetupError as error:
    print("LATER", str(error)[:40], flush=True)
for verb in verbs:
    print("VERB", " ".join(verb), flush=True)
    print("ENDS", main(verb), flush=True)
"""

_OF_EU = ("--cluster", "eu", "--topic", str(TOPIC))
_LINK = ("--source", "us", "--target", "eu")
_LOOK = (
    ("verify", "--engine", "spark"),
    ("topics", "list", "--engine", "spark"),
    ("links", "list", "--engine", "spark"),
    ("peek", *_OF_EU, "--engine", "spark"),
)
_ONCE = ("--trigger", "available-now")
_WRITE = (
    ("publish", *_OF_EU, "--jsonl", "lines.jsonl"),
    ("replicate", "--cluster", "eu", *_ONCE),
    ("broker", "--cluster", "eu", *_ONCE),
    ("consume", *_OF_EU, "--subscription", "billing", *_ONCE),
    ("subscriptions", "create", *_OF_EU, "--subscription", "billing"),
    ("subscriptions", "fold", "--cluster", "eu", *_ONCE),
    ("subscriptions", "sync", "--cluster", "eu", *_ONCE),
    ("failover", "--topic", str(TOPIC), "--subscription", "billing", "--from", "us", "--to", "eu"),
    ("reconcile", *_LINK, "--topic", str(TOPIC)),
    ("backfill", *_LINK, "--topic", str(TOPIC)),
    ("rebuild", "--cluster", "eu", "--from", "us", "--yes"),
    ("links", "pause", *_LINK),
    ("topics", "create", "--cluster", "eu", "--topic", "persistent://shop/web/orders"),
    ("topics", "delete", *_OF_EU, "--yes"),
    ("maintain", "--cluster", "eu"),
    ("erase", *_OF_EU, "--where", "key = 'k1'", "--yes"),
    ("links", "resolve", *_LINK, "--topic", str(TOPIC)),
    ("topics", "set", *_OF_EU, "--replication-clusters", "us,eu"),
)


@pytest.mark.spark
def test_what_looks_works_over_spark_connect_and_what_would_write_is_refused_by_name(linked: World, tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text('{"key": "a"}\n')
    before = _files(tmp_path)
    verbs = [[*verb, "--config", "geo.yaml"] for verb in (*_LOOK, *_WRITE)]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(LEAST), json.dumps(verbs)],
        cwd=tmp_path,
        env={**os.environ, "JDK_JAVA_OPTIONS": JAVA, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    said = {(lines := part.splitlines())[0]: lines[1:] for part in done.stdout.split("VERB ")[1:]}
    codes = {verb: next(line for line in lines if line.startswith("ENDS ")) for verb, lines in said.items()}
    assert "LATER this is a Spark Connect session" in done.stdout, "also by one that is started after the question"
    commands = [" ".join(verb) for verb in verbs]
    assert codes == {verb: "ENDS 0" if at < len(_LOOK) else "ENDS 2" for at, verb in enumerate(commands)}, done.stdout
    assert "clean: 1 topic, 2 links, 40 messages compared, 0 in flight" in said[commands[0]]
    for verb in commands[len(_LOOK) :]:
        assert any("this is a Spark Connect session" in line for line in said[verb]), said[verb]
    assert _files(tmp_path) == before, "nothing was written"


def _files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and "artifacts" not in path.parts}
