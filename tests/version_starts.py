"""What topics' controllers find out, written by hand as they would: where a version subscription may go on, and what they wait for."""

from __future__ import annotations

from datetime import datetime, timezone

from geo.now import now_us
from geo.schemas import MARKERS, VERSION_STARTS
from geo.subscription.versions.version_starts import VersionStart
from tests.world import TOPIC, World


def found(world: World, cluster: str, what: str, *values: str) -> None:
    """In the tables of `cluster`: `start SUBSCRIPTION TARGET VERSION [SENDER]`, `waits [FOR WHY]`, or `refused COUNT WHY`."""
    if what == "start":
        subscription, target, version, *sender = values
        found_start(world, cluster, subscription, target, int(version), sender=sender[0] if sender else None)
    elif what == "refused":
        found_refused(world, cluster, {values[1]: int(values[0])})
    else:
        assert what == "waits"
        found_waits(world, cluster, dict([values]) if values else {})  # type: ignore[list-item]


def found_start(world: World, cluster: str, subscription: str, target: str, start: int, *, sender: str | None = None) -> None:
    """The subscription may go on in `target` at version `start`. `sender`: who told that by an update; None: it was found out there."""
    of, now = f"{sender or cluster}:{TOPIC}:1", datetime.now(timezone.utc)
    _append(world, cluster, VersionStart(TOPIC, subscription, target, now_us(), start, of, now, sender))


def found_waits(world: World, cluster: str, waits_for: dict[str, str]) -> None:
    """Because of these clusters it takes no snapshots of the topic."""
    _append(world, cluster, VersionStart(TOPIC, "", cluster, now_us(), waits_for=waits_for or None))


def found_refused(world: World, cluster: str, refused: dict[str, int]) -> None:
    """So many markers of the topic changed nothing, by why."""
    _append(world, cluster, VersionStart(TOPIC, "", cluster, now_us(), refused=refused))


def read_up_to(world: World, cluster: str, version: int) -> None:
    """Whoever runs version sync has read the log up to this version."""
    row = {"topic": str(TOPIC), "seq": now_us(), "fact": "{}", "table_id": world.log(cluster).table_id(), "commit_id": None}
    more = {"read_to": version, "moved": version, "written_at": datetime.now(timezone.utc)}
    world.tables(cluster).journal(MARKERS).append([{**row, **more}])


def _append(world: World, cluster: str, row: VersionStart) -> None:
    world.tables(cluster).journal(VERSION_STARTS).append([row])
