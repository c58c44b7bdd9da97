"""The four protocol messages of PIP-33, and how each travels: kind and payload of a row of a topic log. Pure.

    marker   the kind (`MarkerKind`)
    payload  JSON, ASCII, keys sorted, no spaces: "version": 1 and the fields of the kind; a position is [version, index]

Versioned, and strict when it is read: what another program wrote is refused with a reason that is counted, and changes nothing.
Who sent a marker is no field that counts: it is the origin of the row, which the table it was first written in stands for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from itertools import pairwise
from typing import Any, TypeVar

from geo.errors import GeoError
from geo.ids import Position
from geo.names import check_cluster, check_subscription
from geo.replication.rule import MarkerKind
from geo.subscription.snapshot_cache import Snapshot
from geo.text import show

T = TypeVar("T")

VERSION = 1
LAST_VERSION = 15
"""A greater number is malformed: it is no version that anybody will have written."""

MAX_BYTES = 64 * 1024
"""Of a payload. The longest that is possible, with `MAX_CLUSTERS` of the longest names, has some 12,000."""

MAX_CLUSTERS = 100
"""In a snapshot: more than any mesh has, and a bound of what one marker adds to a state."""

MAX_ID = 600
"""Characters of a snapshot's id: it holds a cluster, a topic and a time."""

ROUNDS = (1, 2)

_NUMBER_LIMIT = 2**53
"""Versions, places and journal numbers travel as JSON numbers (geo.ids)."""


class Refusal(str, Enum):
    """Why a marker changes nothing."""

    NEWER_ENCODING = "newer encoding"
    MALFORMED = "malformed"
    TOO_LARGE = "too large"
    UNKNOWN_KIND = "unknown kind"


class RefusedMarkerError(GeoError):
    """A marker that cannot be taken. Carries the reason under which it is counted."""

    def __init__(self, reason: Refusal, detail: str) -> None:
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

    @property
    def replicate_to(self) -> tuple[str, ...] | None:
        return None


@dataclass(frozen=True, slots=True)
class SnapshotResponse:
    """`cluster` answers `source_cluster`: what is at or before `position` in its log precedes this answer there. `holds`: the other clusters
    whose messages come into that log, in order. It is ours, and left out if it is empty: who asks may not know yet that they do."""

    snapshot_id: str
    source_cluster: str
    cluster: str
    position: Position
    round_number: int = 1
    holds: tuple[str, ...] = ()

    kind = MarkerKind.SNAPSHOT_RESPONSE

    @property
    def replicate_to(self) -> tuple[str, ...] | None:
        """The asker alone. A hub on the way to it must be named too (`geo.replication.rule`): who writes the row adds it."""
        return (self.source_cluster,)


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A note of a cluster to itself. `begun`: the number in its journal of the tick that began it; `moved`: the newest version that
    had brought a message then."""

    snapshot: Snapshot
    begun: int
    moved: int

    kind = MarkerKind.SNAPSHOT

    @property
    def replicate_to(self) -> tuple[str, ...] | None:
        return ()


@dataclass(frozen=True, slots=True)
class SubscriptionUpdate:
    """The subscription has finished, in the sender's log, all that is at or before `clusters[x]` in x's and was routed to both."""

    subscription: str
    snapshot_id: str
    started_us: int
    clusters: Mapping[str, Position]

    kind = MarkerKind.SUBSCRIPTION_UPDATE

    @property
    def replicate_to(self) -> tuple[str, ...] | None:
        return None


Marker = SnapshotRequest | SnapshotResponse | SnapshotTaken | SubscriptionUpdate


def encode(marker: Marker) -> bytes:
    """The payload of a marker. Raises RefusedMarkerError if a reader would refuse it."""
    payload = json.dumps({"version": VERSION, **_fields(marker)}, sort_keys=True, separators=(",", ":")).encode("ascii")
    decode(marker.kind.value, payload)
    return payload


def _fields(marker: Marker) -> dict[str, Any]:
    fields = asdict(marker)
    if "round_number" in fields:
        fields["round"] = fields.pop("round_number")
    if not fields.get("holds", True):
        del fields["holds"]
    return {**fields.pop("snapshot", {}), **fields}


def snapshot_fields(snapshot: Snapshot) -> dict[str, Any]:
    """As JSON has it."""
    clusters = {name: list(position) for name, position in snapshot.clusters.items()}
    return {**asdict(snapshot), "local_position": list(snapshot.local_position), "clusters": clusters}


def decode(kind: object, payload: object) -> Marker:
    """The marker that a row of a log holds. Raises RefusedMarkerError, whatever it is given."""
    found = next((one for one in MarkerKind if one.value == kind), None)
    if found is None:
        raise RefusedMarkerError(Refusal.UNKNOWN_KIND, show(kind))
    if not isinstance(payload, (bytes, bytearray)):
        raise _malformed(f"its payload is {type(payload).__name__}")
    if len(payload) > MAX_BYTES:
        raise RefusedMarkerError(Refusal.TOO_LARGE, f"{len(payload)} bytes, at most {MAX_BYTES}")
    try:
        fields = json.loads(bytes(payload).decode("ascii"), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:  # a wrong byte is a ValueError too
        raise _malformed(f"no JSON: {show(str(error))}") from None
    if not isinstance(fields, dict):
        raise _malformed("it is no object")
    version = fields.pop("version", None)
    if type(version) is not int or not 0 < version <= LAST_VERSION:
        raise _malformed(f"version {show(version)}")
    if version > VERSION:
        raise RefusedMarkerError(Refusal.NEWER_ENCODING, f"version {version}, this program reads up to {VERSION}")
    return _whole(_READERS[found], fields)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _malformed(what: str) -> RefusedMarkerError:
    return RefusedMarkerError(Refusal.MALFORMED, what)


class _Fields:
    """The fields of a payload, each taken once and checked."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def end(self) -> None:
        if self._fields:
            raise _malformed(f"it has a field {show(min(self._fields))}")

    def take(self, name: str) -> Any:
        if name not in self._fields:
            raise _malformed(f"it has no {name}")
        return self._fields.pop(name)

    def number(self, name: str, least: int = 0, limit: int = _NUMBER_LIMIT) -> int:
        value = self.take(name)
        if type(value) is not int or not least <= value < limit:
            raise _malformed(f"{name} {show(value)} is not from {least} to {limit - 1}")
        return value

    def round_number(self) -> int:
        return self.number("round", ROUNDS[0], ROUNDS[-1] + 1)

    def snapshot_id(self) -> str:
        value = self.take("snapshot_id")
        if not isinstance(value, str) or not 0 < len(value) <= MAX_ID or not value.isascii() or not value.isprintable():
            raise _malformed(f"snapshot_id {show(value)}")
        return value

    def name(self, name: str, check: Callable[[str], str] = check_cluster) -> str:
        return _name(self.take(name), check)

    def position(self, name: str) -> Position:
        return _position(self.take(name))

    def holds(self) -> tuple[str, ...]:
        if "holds" not in self._fields:
            return ()
        value = self.take("holds")
        if not isinstance(value, list) or not 0 < len(value) <= MAX_CLUSTERS:
            raise _malformed(f"holds {show(value)}")
        names = tuple(_name(one, check_cluster) for one in value)
        if any(one >= other for one, other in pairwise(names)):
            raise _malformed(f"holds {show(value)}, which is not in order")
        return names

    def clusters(self) -> dict[str, Position]:
        value = self.take("clusters")
        if not isinstance(value, dict) or not 0 < len(value) <= MAX_CLUSTERS:
            raise _malformed(f"clusters {show(value)}")
        return {_name(cluster, check_cluster): _position(value[cluster]) for cluster in sorted(value)}

    def snapshot(self) -> Snapshot:
        return Snapshot(self.snapshot_id(), self.position("local_position"), self.clusters(), self.number("started_us"))


def _name(value: object, check: Callable[[str], str]) -> str:
    try:
        return check(value)  # type: ignore[arg-type]  # it says so if it is no text
    except GeoError as error:
        raise _malformed(str(error)) from None


def _position(value: object) -> Position:
    if (
        not isinstance(value, list)
        or len(value) != 2
        or any(type(one) is not int or not 0 <= one < _NUMBER_LIMIT for one in value)
    ):
        raise _malformed(f"position {show(value)}")
    return Position(*value)


_READERS: Mapping[MarkerKind, Callable[[_Fields], Marker]] = {
    MarkerKind.SNAPSHOT_REQUEST: lambda of: SnapshotRequest(
        of.snapshot_id(), of.name("source_cluster"), of.number("started_us"), of.round_number()
    ),
    MarkerKind.SNAPSHOT_RESPONSE: lambda of: SnapshotResponse(
        of.snapshot_id(), of.name("source_cluster"), of.name("cluster"), of.position("position"), of.round_number(), of.holds()
    ),
    MarkerKind.SNAPSHOT: lambda of: SnapshotTaken(of.snapshot(), of.number("begun"), of.number("moved")),
    MarkerKind.SUBSCRIPTION_UPDATE: lambda of: SubscriptionUpdate(
        of.name("subscription", check_subscription), of.snapshot_id(), of.number("started_us"), of.clusters()
    ),
}


def read_snapshot(fields: Mapping[str, Any]) -> Snapshot:
    """The inverse of `snapshot_fields`. Raises RefusedMarkerError."""
    return _whole(_Fields.snapshot, fields)


def _whole(read: Callable[[_Fields], T], given: Mapping[str, Any]) -> T:
    """What is read of fields, each of which must be of it."""
    fields = _Fields(dict(given))
    found = read(fields)
    fields.end()
    return found
