"""The place where a subscription begins, derived from what the log holds of each ledger. Writes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from geo.config.choices import Start
from geo.coordination.clock import CLOCKS_APART_US
from geo.delta.table import Table
from geo.errors import UsageError
from geo.ids import LedgerId, MessageId
from geo.late import F
from geo.log.ledger_parts import ledger_parts
from geo.log.ledgers import LedgerPart
from geo.log.topic_log import is_message, is_of
from geo.now import now_us
from geo.subscription.acks.ack_state import Base
from geo.subscription.acks.message_set import MessageSet
from geo.times import LAST_US, from_us, in_us, with_zone


@dataclass(frozen=True, slots=True)
class KafkaOffsets:
    """The place where a consumer group of Kafka's stands in a topic: by partition the next offset that it reads. Of a partition that is not named
    it has read nothing. `origin` and `producer`: who published that topic, for one of the same name may be in several Kafka clusters."""

    topic: str
    following: Mapping[int, int]
    origin: str
    producer: str

    def __str__(self) -> str:
        places = ", ".join(f"partition {partition} from offset {offset}" for partition, offset in sorted(self.following.items()))
        return f"Kafka topic {self.topic}: {places}"


StartPosition = Start | datetime | MessageId | KafkaOffsets
"""Place where a subscription is to begin, one of five:

- earliest;
- latest;
- a time (one without a zone is UTC);
- a message, which is then the first one of its ledger;
- the offsets of Kafka that messages say they come from.
"""


def split_at(base: Base | None, log: Table, version: int) -> tuple[MessageSet, MessageSet]:
    """All messages of a log at a version, and those that lie before a base. (A ledger has no holes, L5, and its times never
    decrease, L1, so its first and last entry tell.)"""
    parts = ledger_parts(log, version)
    messages = MessageSet({ledger: ((part.first, part.last),) for ledger, part in parts.items()})
    if base is None or base.time_us is None or parts.keys() <= base.floors.keys():
        return messages, base.below_floors if base is not None else MessageSet()
    by_time = _floors(parts, ledger_parts(log, version, from_us(min(base.time_us, LAST_US))))
    return messages, Base({**by_time, **base.floors}).below_floors


def base_at(start: StartPosition, log: Table) -> Base:
    """The base of a subscription that begins there, as the log holds the topic. Raises UsageError for a message that it does not
    hold, and for a Kafka topic of which it holds none."""
    if start == "earliest":
        return Base()
    if isinstance(start, datetime):
        return Base(time_us=in_us(with_zone(start)))
    now, version = now_us(), log.latest_version()
    # Of a ledger that is not here a message too many is delivered rather than one too few.
    if start == "latest":
        return Base(_floors(ledger_parts(log, version), {}), max(0, now - CLOCKS_APART_US))
    if isinstance(start, KafkaOffsets):
        return Base(_floors_behind(start, log, version))
    rows = log.read(version).where(is_of(start.ledger) & (F.col("entry_id") == start.entry_id) & is_message())
    found = rows.select(F.unix_micros("publish_time")).first()
    if found is None:
        raise UsageError(f"there is no message {start} here.")
    floors = {**_floors(ledger_parts(log, version), ledger_parts(log, version, from_us(found[0]))), start.ledger: start.entry_id}
    return Base(floors, max(0, found[0] - CLOCKS_APART_US))


def _floors_behind(start: KafkaOffsets, log: Table, version: int) -> dict[LedgerId, int]:
    """Next entry, by ledger, after its messages from before the offsets. (A ledger has records of one partition, in order.)"""
    listed = F.from_json(F.lit(json.dumps({str(p): offset for p, offset in start.following.items()})), "map<string, bigint>")
    at = F.expr("try_cast(properties['kafka.offset'] AS BIGINT)")
    published = (F.col("origin") == start.origin) & (F.col("producer") == start.producer) & is_message()
    rows = log.read(version).where(published & (F.col("properties")["kafka.topic"] == start.topic))
    read = F.when(at < listed[F.col("properties")["kafka.partition"]], F.col("entry_id"))
    found = rows.groupBy("origin", "ledger_id").agg(F.max(read).alias("last")).collect()
    if not found:
        raise UsageError(
            f"no message of producer {start.producer} of {start.origin} here comes from Kafka topic {start.topic}. Publish it first, all that "
            "the group has read."
        )
    return {LedgerId(row["origin"], row["ledger_id"]): row["last"] + 1 for row in found if row["last"] is not None}


def _floors(parts: Mapping[LedgerId, LedgerPart], wanted: Mapping[LedgerId, LedgerPart]) -> dict[LedgerId, int]:
    """Floor of each ledger, below which nothing is wanted: the first wanted entry, or what comes next."""
    return {ledger: wanted[ledger].first if ledger in wanted else part.last + 1 for ledger, part in parts.items()}
