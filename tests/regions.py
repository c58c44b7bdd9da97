"""Two regions whose tables are anywhere, by the command line as users type it, and what is shown of them on any storage."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from geo.config import load
from geo.journal.cluster import connect
from geo.log.topic_log import ID
from geo.names import Topic
from geo.session import session
from tests.object_store import KEY, SECRET
from tests.processes import JAVA, LEAST, last_line
from tests.shared_classes import java_options
from tests.spark_master import Failed, Started

CLUSTERS = ("eu", "us")
TOPIC = "persistent://shop/web/clicks"
LINES = 300
"""That a region is given at once."""

CONSUMER = ["--cluster", "eu", "--subscription", "billing", "--trigger", "available-now", "-o", "json", "--topic", TOPIC]


class Regions:
    """Two clusters, linked both ways, each with a folder of lines that its broker publishes to each of the topics."""

    def __init__(
        self,
        folder: Path,
        roots: Mapping[str, str],
        conf: Mapping[str, Mapping[str, str]],
        *,
        topics: Sequence[str] = (TOPIC,),
        placement: Mapping[str, object] | None = None,
        **more: object,
    ) -> None:
        self._folder, self.path, self._topics = folder, folder / "geo.yaml", topics
        self.lines: dict[str, int] = dict.fromkeys(roots, 0)
        """How many lines each region was given."""
        for name in roots:
            (folder / f"lines-{name}").mkdir()
        document = {
            "version": 1,
            "clusters": {name: {"root": root, "spark_conf": dict(conf[name]), **more} for name, root in roots.items()},
            "links": [{"source": one, "target": other} for one, other in itertools.permutations(roots, 2)],
            "publish": [{"cluster": name, "topic": topic, "jsonl": f"lines-{name}"} for name in roots for topic in topics],
            **({} if placement is None else {"placement": placement}),
        }
        self.path.write_text(yaml.safe_dump(json.loads(json.dumps(document))))  # no aliases

    def give(self, cluster: str, into: Path | None = None) -> Path:
        """More lines, in a file of their own unless it is said in which."""
        first = self.lines[cluster]
        file = into or self._folder / f"lines-{cluster}" / f"{first:06}.jsonl"
        with file.open("a") as lines:
            lines.write("".join(json.dumps({"key": f"{cluster}-{n}"}) + "\n" for n in range(first, first + LINES)))
        self.lines[cluster] += LINES
        return file

    def environment(self) -> dict[str, str]:
        """Of a process that works with the regions."""
        return {
            **os.environ,
            "MASTER": "local[2]",
            "SPARK_SUBMIT_OPTS": java_options(),
            "JDK_JAVA_OPTIONS": JAVA,
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
            "GEO_TEST_KEY": KEY,
            "GEO_TEST_SECRET": SECRET,
        }

    def start(self, *arguments: str, **env: str) -> Started:
        """`geo`, with the configuration."""
        log = self._folder / f"{'-'.join(word.strip('-') for word in arguments[:3])}-{time.monotonic_ns()}.log"
        command = (sys.executable, "-m", "geo", *arguments, "--config", str(self.path))
        return Started(f"geo {' '.join(arguments)}", log, *command, env=self.environment() | env)

    def run(self, *arguments: str, code: int = 0, **env: str) -> str:
        """What `geo` said. Raises Failed for another exit code, and where a trace of Java's or Python's is in it."""
        process = self.start(*arguments, **env)
        process.ends(code)
        if "\tat " in process.said or "Traceback" in process.said:
            raise Failed(f"{process.name}: a trace:\n{process.said[-5000:]}")
        return process.said

    def broker(self, cluster: str, code: int = 0, **env: str) -> str:
        return self.run("broker", "--cluster", cluster, "--trigger", "available-now", code=code, **env)

    @property
    def keys(self) -> list[str]:
        """Of all lines that were given."""
        return sorted(f"{cluster}-{n}" for cluster, count in self.lines.items() for n in range(count))

    def check(self) -> int:
        """How many messages each region has: each line once, and both the same. Raises Failed."""
        config = load(self.path)
        os.environ.update(GEO_TEST_KEY=KEY, GEO_TEST_SECRET=SECRET)
        spark = session("delta-geo storages", master="local[2]", conf=LEAST, schemes=config.schemes)
        for topic in self._topics:
            found = []
            for cluster in CLUSTERS:
                log = connect(spark, config.cluster(cluster)).log(Topic.parse(topic))
                rows = log.read().where("marker IS NULL").select("key", *ID).collect() if log.exists() else []
                found.append(sorted(tuple(row) for row in rows))
            if found[0] != found[1] or [row[0] for row in found[0]] != self.keys:
                raise Failed(
                    f"{topic}: {len(self.keys)} lines, {len(found[0])} messages in eu, {len(found[1])} in us, or they are not the same"
                )
        return len(self._topics) * len(self.keys)


def story(regions: Regions, *, brief: bool) -> Iterator[str]:
    """What is shown on either storage."""
    for cluster in CLUSTERS:
        regions.give(cluster)
    said = regions.broker("us")
    yield f"a pass of the broker of us: {last_line(said)}"
    regions.broker("eu", code=-signal.SIGKILL, GEO_CRASH="link-after-reconcile-append:kill")
    said = regions.broker("eu")
    yield f"a broker of eu killed behind the commit by which a link began, and one more pass: {last_line(said)}"
    if brief:
        return
    regions.broker("us")
    yield consumed(regions, regions.run("consume", *CONSUMER))


def consumed(regions: Regions, said: str) -> str:
    keys = sorted(re.findall(r'"key": "((?:eu|us)-\d+)"', said))
    if keys != regions.keys:
        raise Failed(f"{len(keys)} messages were consumed, not the {len(regions.keys)} lines")
    return f"a consumer in eu: {len(keys)} messages, each line once"


def verified(regions: Regions) -> str:
    said = regions.run("verify")
    if "clean:" not in said:
        raise Failed(said)
    return f"geo verify: {last_line(said)}; the tables alone: {regions.check()} messages, each line once, both regions equal"
