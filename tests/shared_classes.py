"""`python -m tests.shared_classes`: Spark's and Delta's classes, read once and kept in a file for every JVM that tests start.

Java calls it class data sharing: a JVM that lives half a minute spends a quarter of it with reading classes. The file, 200 MB,
lies in the virtual environment, and another Java, Spark or Delta gets another one. Java itself looks whether it fits, and reads
classes as ever if not.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from geo.errors import SetupError
from geo.jars import find_java
from tests.processes import JAVA

_PREFIX = "shared-classes-"


def java_options() -> str:
    """What a JVM of Spark is started with to use the file: nothing if there is none."""
    try:
        archive = _archive()
    except SetupError:  # no Java: the tests without Spark need none
        return ""
    return f"-XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:class+path=off" if archive.exists() else ""


def _archive() -> Path:
    parts = [os.path.realpath(find_java()), version("pyspark"), (files("geo") / "jars.lock").read_text()]
    return Path(sys.prefix) / f"{_PREFIX}{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}.jsa"


def main() -> None:
    """Make the file if it is not there: once, half a minute. Tests run without it too, so a failure is only said."""
    archive = _archive()
    if archive.exists():
        return
    print("tests: reading the JVM's classes once (half a minute)", file=sys.stderr)
    for old in archive.parent.glob(f"{_PREFIX}*"):
        old.unlink()
    made = archive.with_suffix(".new")
    # It ends when the JVM has closed the pipe: after it has written the file.
    done = subprocess.run(
        [sys.executable, "-c", "from tests import shared_classes; shared_classes._use_classes()"],
        env={**os.environ, "SPARK_SUBMIT_OPTS": f"{JAVA} -XX:ArchiveClassesAtExit={made}"},
        cwd=Path(__file__).parents[1],
        capture_output=True,
    )
    if made.exists() and not done.returncode:
        made.rename(archive)
    else:
        print(f"tests: no file of classes was made, the tests take longer:\n{done.stderr.decode()[-2000:]}", file=sys.stderr)


def _use_classes() -> None:
    """What the processes of tests do: publish rows and lines, replicate, consume, verify."""
    from geo.log.publish import publish_json_lines
    from geo.session import session
    from geo.streams.trigger import AVAILABLE_NOW
    from geo.subscription.consumer.subscription import Subscription
    from tests.world import TOPIC, World

    spark = session("classes", master="local[2]")
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), spark=spark)
        lines = world.folder / "in.jsonl"
        lines.write_text("".join(json.dumps({"key": f"k{n}"}) + "\n" for n in range(10)))
        publish_json_lines(spark, str(lines), TOPIC, world.config, "eu").await_termination()
        world.publish("us", 10)
        for target in world.config.clusters:
            world.replicate(target)
        world.verify()
        subscription = Subscription(spark, TOPIC, "s", world.config, "us", start="earliest")
        subscription.run(lambda messages: messages, trigger=AVAILABLE_NOW)
    spark.stop()


if __name__ == "__main__":
    main()
