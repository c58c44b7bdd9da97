"""Finds how far a producer of the same name came in another cluster (`--continue-from`), from its records there, else from what arrived of it here.
Reads only: one region's credential never writes another's tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from geo.asking import ask_all
from geo.config.model import Config
from geo.coordination.owners import owner_of, refuse_living
from geo.coordination.runners import producer_runner
from geo.delta.commits import Commit
from geo.delta.history import CommitName
from geo.delta.predicate import Among, Compare
from geo.delta.table import Table
from geo.disk import local_path
from geo.errors import AlreadyOwnedError, RetryableError, UsageError
from geo.faults import FAULTS, SPARK_ERRORS
from geo.journal.cluster import ClusterTables
from geo.log.continuing import fold
from geo.log.failing_over import LOOKED_AT, By, floors_of, furthest, put_back, trusted
from geo.log.finished import recall
from geo.log.ledger_parts import ledger_ends
from geo.log.ledger_table import LedgerTable
from geo.log.peers import WAIT_S, ends_of_ids
from geo.log.source_note import SourceNote
from geo.log.sources.kafka_arrived import KafkaMessages
from geo.log.sources.source import Place, Position, SourceReader
from geo.log.topic_log import is_message
from geo.names import Topic
from geo.schemas import LEDGERS, LINKS
from geo.text import first_line

log = logging.getLogger(__name__)

NAMED = 20
"""So many source partitions are named in a line of the log."""


@dataclass(frozen=True, slots=True)
class PeerTold:
    """The records of the other cluster: places, why these need not be all, and by ledger the last entry of it."""

    places: Position = field(default_factory=dict)
    why: str | None = None
    ends: Mapping[int, int] = field(default_factory=dict)
    newest: Sequence[Row] | None = None
    """The last messages of these ledgers, where no id says that the places are of this source."""


@dataclass(frozen=True, slots=True)
class Continued:
    """The place where a source partition goes on, and by what that is known."""

    source: str
    place: Place
    by: By
    may_repeat: bool
    """True if messages that the other producer published behind it, and this cluster does not know of, are published again."""


@dataclass(frozen=True, slots=True)
class OtherProducer:
    """The producer `producer` of the cluster `cluster`: where its source partitions go on."""

    producer: str
    cluster: str
    here: str
    recorded: Position
    arrived: Position
    why: str | None
    """The reason why `recorded` need not say all that it published; None: it does."""
    is_linked: bool
    """True if a link replicates its messages into this cluster."""
    unsure: frozenset[str] = frozenset()
    """Source partitions of which messages are here, and of which `arrived` has no place."""

    def continued(self, own: Position) -> tuple[Continued, ...]:
        """Tells where each source partition goes on of which this cluster or the other one knows something. `own` are the places that the
        producer's record in this cluster says.

        Raises UsageError if nobody knows anything, or nothing of a source partition of which messages are here.
        """
        known = {By.OWN: own, By.RECORDED: self.recorded, By.ARRIVED: self.arrived}
        own_, recorded, arrived = ({name: int(place[0]) for name, place in places.items()} for places in known.values())
        chosen = furthest(own_, recorded, arrived)
        if without := sorted(self.unsure - chosen.keys()):
            named = ", ".join(without[:NAMED]) + f" and {len(without) - NAMED:,} more" * (len(without) > NAMED)
            raise UsageError(
                f"producer {self.producer} cannot go on in {self.here} from {self.cluster}: messages of {named} are here, and nothing says up "
                f"to where they are all here: there is a hole in a ledger, or what came need not be all. It would be published from its "
                f"first record on again ({self.why}). Nothing was published. If {self.cluster} can be reached, let the link bring what is "
                "missing (`geo reconcile`; `geo verify` names it) and start this again. To begin anew leave --continue-from out: then "
                "--kafka-start says where."
            )
        if not chosen:
            raise UsageError(
                f"producer {self.producer} cannot go on in {self.here} from {self.cluster}: "
                f"{self.why or f'it has published nothing of this source in {self.cluster}'}. Nothing was published. To begin anew leave "
                "--continue-from out: then --kafka-start says where, and JSON lines begin with the first."
            )
        may_repeat = self.why is not None
        return tuple(Continued(name, known[by][name], by, may_repeat) for name, by in chosen.items())

    def words(self, continued: Sequence[Continued], reader: SourceReader) -> tuple[str, bool]:
        """Return what a person must know of it, and whether that is a warning."""
        new = [one for one in continued if one.by is not By.OWN]
        if not new:
            beside = f"{self.cluster} came no further"
            if self.why is not None:
                beside = f"{self.why}. If it came further there, what it published is published again"
            return f"goes on from its own records in {self.here}: {beside}", False
        named = [f"{reader.say(one.source, one.place)} ({self._by(one.by)})" for one in new[:NAMED]]
        named += [f"{len(new) - NAMED:,} more"] * (len(new) > NAMED)
        link = f"the link from {self.cluster}" if self.is_linked else None
        if self.why is None:
            comes = f"comes by {link} alone" if link else f"stays there: no link brings messages of {self.cluster}"
            then = f"Nothing is published again. What {self.cluster} holds and {self.here} has not got yet {comes}"
        else:
            then = f"But {self.why}: what {self.cluster} published from there on is published again here"
            then += f", and comes once more by {link} when it is back" * (link is not None)
            then += f". See to it that the producer does not run in {self.cluster}"
        return f"goes on where it stood in {self.cluster}: {', '.join(named)}. {then}", self.why is not None

    def _by(self, by: By) -> str:
        return f"by the records of {self.cluster}" if by is By.RECORDED else f"behind what arrived in {self.here}"


def other_producer(
    here: ClusterTables,
    config: Config,
    topic: Topic,
    producer: str,
    cluster: str,
    reader: SourceReader,
    messages: KafkaMessages | None = None,
) -> OtherProducer:
    """Find how far the producer came in `cluster`, which is another one than `here`.

    Its records count where that cluster can be read, within WAIT_S: `system/ledgers`, the commits since, and its note. What arrived is looked at only
    if they do not say all. It counts as far as the link that replicated it says that all is here (`trusted`); `messages` None: messages do not say it
    (JSON lines).

    Raises UsageError for a cluster that is not known or this one, AlreadyOwnedError if the producer lives there. Raises what `messages` do, as
    SourceChangedError where its last messages there are of another Kafka topic.
    """
    refuse_same(config, here.cluster.name, cluster)
    there = here.beside(config.cluster(cluster))
    here_log, came, unsure = here.log(topic), Position(), frozenset[str]()
    try:
        told = ask_all({cluster: lambda: _recorded(there, config, topic, producer, reader, messages)}, WAIT_S)[cluster].result()
    except AlreadyOwnedError:
        raise
    except Exception as error:  # whatever the other cluster has: then what arrived counts
        told = PeerTold(why=f"{cluster} cannot be read ({first_line(error)})")
    recorded, why = told.places, told.why
    if messages is not None and told.newest is not None:
        if not told.newest:
            raise UsageError(
                f"producer {producer} cannot go on in {here.cluster.name} from {cluster}: the Kafka brokers are (or were) too old to have ids "
                f"of topics, and of what it published in {cluster} no message is left by which to tell whether this is the same Kafka topic. "
                "Nothing was published. To begin anew leave --continue-from out: then --kafka-start says where."
            )
        messages.refuse_others(told.newest)
    if (
        why is None
        and here_log.exists()
        and (behind := put_back(told.ends, _held(here_log, producer, cluster, told.ends))) is not None
    ):
        why = f"the record of {cluster} need not be all: {behind}"
    if why is not None and messages is None and not recorded:
        why += ", and messages do not say the file and line that they come from"
    elif why is not None and messages is not None:
        if here_log.exists():
            came, unsure, besides = _arrived(here, config, topic, producer, cluster, messages)
            why += f", and {besides}" * (besides is not None)
        if not came and not unsure and not recorded:
            why += ", and nothing of it arrived here that says where it comes from"
    here_ = here.cluster.name
    is_linked = any(link.target == here_ and cluster in link.origins and link.carries(topic) for link in config.links)
    found = OtherProducer(producer, cluster, here_, recorded, came, why, is_linked, unsure)
    if not here_log.exists():
        found.continued({})  # refused before anything is made, if nothing is known
    return found


def refuse_same(config: Config, here: str, other: str) -> None:
    """Raises UsageError unless `other` is a cluster of the configuration, and not `here`."""
    if config.cluster(other).name == here:
        raise UsageError(
            f"--continue-from {other}: in its own cluster a producer goes on from its own records. Leave it out, or name the cluster that "
            "ran it before."
        )


def _arrived(
    here: ClusterTables, config: Config, topic: Topic, producer: str, cluster: str, messages: KafkaMessages
) -> tuple[Position, frozenset[str], str | None]:
    """The places behind what arrived here in order, and the source partitions with messages and without such a place. Beside them why not all that is
    here counts, if so.
    """
    table = here.log(topic)
    linked = [row for row in here.journal(LINKS).newest(topic=str(topic)) if cluster in row["origins"]]
    link = max(linked, key=lambda row: row["updated_at"], default=None)  # an origin comes by one link; before it maybe by another
    since, floors = None, {}
    if link is not None:
        whole = link["source_version"] is not None and link["target_version"] is not None
        since = CommitName(link["target_table_id"], link["target_version"], link["target_commit"]) if whole else None
        floors = floors_of(cluster, link["floors"] or {})
    seen = table.snapshot()
    assert seen is not None, "it exists"
    at_since: Commit | None = None
    commits: Iterable[Commit] = ()
    if since is not None and since.table_id == seen.table_id and since.version <= seen.version:
        at_since, commits = table.commit_at(since.version), table.commits(since.version + 1, seen.version, LOOKED_AT)
    trust = trusted(cluster, since, seen.table_id, seen.version, at_since, commits)

    def said(version: int) -> DataFrame:
        return table.read(version).where((F.col("origin") == cluster) & (F.col("producer") == producer) & is_message())

    came, why = Position(), trust.why
    if trust.version is not None:
        try:
            came = messages.places(said(trust.version), floors, expires=config.policy(topic).message_ttl_s is not None)
        except SPARK_ERRORS as error:
            if trust.version == seen.version:
                raise
            why = f"{why}, and version {trust.version} cannot be read any more ({first_line(error)})"
    return came, frozenset(messages.sources(said(seen.version)) - came.keys()), why


def _held(table: Table, producer: str, cluster: str, ends: Mapping[int, int]) -> dict[int, int]:
    """The last entries here of the other producer's ledgers `ends`, and of any that are younger."""
    version = table.latest_version()
    held = ends_of_ids(table, version, cluster, ends.keys(), None)
    of_producer = Among("origin", frozenset({cluster})) & Among("producer", frozenset({producer}))
    younger = of_producer & Compare("ledger_id", ">", max(ends, default=-1))
    return held | {ledger.ledger_id: last for ledger, last in ledger_ends(table, version, younger).items()}


def _recorded(
    there: ClusterTables, config: Config, topic: Topic, producer: str, reader: SourceReader, messages: KafkaMessages | None
) -> PeerTold:
    """Raises AlreadyOwnedError if the producer lives, and what is in the way of reading."""
    name, folder = there.cluster.name, local_path(there.location) if there.location is not None else None
    if folder is not None and not folder.is_dir():
        raise RetryableError(f"{folder} is not there")
    runner = producer_runner(there, topic, producer).name
    owner = owner_of(there, runner)
    refuse_living(
        there, [] if owner is None else [owner], "Going on beside it would publish the same records twice. Nothing was published."
    )
    table = there.log(topic)
    ledgers = LedgerTable(there, config, topic, producer, table, 0)
    if (seen := table.snapshot()) is None:
        return PeerTold(why=f"{name} has no log of {topic}")
    known, tail = ledgers.recorded(seen)
    if not ledgers.has_record:
        return PeerTold(why=f"{name} has no record of producer {producer} of {topic}")
    if tail.broken is not None:
        return PeerTold(why=f"{tail.broken}: the log of {name} need not hold what is recorded of it")
    progress, _ = fold(known, tail)
    try:
        noted = SourceNote(there, topic, producer).read(progress.sources)
    except FAULTS as error:  # it only saves reading again what was not published
        log.warning("%s: the note beside producer %s in %s cannot be read: %s", topic, producer, name, first_line(error))
        noted = {}
    found: Position = {}
    for source, end in progress.sources.items():
        if reader.has(source) and source not in noted:
            if (place := reader.place_of(source, end)) is None:
                return PeerTold(why=f"the record of {name} does not say where reading {source} goes on")
            found[source] = place
    found |= {source: place for source, place in noted.items() if reader.has(source)}
    ended = recall(there, topic, producer, reader.unread(found)).items()
    found |= {source: place for source, end in ended if (place := reader.place_of(source, end)) is not None}
    # A ledger that was given up and not replaced is in the rows alone.
    rows = there.journal(LEDGERS).newest(topic=str(topic), producer=producer)
    ends = {row["ledger_id"]: row["end"] for row in rows}
    ends |= {ledger.ledger_id: ledger.end for ledger in progress.ledgers.values()}
    newest = None
    if messages is not None and messages.is_without_id(found):
        own = table.read().where((F.col("origin") == name) & is_message())
        newest = messages.content(own, [(ledger, end) for ledger, end in ends.items() if end >= 0])
    if tail.missing is None or ledgers.complete or not progress.sources.keys() - tail.certain:
        return PeerTold(found, None, ends, newest)
    gone = f"commits {tail.missing[0]} to {tail.missing[1]} of the log of {name} were cleaned up"
    return PeerTold(found, f"{gone}, and it did not stop cleanly", ends, newest)
