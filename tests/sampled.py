"""`python -m tests.sampled [--seconds N] [--seed N]`: the lag of a link is looked at each second while a producer publishes and the link is killed, away and
reset, in turn. Then what the commits tell of each of these moments is held against what the look said. Messages and versions are the same, seconds to one;
exit code 1 if not. Two regions on an S3 API of this machine, without Spark (`tests/far.py`). With a CONFIG as its argument it is the link's process.

A row or a commit bears the time at which it was made and is seen some tenths of a second later, so a look is right that said what was so within the
second before its begin, or while it lasted.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from geo.coordination.claiming import claim
from geo.coordination.ownership import giving_back
from geo.faults import Tried
from geo.now import now_us
from geo.ops import link_health
from geo.ops.lag_history import Sample
from geo.ops.link_health import LinksBefore
from geo.replication import link_status
from geo.replication.lag import Lag
from geo.replication.link_status import link_statuses
from geo.replication.link_table import read_links
from geo.replication.topic_replicator import TopicReplicator
from tests.far import TOPIC, Far
from tests.kafka_broker import free_ports
from tests.object_store import ObjectStore

SECOND_US = 1_000_000
AWAY_S = 40.0
_MOMENTS = 40
"""Moments at which one look may have seen the tables."""


class Looks:
    """What a look said, and between when and when it looked."""

    def __init__(self, far: Far) -> None:
        self._far, self.found = far, list[tuple[int, int, Lag]]()
        self._clusters = {name: far.tables(name) for name in ("us", "eu")}

    def look(self) -> None:
        began_us = now_us()
        with Tried():  # the table of links may not be there yet
            for one in link_statuses(self._clusters["eu"], self._clusters, self._far.config, str(TOPIC)):
                if one.lag is not None:
                    self.found.append((began_us, now_us(), one.lag))


def run_link(path: Path) -> None:
    """Bring what there is, again and again, until the process is killed."""
    far = Far(path)
    while True:
        with Tried() as tried:
            far.replicate()
        if tried.fault is not None:
            print(f"link: {tried.fault}", flush=True)
        time.sleep(random.uniform(0, 3))  # no secret


@contextmanager
def running(path: Path) -> Iterator[None]:
    """The link runs in a process of its own, and is killed at the end."""
    process = subprocess.Popen([sys.executable, "-m", "tests.sampled", str(path)], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def reset(far: Far, begin: str | None) -> None:
    """As `geo links reset --to`, or `geo reconcile`."""
    target = far.tables("eu")
    link = TopicReplicator(target, far.tables("us"), far.config, far.config.link("us", "eu"), TOPIC)
    (owned,) = claim(target, [link.runners], take_over=True)
    with giving_back([owned]):
        recorded = read_links(target).get(("us", str(TOPIC)))
        link.prepare(owned, recorded, accept_source=True, start_at=begin, take_over=True)  # type: ignore[arg-type]


@contextmanager
def again_and_again(do: Callable[[], None], most_s: float) -> Iterator[None]:
    """Beside what is done inside, after pauses of up to so long."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(most_s):
            do()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def is_same(told: Sample | None, said: Lag) -> bool:
    if told is None:
        return False
    now = told.lag
    seconds = abs((now.seconds or 0.0) - (said.seconds or 0.0))
    return (now.messages, now.versions, now.complete) == (said.messages, said.versions, said.complete) and seconds <= 1.0


def sample(far: Far, seconds: float, chance: random.Random) -> Looks:
    looks, writer, count = Looks(Far(far.path)), far.producer(), 1

    def publish() -> None:
        nonlocal count
        count += chance.randrange(1, 40)
        far.append(writer, count)

    ends_at, number = time.monotonic() + seconds, 0
    with again_and_again(looks.look, 1.0), again_and_again(publish, 1.5):
        while time.monotonic() < ends_at:
            with running(far.path):
                time.sleep(chance.uniform(15, 30))
            what = ("killed", "away", "reset")[number % 3]
            print(f"{seconds - ends_at + time.monotonic():5.0f} s  {what}", flush=True)
            if what == "away":
                time.sleep(AWAY_S)
            if what == "reset":
                reset(Far(far.path), ("earliest", None, "latest")[number // 3 % 3])
            number += 1
    writer.close()
    return looks


def main() -> int:
    if len(sys.argv) == 2 and Path(sys.argv[1]).is_file():
        run_link(Path(sys.argv[1]))
    parser = argparse.ArgumentParser(prog="python -m tests.sampled")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    link_health.MOST_FAR = link_status.REMOTE_COMMITS = link_health.MOST  # all commits of ten minutes, though each is a request
    folder = Path(tempfile.mkdtemp())
    store = ObjectStore(free_ports(1)[0], folder / "log")
    try:
        far = Far.made(store, folder)
        far.publish(1)
        looks = sample(far, args.seconds, random.Random(args.seed))  # no secret
        history = LinksBefore(far.tables("eu")).history(far.config.link("us", "eu"), far.tables("us"), TOPIC, 0)
    finally:
        store.close()
    assert history is not None
    assert history.since_us is not None
    told = [one for one in looks.found if one[0] - SECOND_US >= history.since_us]
    differ = 0
    for began_us, ended_us, said in told:
        least_us, span_us = began_us - SECOND_US, ended_us - began_us + SECOND_US
        moments = [history.at(least_us + span_us * number // _MOMENTS) for number in range(_MOMENTS + 1)]
        if not any(is_same(one, said) for one in moments):
            differ += 1
            print(f"differs: {said}, and by the commits {moments[0]} to {moments[-1]}")
    print(
        f"{len(told)} looks, {differ} of them otherwise than the commits tell; {len(looks.found) - len(told)} before these begin"
    )
    return int(differ > 0 or not told)


if __name__ == "__main__":
    sys.exit(main())
