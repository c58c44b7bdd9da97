"""Starting Spark for a verb, and stopping what it runs when a signal asks for that."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from geo.cli.output import Output
from geo.config import load
from geo.config.model import Config
from geo.delta.driver import Reads
from geo.errors import GeoError, NoSparkError, OtherClusterError
from geo.faults import Tried, faults_here
from geo.journal.cluster import ClusterTables, Start, connect, connect_later
from geo.late import spark_sql
from geo.locations import scheme_of
from geo.replication.absent_regions import refuse_gone
from geo.session import session
from geo.streams.trigger import parse_trigger
from geo.text import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_NOISE = (b"WARNING: Using incubator modules:", b"Starting Streaming TransformWithState", b"Streaming TransformWithState")
"""How lines begin that Java and Spark's Python workers write to stderr, and that nobody can act on."""

_LAST_WORDS_S = 2.0
"""How long what a Spark that does not start still has to say is waited for."""


def start_spark(name: str, config: Config, *locations: str | None) -> SparkSession:
    """A session that reaches the storages of the configuration, and these locations. Only now: parsing and configuration errors need
    no JVM. What that prints by itself (VACUUM does) goes to stderr; what other threads print meanwhile stays where it was."""
    schemes = config.schemes | {scheme_of(location) for location in locations if location is not None}
    if sys.stderr.isatty() and spark_sql.SparkSession.getActiveSession() is None:
        print("geo: starting Spark, some seconds", file=sys.stderr, flush=True)
    sys.stdout.flush()
    ours, errors = os.dup(1), os.dup(2)
    read, write = os.pipe()
    passing_on = threading.Thread(target=_pass_on, args=(read, errors), name="geo-stderr-of-spark", daemon=True)
    passing_on.start()
    with redirect_stdout(_writing(os.dup(1)) if sys.stdout is sys.__stdout__ else sys.stdout):
        os.dup2(2, 1)
        os.dup2(write, 2)  # what Spark's process gets
        os.close(write)
        try:
            return session(name, schemes=schemes)
        finally:
            os.dup2(errors, 2)
            os.dup2(ours, 1)
            os.close(ours)
            if (
                spark_sql.SparkSession.getActiveSession() is None
            ):  # it did not start: what it said of that comes before this process ends
                passing_on.join(_LAST_WORDS_S)


def _writing(number: int) -> TextIO:
    """As stdout, to this file descriptor. It is closed when nobody has it any more: a thread may be about to print."""
    return open(number, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


def _pass_on(read: int, errors: int) -> None:
    """Write what Spark's process writes to stderr to ours, but for noise and the empty line that may follow it."""
    with open(read, "rb") as lines, open(errors, "wb", buffering=0) as into, suppress(OSError):
        after_noise = False
        for line in lines:
            is_noise = line.startswith(_NOISE)
            if not is_noise and not (after_noise and not line.strip()):
                into.write(line)
            after_noise = is_noise


def starting(name: str, config: Config) -> Start:
    """As `start_spark`, when it is first called; the same session each time."""
    lock, started = threading.Lock(), list["SparkSession"]()

    def start() -> SparkSession:
        with lock:  # several threads may need it
            if not started:
                started.append(start_spark(name, config))
            return started[0]

    return start


class LookedAt:
    """The clusters of a configuration, for a verb that only looks. `engine` says who reads rows of logs: "native", this process,
    and Spark never starts; "spark"; or "auto", this process where it can, and Spark starts when something first needs it."""

    def __init__(self, name: str, config: Config, engine: str) -> None:
        self._engine, self._started = engine, starting(name, config)
        reads = Reads.NONE if engine == "spark" else Reads.ALL
        self.clusters = {each: connect_later(self._start, cluster, reads=reads) for each, cluster in config.clusters.items()}

    def read_each(self, read: Callable[[ClusterTables], Iterable[T]]) -> tuple[list[T], list[dict[str, Any]]]:
        """What `read` finds in every cluster, and a row of each cluster that cannot be read, with the reason."""
        found: list[T] = []
        unreadable: list[dict[str, Any]] = []
        for name, tables in self.clusters.items():
            with Tried(OtherClusterError) as tried:  # what the others say would be about other places too
                refuse_gone(tables, self.clusters.values())
                found += read(tables)
            if tried.fault is not None:
                unreadable.append({"cluster": name, "cannot_be_read": first_line(tried.fault)})
        return found, unreadable

    def _start(self) -> SparkSession:
        if self._engine == "native":
            raise NoSparkError(
                "something here is read by Spark alone: a table in a catalog, or neither on a local disk nor on an S3 that lets this "
                "process in, or one with features that this process does not read. Leave --engine native out."
            )
        try:
            return self._started()
        except faults_here() as error:
            why = str(error) if isinstance(error, GeoError) else f"Spark does not start: {first_line(error)}"
            raise NoSparkError(why) from error


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
    """The tables of `--cluster`, to be written, by a session of this name."""
    from geo.log.housekeeping import open_for_writing  # who looks needs none of it

    cluster = config.cluster(args.cluster)
    return open_for_writing(connect(start_spark(name, config), cluster), config)


def run_in_cluster(
    args: argparse.Namespace, output: Output, name: str, make: Callable[..., Any], told: Callable[[Any], str], **more: Any
) -> int:
    """Run until it is done or stopped, with the arguments `--cluster` and those of `add_running`, what `make` makes of a session, a
    configuration and its cluster; say what it did, and why what is `unfinished` is not done. Returns the exit code."""
    parse_trigger(args.trigger)
    config = load_for(args)
    running = make(start_spark(name, config), config, args.cluster, trigger=args.trigger, take_over=args.take_over, **more)
    stop_on_signals(args, running.stop)
    done = running.run()
    output.data(asdict(done))
    output.text(f"{args.cluster}: {told(done)}", *(f"{what}: {why}" for what, why in done.unfinished.items()))
    return 1 if done.unfinished else 0


def stop_on_signals(args: argparse.Namespace, stop: Callable[[], None]) -> None:
    """SIGTERM and SIGINT call `stop`, which lets the running batch end first; `args.was_stopped` says that one came."""

    def stop_now() -> None:
        args.was_stopped = True
        stop()

    on_signal("SIGTERM", stop_now)
    on_signal("SIGINT", stop_now)


def on_signal(name: str, call: Callable[[], None]) -> None:
    """Call `call` at a signal, where the system has it. Python gives signals to its main thread alone, so a verb that a job's runtime
    calls in another one ends when the process does."""
    if hasattr(signal, name) and threading.current_thread() is threading.main_thread():
        signal.signal(getattr(signal, name), lambda *_: call())
