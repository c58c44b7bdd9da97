"""`system/ledgers` read into a producer's Progress and written from it, and the commits of its log in between."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import date, timedelta
from types import MappingProxyType

from geo.config.model import Config
from geo.delta.commits import ERASED, EXPIRED
from geo.delta.engine import TableSnapshot
from geo.delta.history import CommitName
from geo.delta.table import Table
from geo.delta.versions import committed_at, known_version
from geo.errors import SourceChangedError
from geo.journal import upkeep
from geo.journal.cluster import ClusterTables
from geo.journal.rows import Row
from geo.log.continuing import CommitsAbove, continued, fold, tail_of
from geo.log.finished import forget
from geo.log.ledger_parts import oldest_us
from geo.log.ledgers import RECORDS, Batch, Ledger, LedgerKey, ProducerProgress, SourceEnd
from geo.log.peers import ends_of_ids, peer_ends
from geo.log.promises import LOST
from geo.log.sources.json_mark import is_newer
from geo.names import Topic
from geo.now import utc_now
from geo.schemas import LEDGERS
from geo.times import from_us, in_us

log = logging.getLogger(__name__)

_RECORDS = (*RECORDS, EXPIRED, ERASED)
"""Records that are read of other commits' userMetadata."""


_UNPUBLISHED = MappingProxyType({"source_end": None, "source_count": 0, "source_hash": 0})
"""Values of a ledger whose source is not known any more."""


class LedgerTable:
    """The rows of one producer and topic in `system/ledgers`: one per ledger key counts, the newest by (generation, sequence).

    The newest of all names a commit of the log, the producer's own last one (`exact_to`), and all rows together are exact up to it. What the
    producer committed after that the commits themselves say (`Batch`). So it does not matter how old a row is that a stale or an interrupted
    publisher leaves. It claims nothing of commits that it does not know.
    """

    def __init__(
        self, tables: ClusterTables, config: Config, topic: Topic, producer: str, log_table: Table, generation: int
    ) -> None:
        self._tables, self._config, self._topic, self._producer, self._log = tables, config, topic, producer, log_table
        self._journal = tables.journal(LEDGERS)
        self._generation, self._sequence = generation, 0
        self._looked = -1
        self.exact_to = CommitName("", -1, None)
        self.checkpoint_id: str | None = None
        self.complete = True
        """True if the newest row says that the producer stopped cleanly after it."""
        self.has_record = False
        """There are rows of this producer and topic."""
        self._refuses_older = False
        """True if no program of before reads `system/ledgers` any more."""
        self.away: tuple[str, ...] = ()
        """The clusters that could not be read at the start."""

    # -- at a start ------------------------------------------------------------------------------------------------

    def resume(self, seen: TableSnapshot, now_us: int) -> tuple[ProducerProgress, set[LedgerKey]]:
        """Return from what the producer may go on (L3), and the keys of which more is known than recorded.

        This is the newest record and the batches committed since, checked against the log, `seen` now, and the peers. Nothing of the producer may be
        in flight. Raises UnsafeError as `continued`.
        """
        recorded, tail = self.recorded(seen)
        promised = CommitName(seen.table_id, tail.own[-1].version, tail.own[-1].commit_id) if tail.own else self.exact_to
        found, changed = fold(recorded, tail)
        ends, peers = self._all_ends(found, seen.version)
        self.away = tuple(sorted(name for name, held in peers.items() if held is None))
        oldest = None if tail.missing is None or self.complete else oldest_us(self._log, seen.version)
        progress, reasons = continued(found, ends, peers, tail, complete=self.complete, oldest_us=oldest, now_us=now_us)
        for reason in reasons.values():
            log.warning("producer %s of %s: %s. New messages go to a new ledger.", self._producer, self._topic, reason)
        if not self.has_record or tail.broken is not None or tail.missing is not None:
            # Nothing of this producer is in flight and all of it is accounted for, so its record may begin here.
            newest = self._log.commit_at(seen.version)
            self.exact_to = CommitName(seen.table_id, seen.version, newest.commit_id if newest else None)
        elif tail.own:
            self.exact_to = CommitName(seen.table_id, tail.own[-1].version, tail.own[-1].commit_id)
        self._looked = seen.version
        changed |= {key for key, ledger in progress.ledgers.items() if ledger.uncompared != found.ledgers[key].uncompared}
        if reasons:
            # A ledger that is given up stays so: nothing else says it later.
            whole = replace(found, ledgers={**found.ledgers, **progress.ledgers})
            lost = {key: promised for key in reasons if self._is_lost(found.ledgers[key], ends, tail, now_us)}
            self.record_ends(whole, changed | reasons.keys(), closed=reasons, lost=lost, complete=True)
            changed = set()
        return progress, changed

    def _is_lost(self, ledger: Ledger, ends: Mapping[int, int], tail: CommitsAbove, now_us: int) -> bool:
        """True if the log, which is what it was, lost entries of the ledger other than by their age."""
        ttl_s = self._config.policy(self._topic).message_ttl_s
        has_expired = ttl_s is not None and ledger.time_us < now_us - ttl_s * 1_000_000
        return tail.broken is None and not has_expired and ends.get(ledger.ledger_id, -1) < ledger.end

    def recorded(self, seen: TableSnapshot) -> tuple[ProducerProgress, CommitsAbove]:
        """Return what is recorded of the producer, and what the log's commits since then say, up to `seen`. Writes nothing."""
        rows = self._journal.newest(topic=str(self._topic), producer=self._producer)
        rows.sort(key=LEDGERS.order_of)
        self.has_record, tail = bool(rows), CommitsAbove()
        if rows:
            last = rows[-1]
            # A table of owners that was lost begins at 1 again; what is written now must count all the same.
            self._generation, self._sequence = max(self._generation, last["generation"]), last["sequence"]
            self.checkpoint_id, self.complete = last["checkpoint_id"], last["complete"]
            self.exact_to = CommitName(last["table_id"], last["table_version"], last["table_commit"])
            tail = self._tail(seen, self.exact_to.version + 1)
        return _progress(rows), tail

    def _all_ends(self, progress: ProducerProgress, version: int) -> tuple[dict[int, int], dict[str, Mapping[int, int] | None]]:
        """Return the last entries of the ledgers that this cluster, at a version of its log, and its peers hold. (Peers are also asked if there are
        none: it says who is away.)"""
        ids = [ledger.ledger_id for ledger in progress.ledgers.values()]
        since_us = min((ledger.time_us for ledger in progress.ledgers.values()), default=0)
        # A day more: a session in another time zone than UTC has other dates.
        since = (from_us(since_us) - timedelta(days=1)).date() if since_us else None
        return self._own_ends(version, ids, since), peer_ends(self._tables, self._config, self._topic, ids, since)

    def _own_ends(self, version: int, ids: Collection[int], since: date | None = None) -> dict[int, int]:
        return ends_of_ids(self._log, version, self._tables.cluster.name, ids, since)

    # -- while it runs -----------------------------------------------------------------------------------------------

    def look(self, progress: ProducerProgress, appended: Batch | None) -> int:
        """The log's newest version, after a look at the commits since the last look.

        `progress` is all that this process knows to be published, `appended` the batch that it appended last since the last look. Raises
        SourceChangedError, before anything is taken for known, if the log is not what it was: made again, put back, RESTOREd, or rewritten by
        somebody.
        """
        seen = self._log.snapshot()
        if seen is None:
            raise self._changed("the log is gone")
        tail = self._tail(seen, self._looked + 1)
        if tail.broken is not None:
            raise self._changed(tail.broken)
        mine = [own for own in tail.own if own.batch == appended]
        if others := [own.version for own in tail.own if not progress.holds(own.batch)]:
            raise self._changed(f"version {others[0]} was published as this producer, and not by this process as far as it knows")
        if appended is not None and not mine and tail.missing is None:
            raise self._changed(
                f"what this producer committed last is in none of the log's versions {self._looked + 1} to {seen.version}"
            )
        if tail.missing is not None or tail.foreign:
            # What this process has published it knows; whether something happened to the log meanwhile the ends say.
            ends = self._own_ends(seen.version, [ledger.ledger_id for ledger in progress.ledgers.values()])
            _, reasons = continued(progress, ends, {}, tail)
            if reasons:
                raise self._changed("; ".join(reasons.values()))
        if tail.missing is not None:
            self.exact_to = CommitName(seen.table_id, tail.missing[1], None) if appended is not None else self.exact_to
        if mine:
            self.exact_to = CommitName(seen.table_id, mine[-1].version, mine[-1].commit_id)
        self._looked = seen.version
        return seen.version

    def _tail(self, seen: TableSnapshot, first: int) -> CommitsAbove:
        known, latest = self.exact_to, seen.version
        same = seen.table_id == known.table_id and latest >= known.version
        at_known = self._log.commit_at(known.version) if same else None
        commits = self._log.commits(first, latest, _RECORDS) if same else ()
        return tail_of(known, seen.table_id, latest, at_known, first, commits, self._producer)

    def _changed(self, what: str) -> SourceChangedError:
        return SourceChangedError(
            f"{self._topic} in {self._tables.cluster.name}: producer {self._producer} stops, {what}. Nothing was recorded of it. Start "
            "the producer again: it finds out what is published, and publishes to new ledgers if these must not go on."
        )

    # -- its rows ------------------------------------------------------------------------------------------------------

    def record_ends(
        self,
        progress: ProducerProgress,
        keys: Collection[LedgerKey],
        *,
        closed: Mapping[LedgerKey, str] | None = None,
        lost: Mapping[LedgerKey, CommitName] | None = None,
        complete: bool = False,
    ) -> None:
        """Record the ledgers `keys` of `progress`, exact up to `exact_to`. `complete`: the producer's commits are all up to there, and before it
        makes another one it records that they are not. (So a stop that was clean is known from one that was not.)

        `lost`: those of which the log lost entries, and the commit at which it had them. Their ends stay known (geo.log.promises).
        """
        self._sequence += 1
        now = utc_now()
        rows = []
        for key in keys:
            ledger, source = progress.ledgers[key], progress.sources.get(key.source)
            rows.append(
                {
                    "topic": str(self._topic),
                    "producer": self._producer,
                    "ledger_id": ledger.ledger_id,
                    "source": key.source,
                    "replicate_to": key.listed,
                    "end": ledger.end,
                    "closed": (closed or {}).get(key),
                    "uncompared": list(ledger.uncompared),
                    "source_end": source.offset if source else None,
                    "source_count": source.count if source else 0,
                    "source_hash": source.hash if source else 0,
                    "publish_time": from_us(ledger.time_us),
                    **_exact(self.exact_to),
                    "complete": complete,
                    "checkpoint_id": self.checkpoint_id,
                    "generation": self._generation,
                    "sequence": self._sequence,
                    "recorded_at": now,
                }
            )
        for key, at in (lost or {}).items():
            row = next(row for row in rows if (row["source"], row["replicate_to"]) == (key.source, key.listed))
            # The newest row of the producer says up to where all are exact, and that is not this one.
            at_last = {"sequence": self._sequence - 1, "source": f"{LOST}{row['ledger_id']}"}
            rows.append({**row, **_exact(at), **_UNPUBLISHED, **at_last})
        self.refuse_older(source.offset for source in progress.sources.values())
        self._journal.append(rows)
        self.complete = complete

    def refuse_older(self, source_ends: Iterable[str | None]) -> None:
        """Let programs refuse `system/ledgers` by its version that would take one of these ends, which are about to be written, for
        something else."""
        if not self._refuses_older and any(map(is_newer, source_ends)) and self._journal.exists():
            upkeep.upgrade(self._journal)
            self._refuses_older = True

    def recorded_us(self) -> int | None:
        """Tells when the storage says that what was recorded last came, or a newer row of the table; None if it cannot say."""
        table = self._journal.table
        return in_us(committed_at(table, known_version(table)))

    def taken(self, ids: Collection[int]) -> set[int]:
        """Those of the ids that a ledger of the cluster has already."""
        return self._journal.values("ledger_id", ids)


def close_ledgers(tables: ClusterTables, topic: Topic, why: str, generation: int) -> list[str]:
    """Let every producer of a topic whose log goes begin again. Its ledgers are closed and their ids stay taken. What was published of its sources
    is not known any more. `generation`: of the caller, who owns all of its producers; what an owner before it still records does not count. Returns
    the producers; idempotent.
    """
    journal, now = tables.journal(LEDGERS), utc_now()
    rows = sorted(journal.newest(topic=str(topic)), key=LEDGERS.order_of)
    last = {row["producer"]: {"generation": max(row["generation"], generation), "sequence": row["sequence"] + 1} for row in rows}
    anew = {"closed": why, **_UNPUBLISHED, "complete": True, "checkpoint_id": None, "recorded_at": now}
    journal.append(
        [
            {**row, **anew, **last[row["producer"]]}
            for row in rows
            if row["closed"] is None or row["source_end"] is not None or not row["complete"]
        ]
    )
    forget(tables, topic, now)
    return sorted(last)


def _exact(at: CommitName) -> Row:
    return {"table_id": at.table_id, "table_version": at.version, "table_commit": at.commit_id}


def _progress(rows: list[Row]) -> ProducerProgress:
    """The progress that the rows of a producer, oldest first, record."""
    ledgers: dict[LedgerKey, Ledger] = {}
    sources: dict[str, SourceEnd] = {}
    for row in rows:
        key = LedgerKey.of(row["source"], row["replicate_to"])
        if row["closed"] is None:
            ledgers[key] = Ledger(row["ledger_id"], row["end"], in_us(row["publish_time"]), tuple(row["uncompared"]))
        if row["source_end"] is not None:
            sources[row["source"]] = SourceEnd(row["source_end"], row["source_count"], row["source_hash"])
    return ProducerProgress(ledgers, sources)
