"""The four protocol messages of PIP-33, and how each travels: kind and payload of a row of a topic log. Pure.

    marker   the kind (`MarkerKind`)
    payload  JSON, ASCII, keys sorted, no spaces: "version": 1 and the fields of the kind; a position is [version, index]

Versioned, and strict when it is read: what another program wrote is refused with a reason that is counted, and changes nothing. Who sent a marker
is no field that counts. It is the origin of the row, which the table it was first written in stands for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

from geo.errors import GeoError
from geo.ids import Position
from geo.names import check_cluster, check_subscription
from geo.replication.rule import MarkerKind
from geo.subscription.pip33.snapshot_cache import Snapshot
from geo.text import show

T = TypeVar("T")

VERSION = 1
LAST_VERSION = 15
"""A greater number is malformed: it is no version that anybody will have written."""

MAX_BYTES = 64 * 1024
"""Bytes of a payload, at most. The longest that is possible, with `MAX_CLUSTERS` of the longest names, has some 12,000."""

MAX_CLUSTERS = 100
"""In a snapshot: more than any mesh has, and a bound of what one marker adds to a state."""

MAX_ID = 600
"""Characters of a snapshot's id: it holds a cluster, a topic and a time."""

ROUNDS = (1, 2)

_NUMBER_LIMIT = 2**53
"""Versions, places and journal numbers travel as JSON numbers (geo.ids)."""


class MarkerRefusal(str, Enum):
    """The reason why a marker changes nothing."""

    NEWER_ENCODING = "newer encoding"
    MALFORMED = "malformed"
    TOO_LARGE = "too large"
    UNKNOWN_KIND = "unknown kind"


class RefusedMarkerError(GeoError):
    """A marker that cannot be taken. Carries the reason under which it is counted."""

    def __init__(self, reason: MarkerRefusal, detail: str) -> None:
        self.reason = reason
        super().__init__(f"{reason.value}: {detail}")


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """`source_cluster` asks all others how far their logs go. `round_number` 2: once more, with the same id."""

    snapshot_id: str
    source_cluster: str
    started_us: int
    round_number: int = 1

    kind = MarkerKind.SNAPSHOT_REQUEST
    replicate_to = None


@dataclass(frozen=True, slots=True)
class SnapshotResponse:
    """`cluster` answers `source_cluster`: what is at or before `position` in its log precedes this answer there. `holds`: the other clusters
    whose messages come into that log, in order. It is ours, and left out if it is empty: who asks may not know yet that they do.

    It goes to the asker alone, and to the hubs on the way there, which must be named too (`geo.replication.rule`)."""

    snapshot_id: str
    source_cluster: str
    cluster: str
    position: Position
    round_number: int = 1
    holds: tuple[str, ...] = ()

    kind = MarkerKind.SNAPSHOT_RESPONSE


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A note of a cluster to itself. `begun`: the number in its journal of the tick that began it; `moved`: the newest version that had added a
    message then.
    """

    snapshot: Snapshot
    begun: int
    moved: int

    kind = MarkerKind.SNAPSHOT
    replicate_to: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionUpdate:
    """The subscription has finished, in the sender's log, all that is at or before `clusters[x]` in x's and was routed to both."""

    subscription: str
    snapshot_id: str
    started_us: int
    clusters: Mapping[str, Position]

    kind = MarkerKind.SUBSCRIPTION_UPDATE
    replicate_to = None


Marker = SnapshotRequest | SnapshotResponse | SnapshotTaken | SubscriptionUpdate


def encode(marker: Marker) -> bytes:
    """The payload of a marker. Raises RefusedMarkerError if a reader would refuse it."""
    payload = json.dumps({"version": VERSION, **_fields(marker)}, sort_keys=True, separators=(",", ":")).encode("ascii")
    decode(marker.kind.value, payload)
    return payload


def _fields(marker: Marker) -> dict[str, Any]:
    found = asdict(marker)
    if "round_number" in found:
        found["round"] = found.pop("round_number")
    if not found.get("holds", True):
        del found["holds"]
    return {**found.pop("snapshot", {}), **found}


def decode(kind: object, payload: object) -> Marker:
    """The marker that a row of a log holds. Raises RefusedMarkerError, whatever it is given."""
    found = next((one for one in MarkerKind if one.value == kind), None)
    if found is None:
        raise RefusedMarkerError(MarkerRefusal.UNKNOWN_KIND, show(kind))
    if not isinstance(payload, (bytes, bytearray)):
        raise _malformed(f"its payload is {type(payload).__name__}")
    if len(payload) > MAX_BYTES:
        raise RefusedMarkerError(MarkerRefusal.TOO_LARGE, f"{len(payload)} bytes, at most {MAX_BYTES}")
    try:
        given = json.loads(bytes(payload).decode("ascii"), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:  # a wrong byte is a ValueError too
        raise _malformed(f"no JSON: {show(str(error))}") from None
    if not isinstance(given, dict):
        raise _malformed("it is no object")
    version = given.pop("version", None)
    if type(version) is not int or not 0 < version <= LAST_VERSION:
        raise _malformed(f"version {show(version)}")
    if version > VERSION:
        raise RefusedMarkerError(MarkerRefusal.NEWER_ENCODING, f"version {version}, this program reads up to {VERSION}")
    return _whole(_KINDS[found], given)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _malformed(what: str) -> RefusedMarkerError:
    return RefusedMarkerError(MarkerRefusal.MALFORMED, what)


def _number(name: str, value: object, least: int = 0, limit: int = _NUMBER_LIMIT) -> int:
    if type(value) is not int or not least <= value < limit:
        raise _malformed(f"{name} {show(value)} is not from {least} to {limit - 1}")
    return value


def _round(name: str, value: object) -> int:
    return _number(name, value, ROUNDS[0], ROUNDS[-1] + 1)


def _snapshot_id(name: str, value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID or not value.isascii() or not value.isprintable():
        raise _malformed(f"{name} {show(value)}")
    return value


def _cluster(name: str, value: object, check: Callable[[str], str] = check_cluster) -> str:
    try:
        return check(value)  # type: ignore[arg-type]  # it says so if it is no text
    except GeoError as error:
        raise _malformed(str(error)) from None


def _subscription(name: str, value: object) -> str:
    return _cluster(name, value, check_subscription)


def _position(name: str, value: object) -> Position:
    if (
        not isinstance(value, (list, Position))
        or len(value) != 2
        or any(type(one) is not int or not 0 <= one < _NUMBER_LIMIT for one in value)
    ):
        raise _malformed(f"position {show(value)}")
    return Position(*value)


def _holds(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_CLUSTERS:
        raise _malformed(f"{name} {show(value)}")
    names = tuple(_cluster(name, one) for one in value)
    if any(one >= other for one, other in pairwise(names)):
        raise _malformed(f"{name} {show(value)}, which is not in order")
    return names


def _clusters(name: str, value: object) -> dict[str, Position]:
    if not isinstance(value, dict) or not 0 < len(value) <= MAX_CLUSTERS:
        raise _malformed(f"{name} {show(value)}")
    return {_cluster(name, cluster): _position(name, value[cluster]) for cluster in sorted(value)}


_READERS: Mapping[str, Callable[[str, object], object]] = {
    "snapshot_id": _snapshot_id,
    "source_cluster": _cluster,
    "cluster": _cluster,
    "subscription": _subscription,
    "started_us": _number,
    "begun": _number,
    "moved": _number,
    "round": _round,
    "position": _position,
    "local_position": _position,
    "clusters": _clusters,
    "holds": _holds,
}
"""Readers of a field by its name, whatever marker it is of: from its name and what is there."""

_KINDS: Mapping[MarkerKind, type[Marker]] = {
    MarkerKind.SNAPSHOT_REQUEST: SnapshotRequest,
    MarkerKind.SNAPSHOT_RESPONSE: SnapshotResponse,
    MarkerKind.SNAPSHOT: SnapshotTaken,
    MarkerKind.SUBSCRIPTION_UPDATE: SubscriptionUpdate,
}


def read_snapshot(given: Mapping[str, Any]) -> Snapshot:
    """One whose fields JSON has. Raises RefusedMarkerError."""
    return _whole(Snapshot, given)


def _whole(kind: type[T], given: Mapping[str, Any]) -> T:
    """A value of these fields, each of which must be of it."""
    left = dict(given)
    found: T = _taken(kind, left)
    if left:
        raise _malformed(f"it has a field {show(min(left))}")
    return found


def _taken(kind: type, left: dict[str, Any]) -> Any:
    """A value of those fields that it has, which are taken out."""
    found: dict[str, Any] = {}
    for one in fields(kind):
        name = "round" if one.name == "round_number" else one.name
        if name == "snapshot":
            found[name] = _taken(Snapshot, left)
        elif name in left:
            found[one.name] = _READERS[name](name, left.pop(name))
        elif name != "holds":
            raise _malformed(f"it has no {name}")
    return kind(**found)
