"""Starting Spark for a verb, and stopping what it runs when a signal asks for that."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from geo.asking import Late
from geo.cli.logs import redirected_log
from geo.cli.output import Output
from geo.cli.signals import launching
from geo.config import load
from geo.config.cluster import Cluster
from geo.config.model import Config
from geo.delta.driver import Reads
from geo.disk import fullest, local_path
from geo.errors import GeoError, NoSparkError
from geo.faults import faults_here, reason_of
from geo.journal.cluster import ClusterTables, StartSpark, connect, connect_later
from geo.locations import scheme_of
from geo.ops.regions import Regions
from geo.remedies import NO_SPACE
from geo.schemas import TableSchema
from geo.session import session, session_is_there
from geo.streams.trigger import parse_trigger
from geo.text import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from geo.fleet.health_events import HealthEvents

T = TypeVar("T")

log = logging.getLogger(__name__)

_NOISE = ("WARNING: Using incubator modules:", "Starting Streaming TransformWithState", "Streaming TransformWithState")
"""Beginnings of lines that Java and Spark's Python workers write to stderr, and that nobody can act on."""

_CONTEXTS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers by which PySpark prints an error as JSON, kilobytes of it, before it raises it."""

_LAST_WORDS_S = 2.0
"""Seconds that the last words of a Spark that does not start are waited for."""


def start_spark(name: str, config: Config, *locations: str | None) -> SparkSession:
    """A session that reaches the storages of the configuration, and these locations. Only now: parsing and configuration errors need
    no JVM. What that prints by itself (VACUUM does) goes to stderr; what other threads print meanwhile stays where it was."""
    schemes = config.schemes | {scheme_of(location) for location in locations if location is not None}
    began = time.monotonic()
    is_there = session_is_there()
    if not is_there:
        log.info("Spark is starting, some seconds", extra={"event": "spark"})
    sys.stdout.flush()
    ours, errors = os.dup(1), os.dup(2)
    read, write = os.pipe()
    passing_on = threading.Thread(target=_pass_on, args=(read,), name="geo-stderr-of-spark", daemon=True)
    passing_on.start()
    stdout = _writing(os.dup(1), sys.stdout) if sys.stdout is sys.__stdout__ else sys.stdout
    stderr = _writing(os.dup(2), sys.stderr) if sys.stderr is sys.__stderr__ else sys.stderr
    with launching(), redirect_stdout(stdout), redirect_stderr(stderr), redirected_log(stderr):
        os.dup2(2, 1)
        os.dup2(write, 2)  # what Spark's process gets
        os.close(write)
        try:
            started = session(name, schemes=schemes)
        finally:
            os.dup2(errors, 2)
            os.dup2(ours, 1)
            os.close(errors)
            os.close(ours)
            if isinstance(sys.exc_info()[1], Exception):  # what it said of that comes before this process ends
                passing_on.join(_LAST_WORDS_S)
    if not is_there:
        took_s = time.monotonic() - began
        log.info("Spark %s started in %.1f s", started.version, took_s, extra={"event": "spark", "seconds": round(took_s, 3)})
        from pyspark.logger import PySparkLogger

        for library in _CONTEXTS:
            PySparkLogger.getLogger(library).setLevel(logging.CRITICAL)
    return started


def _writing(number: int, like: Any) -> TextIO:
    """Opens this file descriptor as stdout or stderr. It is closed when nobody has it any more: a thread may be about to print."""
    return open(number, "w", encoding=like.encoding, errors=like.errors)


def _pass_on(read: int) -> None:
    """Log what Spark's process writes to stderr, but for noise and empty lines."""
    with open(read, encoding="utf-8", errors="replace") as lines, suppress(OSError, ValueError):
        for line in lines:
            if line.strip() and not line.startswith(_NOISE):
                log.warning("Spark: %s", line.rstrip(), extra={"event": "spark"})


def starting(name: str, config: Config) -> StartSpark:
    """Starts Spark as `start_spark`, when it is first called; the same session each time."""
    lock, started = threading.Lock(), list["SparkSession"]()

    def start() -> SparkSession:
        with lock:  # several threads may need it
            if not started:
                started.append(start_spark(name, config))
            return started[0]

    return start


class LookedAt:
    """The clusters of a configuration, for a verb that only looks. `engine` says who reads rows of logs: "native", this process, and Spark never
    starts; "spark". Or "auto", this process where it can, and Spark starts when something first needs it."""

    def __init__(
        self,
        name: str,
        config: Config,
        engine: str,
        *,
        only: str | None = None,
        picture: Sequence[TableSchema] = (),
        late: Late | None = None,
    ) -> None:
        """`only`: this cluster alone. `picture`: of who makes one of all that is there, the system tables that it takes. Each table is as it was at
        the first look at it then. `late`: as `Regions`."""
        self.config, self._engine, self._started = config, engine, starting(name, config)
        reads = Reads.NONE if engine == "spark" else Reads.ALL
        clusters = {
            each: connect_later(self._start, cluster, reads=reads, looks_once=bool(picture))
            for each, cluster in config.clusters.items()
            if only in (None, each)
        }
        self.regions = Regions(clusters, picture, late)

    @property
    def clusters(self) -> dict[str, ClusterTables]:
        """Once `read_each` was asked, who would read one that did not answer is told so at once."""
        return self.regions.clusters

    def read_each(
        self, read: Callable[[ClusterTables], Iterable[T]], *, alone: bool = False
    ) -> tuple[list[T], list[dict[str, Any]]]:
        """Reads as `Regions.read_each`, with a row of each cluster that cannot be read."""
        found, unreadable = self.regions.read_each(read, alone=alone)
        return found, [unreadable_row(name, why) for name, why in unreadable.items()]

    def _start(self) -> SparkSession:
        if self._engine == "native":
            raise NoSparkError("Spark does not start with --engine native. Leave --engine native out.")
        try:
            return self._started()
        except faults_here() as error:
            why = str(error) if isinstance(error, GeoError) else f"Spark does not start: {first_line(error)}"
            raise NoSparkError(why) from error


def before_change(name: str, config: Config, cluster: str) -> LookedAt:
    """The clusters, for a verb that will change this one and first looks, without Spark, whether what it is to change is there. Raises UnsafeError
    where nobody may change anything."""
    looked = LookedAt(name, config, "auto")
    looked.clusters[cluster].refuse_unsafe_storage()
    return looked


def unreadable_row(cluster: str, why: BaseException) -> dict[str, Any]:
    """For programs, of a cluster that cannot be read."""
    return {"cluster": cluster, "cannot_be_read": first_line(why), "code": reason_of(why).value}


def say_unreadable(output: Output, unreadable: list[dict[str, Any]]) -> int:
    """Say which clusters could not be read. Returns the exit code."""
    for one in unreadable:
        output.text(f"{one['cluster']}: cannot be read: {one['cannot_be_read']}")
    return 1 if unreadable else 0


def load_for(args: argparse.Namespace) -> Config:
    """The configuration. Raises UsageError if it does not have the cluster that `--cluster` names."""
    config = load(args.config)
    config.cluster(args.cluster)
    return config


def writable(args: argparse.Namespace, config: Config, name: str) -> ClusterTables:
    """The tables of `--cluster`, to be written: by this process, and by a session of this name what that cannot."""
    from geo.log.housekeeping import open_for_writing  # who looks needs none of it

    cluster = config.cluster(args.cluster)
    return open_for_writing(connect(starting(name, config), cluster, reads=Reads.ALL), config)


def full_disk(clusters: Iterable[Cluster]) -> str | None:
    """Tells where there is least space of the places that a verb writes to: those of clusters, and where Spark puts what does not fit."""
    scratch = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")
    return fullest([*(location for cluster in clusters for location in cluster.locations), *scratch])


def with_disk(line: str, clusters: Iterable[Cluster]) -> str:
    """A line; if it tells of a disk without space and not of which, with the one that it seems to be."""
    is_named = NO_SPACE not in line or f"{NO_SPACE}: " in line
    return line if is_named else f"{line}. As it seems it is {full_disk(clusters)}"


def missing_roots(config: Config) -> list[str]:
    """Lists clusters on a disk here of which the root is not there, a line each: nothing was written yet, or the root is wrong."""
    roots = {name: cluster.root for name, cluster in config.clusters.items() if cluster.root is not None}
    gone = {name: root for name, root in roots.items() if (place := local_path(root)) is not None and not place.exists()}
    return [
        f"{name}: nothing is at {root}. Where something should be, correct its root in {config.path}."
        for name, root in gone.items()
    ]


def name_missing_sources(config: Config, target: str) -> None:
    """Log, before Spark starts, which links into a cluster have a source on a disk here that is not there."""
    for link in config.inbound(target):
        root = config.cluster(link.source).root
        if root is not None and (place := local_path(root)) is not None and not place.exists():
            ends = {"source": link.source, "target": target}
            log.warning("link %s: nothing is at %s", link.name, root, extra={"event": "empty", **ends})


def run_in_cluster(
    args: argparse.Namespace, output: Output, name: str, make: Callable[..., Any], told: Callable[[Any], str], **more: Any
) -> int:
    """Run until it is done or stopped, with the arguments `--cluster` and those of `add_running`. `make` gets a session, a
    configuration and its cluster. Say what was done, and why what is `unfinished` is not done. Returns the exit code.
    """
    parse_trigger(args.trigger)
    config = load_for(args)
    running = make(start_spark(name, config), config, args.cluster, trigger=args.trigger, take_over=args.take_over, **more)
    stop_on_signals(args, running.stop)
    done = running.run()
    counts = {what: count for what, count in asdict(done).items() if isinstance(count, int)}
    args.run.follow(lambda: counts)
    output.data(asdict(done))
    output.text(f"{args.cluster}: {told(done)}", *(f"{what}: {why}" for what, why in done.unfinished.items()))
    return 1 if done.unfinished else 0


LOOKS_S = 2.0
"""So long a look at how all is holds up who is to run links, and who ends."""


@contextmanager
def noting_health(args: argparse.Namespace, config: Config) -> Iterator[HealthEvents]:
    """Note how the cluster and its links are doing. That is before what runs them begins, which waits for the look. Of what was not OK it is also
    once a run that ends by itself has ended."""
    from geo.fleet.health_events import HealthEvents  # who looks needs none of it
    from geo.journal.cluster import without_spark
    from geo.journal.events import are_off, events_of

    health = HealthEvents(args.cluster, events_of(without_spark(config.cluster(args.cluster))), log.info)
    if are_off():
        yield health
        return
    health.begin(config)
    try:
        yield health
    except Exception:
        health.wait(LOOKS_S)  # why it was refused may be what the look finds
        raise
    if not getattr(args, "was_stopped", False):
        health.look(config, ())
        health.wait(LOOKS_S)


def stop_on_signals(args: argparse.Namespace, stop: Callable[[], None]) -> None:
    """SIGTERM and SIGINT call `stop`, which lets the running batch end first; `args.was_stopped` says that one came."""

    def stop_now() -> None:
        args.was_stopped = True
        stop()

    args.signals.stop_by(stop_now)
