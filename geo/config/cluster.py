"""A cluster: the storage of one region, and how it is reached. Pure: no Spark, clock or I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from geo.config.secret import Secret
from geo.config.spark_conf import check_conf, s3_settings
from geo.config.storage_options import WORKSPACE, check_options, check_root, hadoop_settings, options_of_hadoop
from geo.config.yaml_nodes import check_location, check_within, contains
from geo.errors import UsageError
from geo.locations import authority_of, storage_of
from geo.names import check_cluster
from geo.text import show
from geo.times import MAX_DURATION_S

OWNER_TIMEOUT_S = 5 * 60
"""An owner on another host that gave no sign of life for so long is replaced without a person. That is longer than a pause of garbage collection or
a slow commit, and than clocks differ. The fence makes it safe if it lived after all."""

LEAST_OWNER_TIMEOUT_S = 30

# Unity Catalog and Hive take more when quoted; these never need more than quoting.
_IDENTIFIER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,254}")


@dataclass(frozen=True, slots=True)
class Cluster:
    """One region's storage: tables below `root`, or in `catalog`.`schema`; exactly one of the two. UsageError if not.

    `root` and `checkpoints` are absolute paths or URIs, without a slash at the end. `storage` says how an S3 root is reached,
    in object_store's words; where it is left out `spark_conf` says it.
    """

    name: str
    root: str | None = None
    catalog: str | None = None
    schema: str | None = None
    checkpoints: str = ""
    # Not in the repr: that a value does not look secret is a guess.
    spark_conf: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    storage: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    owner_timeout_s: int = OWNER_TIMEOUT_S

    def __post_init__(self) -> None:
        check_cluster(self.name)
        what = f"cluster {self.name}: owner_timeout"
        check_within(what, self.owner_timeout_s, LEAST_OWNER_TIMEOUT_S, MAX_DURATION_S, " s")
        if (self.root is None) == (self.catalog is None):
            raise UsageError(f"cluster {self.name}: expected either root, or catalog and schema")
        if (self.catalog is None) != (self.schema is None):
            raise UsageError(f"cluster {self.name}: catalog and schema belong together")
        for identifier in (self.catalog, self.schema):
            if identifier is not None:
                check_identifier(identifier)
        if not self.checkpoints:
            if self.root is None:
                raise UsageError(f"cluster {self.name}: checkpoints (a path or URI) is required with a catalog")
            object.__setattr__(self, "checkpoints", f"{self.root}/checkpoints")
        for location in self.locations:
            check_location(location)
        for tables in ("topics", "system"):
            if self.root is not None and contains(f"{self.root}/{tables}", self.checkpoints):
                raise UsageError(f"cluster {self.name}: checkpoints would lie among its tables, in <root>/{tables}")
        for key, value in self.spark_conf.items():
            check_conf(key, value)
        object.__setattr__(self, "spark_conf", MappingProxyType(dict(self.spark_conf)))
        object.__setattr__(self, "storage", MappingProxyType({name.lower(): value for name, value in self.storage.items()}))
        try:
            self._check_storage()
        except UsageError as error:
            raise UsageError(f"cluster {self.name}: {error}") from None

    def _check_storage(self) -> None:
        check_root(self.root or "")
        if self.root is None or storage_of(self.root) != "s3a":
            if self.storage:
                raise UsageError("storage says how an S3 root is reached, and this cluster has none; take it out")
            return
        bucket = authority_of(self.root)
        if storage_of(self.checkpoints) == "s3a" and authority_of(self.checkpoints) != bucket:
            raise UsageError("checkpoints are in another bucket than root; keep them in the same one, or on a disk")
        said = self.reached_at(self.root)
        if self.storage and said:
            raise UsageError(f"storage and spark_conf both say {next(iter(said))}, how S3 is reached; say it once")
        check_options(self.reached)
        if WORKSPACE in self.storage and storage_of(self.checkpoints) == "s3a" and not contains(self.root, self.checkpoints):
            raise UsageError("Unity Catalog gives keys for what is below root; keep checkpoints there, or on a disk")

    @property
    def reached(self) -> Mapping[str, str | Secret]:
        """Access to its S3 root in the form of `storage`, wherever it is configured; empty for another root."""
        if self.storage or self.root is None or storage_of(self.root) != "s3a":
            return self.storage
        return self.reached_at(self.root)

    def reached_at(self, location: str) -> Mapping[str, str | Secret]:
        """Access to a bucket by `spark_conf`, in the form of `storage`. Raises UsageError for what is known to Spark alone."""
        return options_of_hadoop(s3_settings(self.spark_conf, authority_of(location)))

    @property
    def place(self) -> str:
        """The place where its tables are, as configured."""
        return self.root or f"{self.catalog}.{self.schema}"

    @property
    def settings(self) -> Mapping[str, str | Secret]:
        """Settings that a session of Spark's needs to reach the cluster."""
        return {**hadoop_settings(self.storage, authority_of(self.root or "")), **self.spark_conf}

    @property
    def database(self) -> tuple[str, str] | None:
        """Catalog and schema as the catalog compares them, with case folded."""
        return (self.catalog.lower(), self.schema.lower()) if self.catalog and self.schema else None

    @property
    def locations(self) -> tuple[str, ...]:
        """The folders that are this cluster's alone."""
        return (self.checkpoints,) if self.root is None else (self.root, self.checkpoints)


def check_identifier(text: str) -> str:
    if not _IDENTIFIER.fullmatch(text):
        raise UsageError(f"{show(text)} is no identifier; allowed: ASCII letters, digits, _ and -, at most 255")
    return text
