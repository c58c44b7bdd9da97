"""The object store of a cluster, as its configuration says how it is reached."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache, partial
from importlib.util import find_spec

from geo.config.cluster import Cluster
from geo.config.secret import Secret
from geo.config.storage_options import PROFILE, WORKSPACE, WORKSPACE_TOKEN, check_options
from geo.delta.object_store import ObjectStore
from geo.delta.unity_catalog import path_keys
from geo.errors import SetupError, UsageError
from geo.locations import authority_of, storage_of

_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
"""Variables that object_store would follow where `storage` does not say an end point."""


def port_of(cluster: Cluster, location: str | None = None) -> ObjectStore | None:
    """The store of a cluster with an S3 root, or whose catalog has its tables at a `location` on S3; None of another one.

    Raises UsageError for a secret that is not there, and for settings that are known to Spark alone. So it does for an end point that only the
    environment says. Raises SetupError where a library is not there.
    """
    root = cluster.root or location or ""
    if storage_of(root) != "s3a":
        return None
    try:
        reached = cluster.reached if cluster.root is not None else cluster.reached_at(root)
        check_options(reached)
    except UsageError as error:
        raise UsageError(f"cluster {cluster.name}: {error}") from None
    if variable := next((name for name in _ENDPOINTS if os.environ.get(name) and "aws_endpoint_url" not in reached), None):
        raise UsageError(
            f"cluster {cluster.name}: the environment's {variable} would send this program elsewhere than Spark; say "
            "aws_endpoint_url in `storage`, or take the variable away"
        )
    needed = {
        "obstore": "'delta-geo[s3]'",
        "deltalake": "deltalake",
        **({"boto3": "boto3"} if PROFILE in reached else {}),
    }
    if lacking := {library: what for library, what in needed.items() if find_spec(library) is None}:
        raise SetupError(
            f"cluster {cluster.name}: is on S3, which takes {', '.join(lacking)}: pip install {' '.join(lacking.values())}"
        )
    return _port(authority_of(root), tuple(sorted(reached.items())), root if WORKSPACE in reached else "")


def port_at(cluster: Cluster, location: str) -> ObjectStore | None:
    """Store as `port_of`, of any location, reached as the cluster is."""
    if storage_of(location) != "s3a":
        return None
    return port_of(replace(cluster, root=location, catalog=None, schema=None, checkpoints=location))


@lru_cache(maxsize=64)
def _port(bucket: str, storage: tuple[tuple[str, str | Secret], ...], root: str) -> ObjectStore:
    """One for all who reach a bucket in the same way: they share its connections. `root`: for which Unity Catalog gives keys, if it does."""
    return ObjectStore(bucket, _revealed(storage, root), partial(_revealed, storage, root))


def _revealed(storage: tuple[tuple[str, str | Secret], ...], root: str) -> dict[str, str]:
    found = {name: value.reveal() if isinstance(value, Secret) else value for name, value in storage}
    return found | path_keys(found.pop(WORKSPACE), found.pop(WORKSPACE_TOKEN), root) if root else found
