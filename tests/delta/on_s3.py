"""Tables on an S3 API of this machine."""

from __future__ import annotations

import uuid

from geo.config.model import Cluster
from geo.config.secret import Secret
from geo.delta.object_store import ObjectStore
from geo.delta.store import StorePath, WritePath
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
