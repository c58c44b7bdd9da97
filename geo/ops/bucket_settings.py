"""Judges what the settings of a bucket mean for the tables in it. Pure.

Files below a root are a table's until this program removes them: whatever else expires, archives or restores some of them
breaks its tables. A setting that a store does not tell is not known, and never said to be fine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from geo.coordination.clock import HeldClock
from geo.ops.looks.clocks import of_host
from geo.ops.symptom import Symptom
from geo.reasons import Level

_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Storage classes out of which nothing is read before somebody restores it."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The reason why a store did not tell."""

    why: str


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """One that is enabled, for keys that begin with `prefix`; `has_tags`: only for those of them that have tags, which this program gives to
    none."""

    name: str
    prefix: str
    has_tags: bool = False
    expires: bool = False
    moves_to: tuple[str, ...] = ()
    ends_versions: bool = False
    ends_uploads: bool = False


@dataclass(frozen=True, slots=True)
class ReplicationRule:
    """One that is enabled: what begins with `prefix` is copied into another bucket."""

    name: str
    prefix: str
    to: str


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """Settings of a bucket, as its store told them. `clock` is this host's, held against the time of its answers."""

    region: str | Unknown
    versioning: str | Unknown
    lifecycle: tuple[LifecycleRule, ...] | Unknown
    replication: tuple[ReplicationRule, ...] | Unknown
    clock: HeldClock | Unknown


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a cluster's tables are. It says how the keys of all that is below its root begin, and by which region's name it is asked.
    `has_endpoint`: the configuration names the server, so the store need not be Amazon's."""

    where: str
    prefix: str
    region: str
    has_endpoint: bool


def judged(found: BucketSettings, place: Place, buckets: Collection[str]) -> Iterator[Symptom]:
    """Judges each setting, the good ones too. `buckets`: those in which a cluster of the configuration has its root."""
    yield from _of_clock(found.clock, place.where)
    yield from _of_region(found.region, place)
    yield from _of_versioning(found, place)
    yield from _of_lifecycle(found.lifecycle, place)
    yield from _of_replication(found.replication, place, buckets)


def _of_clock(clock: HeldClock | Unknown, where: str) -> Iterator[Symptom]:
    if isinstance(clock, Unknown):
        yield _unknown(where, "what time it is by the store's clock", clock, "look whether this host keeps its clock by NTP")
    else:
        yield of_host(where, clock.ahead_us)


def _of_region(region: str | Unknown, place: Place) -> Iterator[Symptom]:
    if isinstance(region, Unknown):
        yield _unknown(place.where, "the bucket's region", region, "the right is s3:GetBucketLocation")
    elif region != place.region:
        what = f"the bucket is in the region {region}, and is asked as one in {place.region}"
        yield Symptom("warn" if place.has_endpoint else "error", place.where, what, f"storage: aws_region: {region}")
    else:
        yield Symptom("ok", place.where, f"the bucket is in the region {region}")


def _of_versioning(found: BucketSettings, place: Place) -> Iterator[Symptom]:
    if isinstance(found.versioning, Unknown):
        yield _unknown(
            place.where, "whether the bucket keeps old versions", found.versioning, "the right is s3:GetBucketVersioning"
        )
        return
    if found.versioning != "Enabled":
        yield Symptom("ok", place.where, "the bucket keeps no old versions of what is removed")
        return
    rules = () if isinstance(found.lifecycle, Unknown) else found.lifecycle
    if any(rule.ends_versions and _covers(rule.prefix, place.prefix) and not rule.has_tags for rule in rules):
        yield Symptom("ok", place.where, "the bucket keeps old versions, and a lifecycle rule ends them")
        return
    ends = (
        "whether a lifecycle rule ends them is not known"
        if isinstance(found.lifecycle, Unknown)
        else "no lifecycle rule ends them"
    )
    what = f"the bucket keeps old versions: each file that maintenance removes stays and is paid for; {ends}"
    yield Symptom("warn", place.where, what, "a rule with NoncurrentVersionExpiration of some days, or versioning off")


def _of_lifecycle(rules: tuple[LifecycleRule, ...] | Unknown, place: Place) -> Iterator[Symptom]:
    if isinstance(rules, Unknown):
        what = "whether lifecycle rules expire or archive files of tables, or end unfinished uploads"
        yield _unknown(place.where, what, rules, "the right is s3:GetLifecycleConfiguration")
        return
    harmful = False
    for rule in rules:
        if not _touches(rule.prefix, place.prefix):
            continue
        archived = [name for name in rule.moves_to if name in _ARCHIVES]
        does = [*(["expires"] if rule.expires else []), *(["archives"] if archived else [])]
        of = "those with tags among the objects" if rule.has_tags else "objects"
        if does:
            harmful = True
            level: Level = "warn" if rule.has_tags else "error"
            what = (
                f"the lifecycle rule {rule.name} {' and '.join(does)} {of} below the root: tables that lack a file cannot be read"
            )
            yield Symptom(
                level,
                place.where,
                what,
                f"take {place.prefix or 'this bucket'} out of it; `geo maintain` removes what has expired",
            )
        elif rule.moves_to:
            what = f"the lifecycle rule {rule.name} moves {of} below the root to {', '.join(rule.moves_to)}"
            yield Symptom(
                "warn",
                place.where,
                f"{what}: what is read or removed there soon costs more",
                f"take {place.prefix or 'this bucket'} out of it",
            )
    if not harmful:
        yield Symptom("ok", place.where, "no lifecycle rule expires or archives what is below the root")
    if any(rule.ends_uploads and _covers(rule.prefix, place.prefix) for rule in rules):
        yield Symptom("ok", place.where, "a lifecycle rule ends uploads that were not finished")
    else:
        what = "no lifecycle rule ends uploads that were not finished: what killed processes left is paid for and is in no list"
        yield Symptom("warn", place.where, what, "a rule with AbortIncompleteMultipartUpload after a week")


def _of_replication(rules: tuple[ReplicationRule, ...] | Unknown, place: Place, buckets: Collection[str]) -> Iterator[Symptom]:
    if isinstance(rules, Unknown):
        what = "whether the store copies what is below the root into another bucket"
        yield _unknown(place.where, what, rules, "the right is s3:GetReplicationConfiguration")
        return
    touching = [rule for rule in rules if _touches(rule.prefix, place.prefix)]
    for rule in touching:
        what = f"the replication rule {rule.name} copies what is below the root into the bucket {rule.to}"
        if rule.to in buckets:
            harm = "where a cluster has its root: files come there that no commit of its own names, and removed ones too"
            yield Symptom(
                "error",
                place.where,
                f"{what}, {harm}",
                f"take {place.prefix or 'this bucket'} out of it; a link replicates topics",
            )
        else:
            harm = "in any order: a copy is no backup that can be read at every moment, and each file is paid for twice"
            yield Symptom(
                "warn", place.where, f"{what}, {harm}", f"take {place.prefix or 'this bucket'} out of it, unless that is meant"
            )
    if not touching:
        what = "the store copies nothing of what is below the root elsewhere; whether another bucket is copied into this one it does not tell"
        yield Symptom("ok", place.where, what)


def _unknown(where: str, what: str, unknown: Unknown, fix: str) -> Symptom:
    return Symptom("warn", where, f"{what} is not known: {unknown.why}", fix)


def _covers(prefix: str, root: str) -> bool:
    """Tells whether all keys that begin as those below the root begin with the prefix."""
    return root.startswith(prefix)


def _touches(prefix: str, root: str) -> bool:
    """Tells whether a key may begin with both."""
    return _covers(prefix, root) or prefix.startswith(root)
