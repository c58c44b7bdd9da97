"""What people ask of links: pause, resume, restart. Kept in `system/requests` of the target, so it holds over restarts; whoever
runs the link reads it as it looks for topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from geo.names import Topic, topic_glob_matches
from geo.tables.cluster import ClusterTables
from schemas import REQUESTS


class Asked(str, Enum):
    """What can be asked."""

    PAUSE = "pause"
    RESUME = "resume"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Request:
    """Asked of the link from `source`, for all topics that the glob `topics` matches, also those that come later. A higher
    `number` was asked later."""

    source: str
    topics: str
    asked: Asked
    number: int


def is_paused(requests: Iterable[Request], source: str, topic: Topic) -> bool:
    """Whether the last of the requests to pause or resume that match says so."""
    return max((one.number, one.asked is Asked.PAUSE) for one in _of(requests, source, topic, restarts=False))[1]


def restarted(requests: Iterable[Request], source: str, topic: Topic) -> int:
    """The number of the last request to restart it; 0: there is none."""
    return max(one.number for one in _of(requests, source, topic, restarts=True))


def _of(requests: Iterable[Request], source: str, topic: Topic, *, restarts: bool) -> list[Request]:
    found = [one for one in requests if one.source == source and (one.asked is Asked.RESTART) is restarts]
    return [Request(source, "", Asked.RESUME, 0), *(one for one in found if topic_glob_matches(one.topics, topic))]


def read_requests(tables: ClusterTables) -> list[Request]:
    """The newest requests of each link and glob into the cluster of `tables`."""
    return [
        Request(row["source"], row["topics"], Asked(row["asked"]), row["sequence"]) for row in tables.journal(REQUESTS).newest()
    ]


def ask(tables: ClusterTables, source: str, topics: str, asked: Asked) -> None:
    """Record a request, after all that are there."""
    number = max((one.number for one in read_requests(tables)), default=0) + 1
    kind = "restart" if asked is Asked.RESTART else "pause"
    row = {"source": source, "topics": topics, "kind": kind, "asked": asked.value, "by": str(tables.me),
           "sequence": number, "asked_at": datetime.now(timezone.utc)}  # fmt: skip
    tables.journal(REQUESTS).append([row])
