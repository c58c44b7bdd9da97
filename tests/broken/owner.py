"""`python -m tests.broken.owner CONFIG HOST TOPIC ROLE`: a process on a host of that name ("" is this one) that runs the link us->eu of a topic, and
brings nothing any more: it owns it, has recorded that it runs, and gives signs of life until its input ends. Only a request to restart it does it
follow, as one who has come to himself: it begins anew, brings what there is, and says so. As a `broker` it owns being that of eu too. Without Spark.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.coordination.runners import broker_runner
from geo.errors import FencedError, RetryableError
from geo.names import Topic
from geo.replication.link_table import read_links
from geo.replication.request_table import read_requests
from geo.replication.topic_replicator import TopicReplicator
from geo.streams.life import State
from tests.broken.place import without_spark
from tests.far import Far

LOOK_S = 0.3


class Owner:
    """Who runs the link, in this process."""

    def __init__(self, far: Far, topic: Topic, *, broker: bool = False) -> None:
        link = TopicReplicator(far.tables("eu"), far.tables("us"), far.config, far.config.link("us", "eu"), topic)
        self._owned = claim(link.target, [link.runners, *([[broker_runner(link.target)]] if broker else [])])
        running = link.prepare(self._owned[0], read_links(link.target).get(("us", str(topic))))
        assert running is not None
        self._link, self._running = link, running
        self._record(State.RUNNING)

    def bring(self) -> None:
        """What the source has now."""
        self._running.run_turns(lambda: False)
        self._record(State.RUNNING)

    def end(self) -> None:
        with suppress(RetryableError, FencedError):  # of a target that somebody put back, or took over
            self._record(State.STOPPED)
        release(self._owned)

    def _record(self, state: State) -> None:
        if (now := self._running.progressed(state)) is not None:
            self._link.row.append(now)


@contextmanager
def owner(path: Path, topic: Topic, host: str = "", *, broker: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A process of such a one, once it runs the link."""
    command = [sys.executable, "-m", __name__, str(path), host, str(topic), "broker" if broker else "link"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "runs\n"
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.communicate()  # it ends with its input


def _run(path: str, host: str, name: str, role: str) -> None:
    far, topic = Far(Path(path), host or None), Topic.parse(name)
    one = Owner(far, topic, broker=role == "broker")
    print("runs", flush=True)
    restarted = read_requests(far.tables("eu")).last_restart("us", topic)
    while not select.select([sys.stdin], [], [], LOOK_S)[0]:
        if (now := read_requests(far.tables("eu")).last_restart("us", topic)) > restarted:
            one.end()
            one, restarted = Owner(far, topic, broker=role == "broker"), now
            one.bring()
            print("restarted", flush=True)
    one.end()


if __name__ == "__main__":
    with without_spark():
        _run(*sys.argv[1:])
