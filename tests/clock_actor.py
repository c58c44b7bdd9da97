"""`python -m tests.clock_actor SECONDS HOST CONFIG ROLE NAME`: one process of this program on a host of that name, whose clock is off by so
many seconds from before anything of it is imported. It starts no Spark: the tables that it uses are there.

Roles: `link` brings a topic from us to eu; `own` owns that way until its input ends; `take` tries to own it; `member` shares eu with
other brokers until its input ends. Prints a line of JSON: what was done, or `error` and `text`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from tests.clock_off import set_clock_off

REFUSED = 3
"""Exit code of what is unsafe."""


def run(off_s: float, host: str, config: Path, role: str, name: str) -> dict[str, Any]:
    """What such a process says, once it has ended."""
    ended = subprocess.run(_command(off_s, host, config, role, name), capture_output=True, text=True, check=False, input="")
    assert ended.stdout, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout)
    assert ended.returncode == (REFUSED if "error" in told else 0), ended.stderr
    return told


def start(off_s: float, host: str, config: Path, role: str, name: str) -> subprocess.Popen[str]:
    """Such a process, once it has said something."""
    process = subprocess.Popen(
        _command(off_s, host, config, role, name), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    assert "error" not in told, told
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _command(off_s: float, host: str, config: Path, role: str, name: str) -> list[str]:
    return [sys.executable, "-m", "tests.clock_actor", str(off_s), host, str(config), role, name]


def _act(host: str, path: str, role: str, name: str) -> int:
    import threading
    import time
    from dataclasses import replace

    from pyspark.sql import SparkSession

    from geo.config import load
    from geo.coordination.claiming import claim
    from geo.coordination.ownership import release
    from geo.delta.driver import Driver
    from geo.delta.process import this_process
    from geo.errors import GeoError
    from geo.fleet.member import Member
    from geo.journal.cluster import ClusterTables
    from geo.names import Topic
    from geo.replication.link_table import read_links
    from geo.replication.topic_replicator import TopicReplicator
    from geo.streams.life import State

    class NoSpark(Driver):
        """Nobody has configured a log store."""

        def log_store(self, scheme: str) -> str | None:
            return None

    class OnlyTags:
        """A session that is told to which work its jobs belong, and is asked for none."""

        def addTag(self, tag: str) -> None:
            """Of Spark's name."""

        removeTag = addTag

    config, me = load(Path(path)), replace(this_process(0), host=host)
    tables = {
        one: ClusterTables(NoSpark(lambda: cast("SparkSession", OnlyTags()), lambda: me), cluster)
        for one, cluster in config.clusters.items()
    }
    eu = tables["eu"]
    try:
        if role == "member":
            assert config.placement is not None
            topics = [Topic.parse(f"persistent://shop/web/t{number}") for number in range(6)]
            member = Member(eu, name, config.placement, activities=list, look_now=lambda: lambda: True, say=lambda line: None)
            member.begin(take_over=False)
            print(json.dumps({"member": name}), flush=True)
            ended = threading.Event()

            def wait_for_end() -> None:
                sys.stdin.read()
                ended.set()

            threading.Thread(target=wait_for_end, daemon=True).start()
            while not ended.is_set():
                for topic in topics:
                    member.elsewhere(topic)
                member.round(time.monotonic())
                ended.wait(1.0)
            return 0
        link = TopicReplicator(eu, tables["us"], config, config.link("us", "eu"), Topic.parse(name))
        (ownership,) = claim(eu, [link.runners])
        if role == "own":
            print(json.dumps({"generation": ownership.generation}), flush=True)
            sys.stdin.read()
        elif role == "link":
            link.prepare(ownership, read_links(eu).get(("us", name)))
            link.running.run_turns(lambda: False)
            if (now := link.running.progressed(State.STOPPED)) is not None:
                link.row.append(now)
            done = {"replicated": link.row.replicated, "expired": link.row.expired, "impossible": link.row.impossible}
            print(json.dumps(done), flush=True)
        else:
            print(json.dumps({"generation": ownership.generation}), flush=True)
        release([ownership])
    except GeoError as error:
        print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    set_clock_off(float(sys.argv[1]))
    sys.exit(_act(*sys.argv[2:]))
