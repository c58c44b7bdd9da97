"""`system/requests`: what people ask of the links into a cluster, read and written. It holds over restarts: whoever runs a link
reads it as it looks for topics."""

from __future__ import annotations

import logging

from geo.journal.cluster import ClusterTables
from geo.now import utc_now
from geo.replication.link_requests import Action, Request, Requests
from geo.schemas import REQUESTS
from geo.times import in_us

log = logging.getLogger(__name__)


def read_requests(tables: ClusterTables) -> Requests:
    """The newest requests of each link and glob into the cluster."""
    found, journal = list[Request](), tables.journal(REQUESTS)
    for row in journal.newest():
        if row["action"] not in {action.value for action in Action}:  # of a newer program
            log.warning("%s: nobody here knows what %r asks of links from %s", journal, row["action"], row["source"])
            continue
        found.append(Request(row["source"], row["topics"], Action(row["action"]), row["sequence"], in_us(row["asked_at"])))
    return Requests(found)


def ask(tables: ClusterTables, source: str, topics: str, action: Action) -> None:
    """Record a request, after all that are there."""
    row = {"source": source, "topics": topics, "kind": action.kind, "action": action.value, "by": str(tables.me),
           "asked_at": utc_now()}  # fmt: skip
    tables.journal(REQUESTS).append_next(row)
