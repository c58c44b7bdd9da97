"""Checks of rows that `comparison.py` has put side by side: which message belongs into which log, and what is wrong.

This is the rule of design section 5. It is said here once more than in the links, since verify uses nothing of what it checks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from geo.config.model import Link
from geo.late import F
from geo.names import Topic
from geo.ops.verify.columns import addressed, from_floor, true
from geo.ops.verify.link_ends import Ends, floors_by_target
from geo.ops.verify.report import Category

if TYPE_CHECKING:
    from pyspark.sql import Column

Way = tuple[str, str, str]
"""Target, origin and topic."""


@dataclass(frozen=True, slots=True)
class Check:
    """Count of rows for which `holds`, side by side. Category None counts what is as it should be."""

    where: str
    category: Category | None
    holds: Column


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected content of the logs of one topic. `logs`: the clusters that have one.

    `carried`: by cluster, the origins that its links carry. `former`: by cluster, those whose link is no longer configured, or that were
    removed: what came may stay, and nobody vouches for more. `floors`: by cluster and ledger, where links began. `due_before`: of links by
    name, before which time a message was published that is no longer in flight.
    """

    links: Sequence[Link]
    logs: Collection[str]
    carried: Mapping[str, Collection[str]]
    former: Mapping[str, Collection[str]]
    floors: Mapping[str, Mapping[str, int]]
    due_before: Mapping[str, int]

    @classmethod
    def of(
        cls,
        topic: Topic,
        links: Sequence[Link],
        logs: Collection[str],
        names: Iterable[str],
        *,
        known: Collection[Way],
        ends: Ends,
        due_before: Mapping[str, int],
    ) -> Expected:
        """Derives it from links. `names`: the clusters, also those without a log. `known`: the ways that links have rows of, and those from
        clusters that were removed. `ends`: how the links stand after the last pins.
        """
        former = {
            name: {source for target, source, of in known if (target, of) == (name, str(topic))}
            - {link.source for link in links if link.target == name}
            for name in names
        }
        carried = {name: {origin for link in links if link.target == name for origin in link.origins} for name in names}
        return cls(links, logs, carried, former, floors_by_target(topic, links, ends), due_before)

    def belongs(self, name: str) -> Column:
        """Condition for rows by which the ledgers of a log are judged: its own, and messages that a link should have replicated."""
        carried = F.col("origin").isin(*sorted(self.carried[name]))
        crossed = F.col("is_message") & addressed(F.col("replicate_to"), name) & from_floor(self.floors[name])
        return (F.col("origin") == name) | (carried & crossed)

    def checks(self) -> Iterable[Check]:
        """Everything that is counted, as conditions over the rows side by side."""
        for name in self.logs:
            here = at("row", name).isNotNull()
            foreign = ~F.col("origin").isin(name, *sorted(self.former[name]))
            carried = F.col("origin").isin(*sorted(self.carried[name]))
            yield Check(name, None, here)
            yield Check(name, Category.DUPLICATES, at("copies", name) > 1)
            yield Check(name, Category.UNEXPECTED, here & at("early", name) & foreign & ~carried)
        for link in self.links:
            yield from self._link_checks(link)

    def _link_checks(self, link: Link) -> Iterable[Check]:
        name, source, target = link.name, at("row", link.source), at("row", link.target)
        carried = F.col("origin").isin(*sorted(link.origins))
        both = carried & source.isNotNull() & target.isNotNull()
        yield Check(name, None, both)
        yield Check(name, Category.DIFFERENT, both & (source["digest"] != target["digest"]))

        expected = (
            carried
            & source.isNotNull()
            & source["is_message"]
            & addressed(source["replicate_to"], link.target)
            & from_floor(self.floors[link.target])
        )
        absent = expected & target.isNull()
        due = absent & ~source["has_expired"] & ~source["is_impossible"]
        newer = due & ~at("end", name)
        # Within a ledger rows arrive in order, so whatever is below one that arrived is not on its way any more.
        passed = true(F.col("entry_id") < at("last", link.target))
        yield Check(name, Category.IMPOSSIBLE, absent & source["is_impossible"])
        yield Check(name, Category.EXPIRED, absent & source["has_expired"] & ~source["is_impossible"])
        yield Check(name, Category.MISSING, due & at("end", name))
        yield Check(name, Category.IN_FLIGHT, newer & ~passed)
        if (before_us := self.due_before.get(name)) is not None:
            is_old = true(source["publish_time"] < F.timestamp_micros(F.lit(before_us).cast("long")))
            yield Check(overdue_of(name), None, newer & ~passed & is_old)
        # From its base on the ledger itself tells its holes.
        yield Check(link.target, Category.HOLES, newer & passed & (F.col("entry_id") < at("base", link.target)))

        origins = (at("row", o).isNotNull() & (F.col("origin") == o) for o in link.origins if o in self.logs)
        known = reduce(or_, origins, source.isNotNull())
        allowed = target["may_cross"] & addressed(target["replicate_to"], link.target)
        unknown = ~known & ~target["has_expired"]
        there = carried & target.isNotNull() & at("early", link.target)
        yield Check(name, Category.UNEXPECTED, there & (~allowed | unknown))


def overdue_of(link: str) -> str:
    """Name under which the overdue messages of a link are counted."""
    return f"overdue {link}"


def at(what: str, where: str) -> Column:
    """Column of the rows side by side: `what` of a cluster or link."""
    return F.col(f"`{what} {where}`")
