"""The object store of a cluster, as its configuration says how it is reached."""

from __future__ import annotations

from functools import lru_cache, partial
from importlib.util import find_spec

from geo.config.model import Cluster
from geo.config.secret import Secret
from geo.config.storage_options import PROFILE
from geo.delta.object_store import ObjectStore
from geo.errors import SetupError
from geo.locations import authority_of, storage_of


def port_of(cluster: Cluster) -> ObjectStore | None:
    """The store of a cluster with an S3 root; None of another one. Raises UsageError for a secret that is not there, SetupError where a
    library is not."""
    root = cluster.root or ""
    if storage_of(root) != "s3a":
        return None
    needed = {
        "obstore": "'delta-geo[s3]'",
        "deltalake": "deltalake",
        **({"boto3": "boto3"} if PROFILE in cluster.reached else {}),
    }
    if lacking := {library: what for library, what in needed.items() if find_spec(library) is None}:
        raise SetupError(
            f"cluster {cluster.name}: is on S3, which takes {', '.join(lacking)}: pip install {' '.join(lacking.values())}"
        )
    return _port(authority_of(root), tuple(sorted(cluster.reached.items())))


@lru_cache(maxsize=64)
def _port(bucket: str, storage: tuple[tuple[str, str | Secret], ...]) -> ObjectStore:
    """One for all who reach a bucket in the same way: they share its connections."""
    return ObjectStore(bucket, _revealed(storage), partial(_revealed, storage))


def _revealed(storage: tuple[tuple[str, str | Secret], ...]) -> dict[str, str]:
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in storage}
