"""Commits as values, for tests of what a link makes of them."""

from __future__ import annotations

from collections.abc import Mapping

from geo.delta.commits import ERASED, EXPIRED, Commit
from geo.delta.history import CommitName
from geo.log.ledgers import Batch
from geo.replication.link_state import LinkRecord

TABLE = "table-1"

PUBLISHED = Batch("p", 1_795_341_600_000_000, (), {}).encode()
"""The record of a producer of ours."""


def commit(
    version: int,
    operation: str = "WRITE",
    *,
    commit_id: str = "",
    metadata: str | None = PUBLISHED,
    parameters: Mapping[str, str] | None = None,
    metrics: Mapping[str, int] | None = None,
) -> Commit:
    mode = {"mode": "Append"} if operation == "WRITE" else {}
    return Commit(
        version,
        commit_id or f"id-{version}",
        operation,
        parameters or mode,
        metrics or {},
        metadata if metadata != PUBLISHED or operation == "WRITE" else None,
        1_795_341_600_000_000,
        "ann",
    )


def appends(first: int, last: int) -> list[Commit]:
    return [commit(version) for version in range(first, last + 1)]


def foreign(version: int) -> Commit:
    """Somebody's own append."""
    return commit(version, metadata=None)


def restore(version: int, back_to: int) -> Commit:
    return commit(version, "RESTORE", parameters={"version": str(back_to)})


def expiry(version: int) -> Commit:
    return commit(version, "DELETE", metadata=f'{{"{EXPIRED}":1}}', metrics={"numRemovedFiles": 3, "numDeletedRows": 9})


def erasure(version: int) -> Commit:
    return commit(version, "UPDATE", metadata=f'{{"{ERASED}":1}}', metrics={"numUpdatedRows": 1, "numAddedFiles": 1})


def cursor(version: int, table: str = TABLE) -> CommitName:
    return CommitName(table, version, f"id-{version}")


def record(
    at: int, *, link: str = "us->eu", origins: tuple[str, ...] = ("us",), reconciling: bool = False, generation: int = 3
) -> LinkRecord:
    """Of a link whose source is another table than the target."""
    return LinkRecord(
        link, origins, "persistent://shop/web/clicks", cursor(at, "source"), generation, "ab", reconciling=reconciling
    )


def by_link(version: int, of: LinkRecord) -> Commit:
    return commit(version, metadata=of.encode())
