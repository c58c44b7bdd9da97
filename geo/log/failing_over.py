"""Start of a producer that goes on for one of the same name in another cluster. Pure: no Spark, clock, random or I/O.

A *place* of a source partition is safe if every record before it is in the log of some cluster. What a person passed over is not asked for
(rejected records, `--kafka-start latest`, `--accept-lost`). Three places are safe, each by itself:

- OWN, where the producer's own record in this cluster ends;
- RECORDED, where the other producer's record in its cluster ends;
- ARRIVED, behind the last of its messages that came here (`safe_end`, of what `trusted` lets count).

Each is the end of an unbroken run of publishing that began at the first record, or at a place that was safe then. So the furthest one is safe too,
whichever was written later, and it repeats least. Nothing has to be remembered of the choice. Made again after a death or at a later start it is
the same or further on. Once the own record has come further it is the own one. So production may go back and forth: eu to us, and back to eu with
what us published meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from geo.delta.commits import ERASED, EXPIRED, Commit, Kind, read_record
from geo.delta.history import CommitName, parted
from geo.log.ledgers import BACKFILL_KEY, BACKFILL_VERSION, LINK_KEY, LINK_VERSION, RECORDS, is_foreign

LOOKED_AT = (*RECORDS, EXPIRED, ERASED)
"""The records of commits that `trusted` looks at."""


class By(str, Enum):
    """The evidence by which a place is known; of equal places the first counts."""

    OWN = "own"
    RECORDED = "recorded"
    ARRIVED = "arrived"


def furthest(own: Mapping[str, int], recorded: Mapping[str, int], arrived: Mapping[str, int]) -> dict[str, By]:
    """Choose of each source partition the furthest of its safe places. Each is the number of records, bytes or offsets before it."""
    known = {By.OWN: own, By.RECORDED: recorded, By.ARRIVED: arrived}
    names = sorted({name for places in known.values() for name in places})
    return {name: max((by for by in By if name in known[by]), key=lambda by: known[by][name]) for name in names}


@dataclass(frozen=True, slots=True)
class Part:
    """The extent of one ledger in a log. It has the entries from the link's floor on (`start: latest`), and the greatest source offset that they
    say. A ledger of which there is nothing from the floor on has 0, -1 and 0 of the first three."""

    first: int
    last: int
    count: int
    greatest: int


def safe_end(parts: Iterable[Part]) -> int | None:
    """The greatest source offset up to which all that the ledgers of one source partition have is surely here; None: of nothing that is sure.

    A link replicates whole commits in their order, so what is here of a source partition has no gap (`trusted`). A ledger that has a hole all the
    same counts for nothing, nor does what is behind it. What is below a floor a person passed over, and a backfill may have added some of it. (A
    ledger that lacks its beginning has a hole, unless that went by its age.)
    """
    end = None
    for part in sorted(parts, key=lambda part: part.greatest):
        if part.count != part.last - part.first + 1:
            break
        end = part.greatest
    return end


def put_back(recorded: Mapping[int, int], held: Mapping[int, int]) -> str | None:
    """Tells why the other cluster's record need not say all, though its log is what it was. This cluster holds more, so the other one was put back
    from a backup, log and record alike. None if it does not.

    `recorded`: by ledger the last entry by the other's record. `held`: what is here of these ledgers, and of any that are younger.
    """
    for ledger, last in sorted(held.items()):
        if last > (end := recorded.get(ledger, -1)):
            there = f"ends at entry {end}" if ledger in recorded else "is not known"
            return f"ledger {ledger} {there} there and {'ends at' if ledger in recorded else 'has'} entry {last} here: it was put back from a backup"
    return None


def floors_of(origin: str, floors: Mapping[str, int]) -> dict[int, int]:
    """Return, by ledger of the origin, the first entry that a link was to replicate, from the floors of its row (`origin:ledger` → entry)."""
    return {int(ledger): entry for name, entry in floors.items() for of, _, ledger in [name.rpartition(":")] if of == origin}


@dataclass(frozen=True, slots=True)
class Trust:
    """Up to which version of the log here all that came of an origin came in order; None: of nothing. `why` not further."""

    version: int | None
    why: str | None = None


def trusted(
    origin: str, since: CommitName | None, table_id: str, newest: int, at_since: Commit | None, commits: Iterable[Commit]
) -> Trust:
    """Decide how much of the log here counts of `origin`. The link that replicates it recorded last that it had all up to a cursor when `since` was
    the newest commit here. None: it never has. `commits` are those of the versions above that are there, oldest first. `table_id` and `newest` are
    the log's now, `at_since` the commit that is there now.

    A comparison of both logs appends one ledger after the other, a backfill may append the youngest first. Until a link has recorded that all is
    there, nothing from the first such commit on counts.
    """
    if since is None:
        return Trust(
            None, "the link has not recorded that all of it is here (it has never run, or has to compare both logs first)"
        )
    if (other := parted(since, table_id, newest, at_since)) is not None:
        return Trust(None, f"the log here {other.how}")
    end = Trust(newest)
    for commit in commits:
        if commit.kind in (Kind.RESTORE, Kind.REWRITE):
            return Trust(None, f"version {commit.version} of the log here is a {commit.what}")
        if end.why is None and (what := _out_of_order(commit, origin)) is not None:
            end = Trust(commit.version - 1, f"what {what} brought since version {commit.version} need not be all")
    return end


def _out_of_order(commit: Commit, origin: str) -> str | None:
    """Names what added messages of the origin in another order than they were published in.

    None: the commit did not.
    """
    link = read_record(commit.user_metadata, LINK_KEY, LINK_VERSION, lambda f: origin in f["origins"] and "reconciling" in f)
    fill = read_record(commit.user_metadata, BACKFILL_KEY, BACKFILL_VERSION, lambda f: origin in f["origins"])
    if link or fill:
        return "a comparison of both logs" if link else "a backfill"
    return f"somebody else ({commit.what})" if is_foreign(commit) else None
