"""The Spark session that tables are read and written with, and who this process is. Both come when they are first needed, since what lies on a
local disk is mostly read without either."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from geo.delta.object_store import ObjectStore
from geo.delta.process import Process, this_process
from geo.errors import NoSparkError
from geo.faults import spark_errors_here
from geo.locations import storage_of
from geo.session import active_session, refuse_connect, starts_without_log_store

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


class Reads(Enum):
    """Rows of logs that a process reads by itself, where it can (geo.delta.engines.native.engine)."""

    ALL = "all"
    """For who only looks, or writes little, and would wait for Spark to start; also for logs on an object store."""
    LITTLE = "little"
    """The place where a job of Spark's takes longer."""
    NONE = "none"


class Driver:
    """One session, obtained by `start` when it is first asked for. `me`: who this process is, where that is known. `find_port` finds the
    object store that this process reads and writes by itself."""

    def __init__(
        self,
        start: Callable[[], SparkSession],
        me: Callable[[], Process] | None = None,
        *,
        reads: Reads = Reads.LITTLE,
        find_port: Callable[[], ObjectStore | None] = lambda: None,
        looks_once: bool = False,
    ) -> None:
        """`looks_once`: each table is as it was at the first look at it; of who makes one picture of many tables, and ends."""
        self._start, self._me, self.reads, self._find_port = start, me, reads, find_port
        self.looks: dict[str, Future[Any]] | None = {} if looks_once else None
        """Tables as they were seen, by their names."""
        self._refuses_connect = False
        self.never_spark = False
        """Spark is not to be started."""

    @classmethod
    def of(cls, spark: SparkSession, *, find_port: Callable[[], ObjectStore | None] = lambda: None) -> Driver:
        one = cls(lambda: spark, find_port=find_port)
        one.spark = _telling_conflicts(spark)
        return one

    @classmethod
    def without_spark(cls, *, find_port: Callable[[], ObjectStore | None]) -> Driver:
        """Spark is never started: what only it can do raises NoSparkError. No JVM commits for it, so none is waited for."""
        one = cls(_refuse, lambda: this_process(0), reads=Reads.ALL, find_port=find_port)
        one.never_spark = one.commits_by_itself = True
        return one

    @property
    def has_spark(self) -> bool:
        """True if the session was asked for."""
        return "spark" in vars(self)

    @cached_property
    def port(self) -> ObjectStore | None:
        """The store that this process writes by itself. None: there is none."""
        return self._find_port()

    def port_at(self, location: str) -> ObjectStore | None:
        """Port as `port`, if a location is on it. None: it is not."""
        if storage_of(location) != "s3a" or (port := self.port) is None:
            return None
        return port if port.holds(location) else None

    @cached_property
    def spark(self) -> SparkSession:
        spark = _telling_conflicts(self._start())
        if self._refuses_connect:
            refuse_connect(spark)
        return spark

    def refuse_connect(self) -> None:
        """Refuses as `geo.session.refuse_connect` of the session: now if one is there, which is not started for it, else when it is."""
        self._refuses_connect = True
        there = self.spark if self.has_spark else None if self.never_spark else active_session()
        if there is not None:
            refuse_connect(there)

    @cached_property
    def me(self) -> Process:
        if self._me is not None:
            return self._me()
        # No JVM commits to a store that this process writes: none is started, or waited for when this process has ended.
        needs_none = self.port is not None or self.commits_by_itself
        return this_process(0) if needs_none and not self.has_spark else this_process(_jvm_pid(self.spark))

    @property
    def committer(self) -> Process:
        """The one who commits now: this process, with the JVM that it has by now. Who lets Spark commit has started it before."""
        return this_process(_jvm_pid(self.spark)) if self._me is None and self.has_spark else self.me

    def log_store(self, scheme: str) -> str | None:
        """The class by which Delta writes a scheme's logs, as Spark was started, since Delta asks then; None: none was configured."""
        keys = (f"spark.delta.logStore.{scheme}.impl", "spark.delta.logStore.class")
        try:
            settings = _settings_at_start(self.spark.sparkContext)
            return next((value for key in keys if (value := settings.get(key))), None)
        except spark_errors_here():  # Spark Connect does not tell
            return next((value for key in keys if (value := self.spark.conf.get(key, None))), None)

    @cached_property
    def commits_by_itself(self) -> bool:
        """Tells whether this process may add commits to a table on a local disk, where Delta would do no more: no log store was configured. For who
        looks, or writes little, Spark is not started to ask that, if what it would be started with tells it.
        """
        if self.reads is Reads.ALL and not self.has_spark and starts_without_log_store():
            return True
        return self.log_store("file") is None

    @property
    def spares_spark(self) -> bool:
        """Tells whether Spark is not there, and is not to be started for what this process can do by itself on a local disk."""
        return self.never_spark or (self.reads is Reads.ALL and self.commits_by_itself and not self.has_spark)


def _telling_conflicts(spark: SparkSession) -> SparkSession:
    """A session, once Delta's conflicts come from it with their classes: without those nobody would try again."""
    import delta.exceptions  # noqa: F401

    return spark


def _refuse() -> SparkSession:
    raise NoSparkError("only Spark could do that here, and it is not started for it.")


@lru_cache(maxsize=1)
def _settings_at_start(context: SparkContext) -> Mapping[str, str]:
    """With what Spark was started. Asked once: each of the settings is a question to the JVM, thirty milliseconds in all."""
    return dict(context.getConf().getAll())


def _jvm_pid(spark: SparkSession) -> int:
    """Process id of the driver's JVM; 0 where nobody may know it."""
    with suppress(ValueError, *spark_errors_here()):
        return _pid_by_sql(spark)
    return 0


@lru_cache(maxsize=8)  # sessions of one Spark, each with settings of its own; a failure is not remembered
def _pid_by_sql(spark: SparkSession) -> int:
    """The same, asked once of a session: thirty milliseconds, too. By SQL, so that no JVM handle is needed, and over a table of values, which the
    driver evaluates by itself. A query without one is a job, which an executor would answer with its own."""
    return int(spark.sql("SELECT reflect('java.lang.ProcessHandle', 'current') FROM VALUES (1)").collect()[0][0])
