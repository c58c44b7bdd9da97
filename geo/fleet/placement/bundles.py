"""Bundles: the parts of a namespace's hash space that are owned, moved and split as one. Pure: no Spark, clock, random or I/O.

As Pulsar's NamespaceBundleFactory and NamespaceBundles: a topic's hash is the CRC32 of its full name. The space is [0, 0xffffffff], and a bundle is
a part of it with its lower end and without its upper one. The last bundle has both.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

from geo.errors import UsageError
from geo.text import show

FIRST, LAST = 0, 0xFFFFFFFF
"""The ends of the hash space (NamespaceBundles.FULL_LOWER_BOUND, FULL_UPPER_BOUND)."""

Range = tuple[int, int]
"""The lower and the upper end of a bundle."""

_NAME = re.compile(r"(.+)/0x([0-9a-f]{8})_0x([0-9a-f]{8})", re.ASCII)


def bundle_hash(topic: str) -> int:
    """The hash of a topic's full name `persistent://tenant/namespace/name`, from 0 to 0xffffffff."""
    return crc32(topic.encode())


def bundle_name(namespace: str, bundle: Range) -> str:
    """`tenant/namespace/0x00000000_0x40000000`, as Pulsar writes it."""
    return f"{namespace}/0x{bundle[0]:08x}_0x{bundle[1]:08x}"


def parse_bundle(name: str) -> tuple[str, Range]:
    """The namespace and the range of a bundle; the inverse of `bundle_name`. Raises UsageError."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise UsageError(f"bundle {show(name)} is not of the form tenant/namespace/0x00000000_0x40000000")
    return found[1], (int(found[2], 16), int(found[3], 16))


def namespace_of(bundle: str) -> str:
    """The namespace of a bundle of this name (LoadManagerShared.getNamespaceNameFromBundleName)."""
    return bundle.rpartition("/")[0]


def overlapping(bundle: str, bundles: Mapping[str, Bundles]) -> list[str]:
    """The bundles that are there, of a namespace that has any, and have something in common with one of this name."""
    namespace, (lower, upper) = parse_bundle(bundle)
    return [bundle_name(namespace, part) for part in bundles[namespace].ranges if part[0] < upper and lower < part[1]]


def is_in(topic: str, bundle: str) -> bool:
    """Tells whether the topic of this full name is in a bundle, also in one that is no more."""
    namespace, (lower, upper) = parse_bundle(bundle)
    at = bundle_hash(topic)
    return namespace_of_topic(topic) == namespace and lower <= at and (at < upper or at == upper == LAST)


def namespace_of_topic(topic: str) -> str:
    """`tenant/namespace` of a topic of this full name."""
    return topic.partition("://")[2].rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Bundles:
    """The bundles of one namespace. Each topic is in exactly one of them.

    `boundaries` ascend from 0 to 0xffffffff; between two that follow each other lies a bundle. Raises UsageError of others.
    """

    boundaries: Sequence[int]

    def __post_init__(self) -> None:
        found = tuple(self.boundaries)
        if len(found) < 2 or found[0] != FIRST or found[-1] != LAST or any(low >= high for low, high in pairwise(found)):
            raise UsageError(f"boundaries of bundles are {show(list(found))}; expected: ascending from {FIRST} to {LAST}")
        object.__setattr__(self, "boundaries", found)

    @property
    def ranges(self) -> list[Range]:
        """All bundles, in ascending order."""
        return list(pairwise(self.boundaries))

    def bundle_of(self, topic: str) -> Range:
        """The bundle that the topic of this full name is in."""
        return self.bundle_at(bundle_hash(topic))

    def bundle_at(self, position: int) -> Range:
        """The bundle that this hash is in."""
        at = min(bisect_right(self.boundaries, position), len(self.boundaries) - 1)
        return self.boundaries[at - 1], self.boundaries[at]

    def split(self, bundle: Range, at: Sequence[int]) -> Bundles:
        """The bundles after one was split at these positions. All other bundles stay. Raises UsageError if there is no such bundle
        or a position is not inside it."""
        lower, upper = bundle
        if (lower, upper) not in self.ranges:
            raise UsageError(
                f"there is no bundle {lower:#010x}_{upper:#010x} to split; boundaries are {show(list(self.boundaries))}"
            )
        outside = [position for position in at if not lower < position < upper]
        if outside or not at:
            raise UsageError(
                f"bundle {lower:#010x}_{upper:#010x} cannot be split at {show(list(at))}; expected: positions inside it"
            )
        return Bundles(sorted({*self.boundaries, *at}))


def even(count: int) -> Bundles:
    """`count` bundles of equal size (PoliciesUtil.getBundles); what does not divide evenly goes to the last. Raises UsageError."""
    if not 0 < count <= LAST:
        raise UsageError(f"{count} bundles were asked for; expected: 1 to {LAST}")
    size = (LAST + 1) // count
    return Bundles([*(size * number for number in range(count)), LAST])


def bundle_names(bundles: Mapping[str, Bundles]) -> list[str]:
    """The names of all bundles of some namespaces, in order."""
    return [bundle_name(namespace, part) for namespace in sorted(bundles) for part in bundles[namespace].ranges]


def bundle_of(topic: str, bundles: Mapping[str, Bundles]) -> str:
    """The name of the bundle that the topic of this full name is in."""
    namespace = namespace_of_topic(topic)
    return bundle_name(namespace, bundles[namespace].bundle_of(topic))
