"""The tables and folders of a cluster. The only file that knows how a cluster names a table."""

from __future__ import annotations

import getpass
import hashlib
import math
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from geo.config.cluster import Cluster
from geo.config.secret import Secret, keep_silent
from geo.delta.catalog_table import table_in_catalog
from geo.delta.driver import Driver, Reads
from geo.delta.files import SmallFiles, check_folder
from geo.delta.object_reads import folders_in
from geo.delta.object_store import ObjectStore
from geo.delta.process import Process
from geo.delta.s3_store import port_of
from geo.delta.storage import why_not_by_port, why_unsafe
from geo.delta.table import Table
from geo.delta.tail import REMOTE_FULL_LOOK_S
from geo.disk import local_path
from geo.errors import OtherClusterError, UnsafeError
from geo.journal.journal import Journal
from geo.late import spark_errors
from geo.locations import scheme_of
from geo.names import Topic
from geo.reasons import Reason, Wrong
from geo.schemas import TOPICS, TableSchema
from geo.schemas.table import CLUSTER_PROPERTY
from geo.session import set_what_is_needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_right_at: dict[tuple[ObjectStore, str, str], float] = {}
"""Times (monotonic) when the registry last said that the name is right, by the store, the place and the name of a cluster."""

_ON_DATABRICKS = "DATABRICKS_RUNTIME_VERSION"

StartSpark: TypeAlias = "Callable[[], SparkSession]"
"""Makes a session, the same one each time, and by `geo.session.session`: what it would be started with is known before."""


def connect(spark: SparkSession | StartSpark, cluster: Cluster, *, reads: Reads = Reads.LITTLE) -> ClusterTables:
    """The tables of a cluster, once the session has what reaching them needs: its `settings`, with the secrets revealed. `reads`: as
    `connect_later`, where no session is given."""
    if callable(spark):  # no session is, also none of Spark Connect
        return connect_later(spark, cluster, reads=reads)
    tables = ClusterTables(Driver.of(_configured(spark, cluster), find_port=lambda: _port(tables)), cluster)
    return tables


def connect_later(start: StartSpark, cluster: Cluster, *, reads: Reads = Reads.ALL, looks_once: bool = False) -> ClusterTables:
    """Connect as `connect` does, with a session that `start` makes when it is first needed. `reads`: the rows that this process reads by itself.
    `looks_once`: as `Driver`."""
    driver = Driver(lambda: _configured(start(), cluster), reads=reads, find_port=lambda: _port(tables), looks_once=looks_once)
    tables = ClusterTables(driver, cluster)
    return tables


def without_spark(cluster: Cluster) -> ClusterTables:
    """Connect as `connect` does, and never start Spark: what only Spark can do raises NoSparkError."""
    tables = ClusterTables(Driver.without_spark(find_port=lambda: _port(tables)), cluster)
    return tables


def _port(tables: ClusterTables) -> ObjectStore | None:
    """Return the object store of a cluster's tables.

    None: it has none, or a catalog on Databricks has the tables, which keeps the commits of its own clusters apart.
    """
    is_databricks = tables.cluster.root is None and _ON_DATABRICKS in os.environ
    return None if is_databricks else port_of(tables.cluster, tables.location)


def _configured(spark: SparkSession, cluster: Cluster) -> SparkSession:
    set_what_is_needed(spark)
    keep_silent("py4j")
    for key, value in cluster.settings.items():
        spark.conf.set(key, value.reveal() if isinstance(value, Secret) else value)
    return spark


@dataclass(frozen=True, slots=True)
class Identity:
    """The name that a cluster has for ever, and an id of its own."""

    cluster: str
    id: str

    def __str__(self) -> str:
        return f"{self.cluster} {self.id}"

    @classmethod
    def of_new(cls, cluster: str) -> Identity:
        return cls(cluster, str(uuid.uuid4()))

    @classmethod
    def decode(cls, text: str | None) -> Identity | None:
        """The inverse of `str`; None if there is no text."""
        return None if text is None else cls(*text.split(" ", 1))


def other_cluster_error(cluster: Cluster, other: str) -> OtherClusterError:
    """The error of a place that is another cluster's than the configuration says, with the remedy."""
    name = cluster.name
    do = (
        f"Name it {other} in the configuration again, or correct the place of {name}: a cluster keeps its name, since messages and ledgers carry it; "
        "a new cluster begins at an empty place"
    )
    return OtherClusterError(Wrong(Reason.MISNAMED, f"cluster {name}: {cluster.place} is that of cluster {other}", do))


class Housekeeper(Protocol):
    """Keeps a cluster's tables small in a thread of its own."""

    def stop(self) -> None:
        """Stop: nothing is owned here any more."""

    def clean_once(self, tables: ClusterTables) -> None:
        """Clean what nobody else keeps small, after the last run here. Returns at once."""


class ClusterTables:
    """The tables and folders of one cluster, by the names of design section 4. Made by `connect` or `connect_later`; making it
    touches nothing."""

    def __init__(self, driver: Driver, cluster: Cluster) -> None:
        self._driver = driver
        self.cluster = cluster
        self.start_housekeeper: Callable[[ClusterTables], Housekeeper] | None = None
        """Starts what keeps the cluster small, beside the first owner in this process (geo.log.housekeeping). None: it was not opened for writing."""
        self._journals: dict[str, Journal] = {}
        self.topics_used: set[Topic] = set()
        """Topics whose logs were asked for."""
        self.identity: Identity | None = None
        """Identity that its registry tells; None: nothing, or the registry was not looked at."""
        self._location: str | None = None
        self._located = False
        self._in_catalog: dict[str, Table] = {}
        self._logs: dict[Topic, Table] = {}
        """Tables of a caller that looks once."""

    @property
    def spark(self) -> SparkSession:
        return self._driver.spark

    @property
    def has_spark(self) -> bool:
        """True once the session was needed."""
        return self._driver.has_spark

    def beside(self, cluster: Cluster) -> ClusterTables:
        """The tables of another cluster, by the same session."""
        if self._driver.has_spark:
            return connect(self._driver.spark, cluster)
        return connect_later(lambda: self._driver.spark, cluster, reads=self._driver.reads)

    @property
    def me(self) -> Process:
        return self._driver.me

    def log(self, topic: Topic) -> Table:
        self.topics_used.add(topic)
        if (log := self._logs.get(topic)) is None:
            log = self._table(f"topics/{topic.path}", topic.table_name)
            if self._driver.looks is not None:
                self._logs[topic] = log
        return log

    def journal(self, schema: TableSchema) -> Journal:
        """A system table, the same object each time, so that it is checked once."""
        if schema.kind not in self._journals:
            table = self._table(f"system/{schema.kind}", f"system_{schema.kind}")
            is_registry = schema is TOPICS
            self._journals[schema.kind] = (
                Journal(table, schema, own=self._identity_of_new, admit=self._admit) if is_registry else Journal(table, schema)
            )
        return self._journals[schema.kind]

    def there(self, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
        """Those of the system tables that are there; all, where not one list tells it."""
        if self.port is None or self.cluster.root is None:
            return schemas
        folders = folders_in(self.port.s3, f"{self.cluster.root}/system")
        return [schema for schema in schemas if schema.kind in folders]

    # -- its identity --------------------------------------------------------------------------------------------

    def _identity_of_new(self) -> Mapping[str, str]:
        return {CLUSTER_PROPERTY: str(Identity.of_new(self.cluster.name))}

    def _admit(self, properties: Mapping[str, str]) -> None:
        self.identity = Identity.decode(properties.get(CLUSTER_PROPERTY))
        if self.identity is not None and self.identity.cluster != self.cluster.name:
            raise other_cluster_error(self.cluster, self.identity.cluster)

    def refuse_other_cluster(self) -> None:
        """Raises OtherClusterError if the configuration calls another cluster's place by this name, as the registry there says. (Whoever reads the
        registry is refused as well.)

        On an object store a place that was found right is not asked again for some minutes. A cluster keeps its place and its name, and a process
        that runs long asks once."""
        if self.port is None:
            self.journal(TOPICS).exists()
            return
        key, now = (self.port, self.place, self.cluster.name), time.monotonic()
        if now - _right_at.get(key, -math.inf) >= REMOTE_FULL_LOOK_S:
            self.journal(TOPICS).exists()
            if self.identity is not None:
                _right_at[key] = now

    def checkpoint(self, *parts: str) -> str:
        return "/".join((self.cluster.checkpoints, *parts))

    def run_checkpoint(self, *parts: str) -> str:
        """Return a path as `checkpoint` does, for what serves one run alone and only its driver reads. It is on the driver's disk where elsewhere
        each file is a request."""
        if self.port is None:
            return self.checkpoint(*parts)
        runs = Path(tempfile.gettempdir(), f"geo-runs-{getpass.getuser()}")
        runs.mkdir(mode=0o700, exist_ok=True)
        return Path(runs, hashlib.sha256(self.place.encode()).hexdigest()[:16], *parts).as_uri()

    @cached_property
    def files(self) -> SmallFiles:
        return SmallFiles(self._driver)

    @property
    def port(self) -> ObjectStore | None:
        """The object store that has its tables, which this program writes by itself. None: they are elsewhere."""
        return None if (location := self.location) is None else self._driver.port_at(location)

    @property
    def place(self) -> str:
        """The place where the cluster's tables are, as configured."""
        return self.cluster.place

    @property
    def location(self) -> str | None:
        """The folder of the cluster's tables; None for a catalog that does not show it, or has no such schema yet."""
        if self.cluster.root is not None:
            return self.cluster.root
        if not self._located:
            try:
                rows = self.spark.sql(f"DESCRIBE SCHEMA `{self.cluster.catalog}`.`{self.cluster.schema}`").collect()
            except spark_errors.AnalysisException:
                return None
            found = (str(row[1]).rstrip("/") for row in rows if str(row[0]).lower() == "location" and row[1])
            self._location, self._located = next(found, None), True
        return self._location

    @property
    def _location_of_tables(self) -> str | None:
        """The place where the registry is: some catalogs show that of a table, and not that of a schema."""
        registry = self._table("system/topics", "system_topics")
        return registry.location if registry.exists() else None

    @property
    def lock_folder(self) -> Path | None:
        """The place where the tables' file locks are, if the tables are on a local disk, wherever the checkpoints are; None elsewhere."""
        if self.cluster.root is not None:
            return self._locks_of_root
        local = local_path(self.location) if self.location is not None else None
        return None if local is None else local / "locks"

    @cached_property
    def _locks_of_root(self) -> Path | None:
        """The `lock_folder` of a root, which stays where it is."""
        local = None if self.cluster.root is None else local_path(self.cluster.root)
        return None if local is None else local / "locks"

    @property
    def is_near(self) -> bool:
        """True if the tables are on a local disk, where a look at one takes microseconds."""
        return self.lock_folder is not None

    def refuse_no_folder(self) -> None:
        """Raise as `check_folder` does for the folder of the tables, if the cluster shows that."""
        if self.location is not None:
            check_folder(self.location)

    def refuse_unsafe_storage(self) -> None:
        """Raises UnsafeError if several writers could lose commits here (see geo.delta.storage), SetupError for a session by which
        nobody may write."""
        self._driver.refuse_connect()
        if (why := self.why_unsafe()) is not None:
            raise UnsafeError(f"cluster {self.cluster.name}: {why}", code=Reason.STORAGE)

    def why_unsafe(self) -> str | None:
        """Tells why two drivers would lose commits on this storage, so that it may not be written, with the ways out. None if they do not."""
        location = self.location or self._location_of_tables
        if location is None:
            return None  # there is no table yet, or a catalog manages their commits
        scheme, local = scheme_of(location), local_path(location)
        by_port = self.port is not None
        log_store = self._driver.log_store(scheme) if local is None and (not by_port or self._driver.has_spark) else None
        if by_port:
            return why_not_by_port(location, log_store=log_store)
        return why_unsafe(
            location,
            log_store=log_store,
            mount="" if local is None else mount_type(local),
            databricks=_ON_DATABRICKS in os.environ,
        )

    def _table(self, path: str, name: str) -> Table:
        folder = self.lock_folder
        lock = None if folder is None else folder / f"{path}.lock"
        if self.cluster.root is not None:
            return Table(self._driver, f"{self.cluster.root}/{path}", by_path=True, lock=lock)
        full = f"{self.cluster.catalog}.{self.cluster.schema}.{name}"
        if self.port is None:
            return Table(self._driver, full, by_path=False, lock=lock)
        if full not in self._in_catalog:
            self._in_catalog[full] = table_in_catalog(self._driver, full, f"{self.location}/{name}")
        return self._in_catalog[full]


def mount_type(path: Path) -> str:
    """Type of the file system at a path, or at the nearest folder above it that exists; "" where the system does not say."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    real, found = os.path.realpath(path), ("", "")
    for place, kind in ((mount[1].replace("\\040", " "), mount[2]) for mount in mounts):
        # The last one of a place is the one that is seen there.
        if len(place) >= len(found[0]) and (real == place or real.startswith(place.rstrip("/") + "/")):
            found = (place, kind)
    return found[1]
