"""Tables on an S3 API of this machine."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from geo.config.cluster import Cluster
from geo.config.secret import Secret
from geo.delta.driver import Driver
from geo.delta.object_store import ObjectStore
from geo.delta.process import this_process
from geo.delta.store import StorePath, WritePath
from geo.delta.table import Table
from tests.object_store import ObjectStore as S3


def table_on(s3: S3, **options: str) -> WritePath:
    """The folder of a table in a bucket of its own."""
    bucket = f"b{uuid.uuid4()}"
    s3.make_bucket(bucket)
    return StorePath(ObjectStore(bucket, s3.options() | options), f"s3a://{bucket}/t")


def cluster_on(s3: S3, bucket: str) -> Cluster:
    """A cluster in a bucket that is there. The keys are in the environment variables that `S3.storage` names."""
    said = {name: Secret(value) if value.startswith("secret:") else value for name, value in s3.storage().items()}
    return Cluster("eu", root=f"s3a://{bucket}/t", storage=said)


def keys_in_files(s3: S3, folder: Path, keys: str) -> Cluster:
    """A cluster in a bucket of its own, whose keys, one by name, are in files of the folder, to be rotated by writing these."""
    bucket = f"b{uuid.uuid4()}"
    s3.make_bucket(bucket)
    files = {name: folder / name for name in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")}
    for path in files.values():
        path.write_text(keys)
    return Cluster(
        "eu",
        root=f"s3a://{bucket}/t",
        storage=s3.options() | {name: Secret(f"secret://file{path}") for name, path in files.items()},
    )


def opened_on(s3: S3, place: Any = None) -> Table:
    """A table, a new one unless its folder is given, as another process without Spark opens it."""
    place = table_on(s3) if place is None else place
    port = ObjectStore(place.store.s3.bucket, s3.options())
    driver = Driver(no_spark, lambda: this_process(0), find_port=lambda: port)
    return Table(driver, str(place), by_path=True, lock=None)


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for")
