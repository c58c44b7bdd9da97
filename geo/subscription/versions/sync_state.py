"""State of version sync in a cluster: whether it runs, and what it has not read, by the tables alone, for who looks."""

from __future__ import annotations

from geo.coordination.holders import RegionHolders
from geo.coordination.runners import version_sync_runner
from geo.delta.commits import Commit, Kind
from geo.delta.scan import added_where
from geo.delta.table import Table
from geo.delta.versions import committed_at
from geo.journal.cluster import ClusterTables
from geo.now import utc_now
from geo.schemas import MARKERS
from geo.subscription.pip33.controller import concerns
from geo.subscription.versions.version_subscriptions import VersionSubscription

SOON_S = 60.0
"""So long, beyond the frequency of snapshots, a version of a log may be unread before that is said. A busy tail is some rounds behind."""


def why_not_run(tables: ClusterTables) -> str | None:
    """Tells why nobody runs version sync in the cluster; None: somebody does."""
    return RegionHolders(tables).why_not_run(version_sync_runner(tables).name) or None


def unread_of(tables: ClusterTables, one: VersionSubscription, newest: int, frequency_s: float) -> str | None:
    """Finds what the tail has not read of the log of a subscription, which ends at `newest`, though both are there for long; None: nothing. Messages
    are read within the frequency of snapshots, markers sooner; of commits that add nothing else nothing is told.
    """
    log, row = tables.log(one.topic), next(iter(tables.journal(MARKERS).newest(topic=str(one.topic))), None)
    read_to = -1 if row is None or row["table_id"] != log.table_id() else row["read_to"]
    commits = log.commits(read_to + 1, newest)
    added = next((commit.version for commit in commits if _is_told(log, commit, tables.cluster.name)), None)
    came = None if added is None else committed_at(log, added)
    if came is None:
        return None
    waits_s = (utc_now() - max(came, one.created_at)).total_seconds()
    so_far = "not read at all" if read_to < 0 else f"read up to version {read_to} of {newest} only"
    return None if waits_s < frequency_s + SOON_S else f"its log is {so_far}, and version {added} waits for {waits_s:,.0f} s"


def _is_told(log: Table, commit: Commit, cluster: str) -> bool:
    """Tells whether the tail reports a commit: it adds messages, or markers that concern the controller here."""
    if commit.kind is not Kind.APPEND or commit.rows == 0:
        return False
    if (found := added_where(log, commit.version, "marker", ("origin", "marker"))) is None:
        return True
    markers, others = found
    return others or any(concerns(row["marker"], row["origin"], cluster) for row in markers.to_pylist())
