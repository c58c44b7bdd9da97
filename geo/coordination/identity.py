"""Gives a cluster its identity: the name that the configuration calls it by, and a UUID, as a property of its registry.

A registry has it from its first commit. One of an older program gets it when the cluster is next opened for writing. By then the names of those who
owned something there tell whose it is.
"""

from __future__ import annotations

from geo.coordination.runners import RunnerName
from geo.delta.ddl import set_property_once
from geo.journal.cluster import ClusterTables, Identity, other_cluster_error
from geo.schemas import OWNERS, TOPICS
from geo.schemas.table import CLUSTER_PROPERTY


def identify(tables: ClusterTables, *, rehearsal: bool = False) -> None:
    """Raises OtherClusterError if a cluster's place is another cluster's. Otherwise it has an identity afterwards, once it has a
    registry. A rehearsal writes nothing."""
    registry = tables.journal(TOPICS)
    exists = registry.exists()
    if tables.identity is not None:
        return
    owners = tables.journal(OWNERS).newest()
    names = {name.cluster for one in owners if (name := RunnerName.parse(one["runner"])) is not None}
    if names and tables.cluster.name not in names:
        raise other_cluster_error(tables.cluster, min(names))
    if exists and not rehearsal:
        set_property_once(registry.table, CLUSTER_PROPERTY, str(Identity.of_new(tables.cluster.name)))
