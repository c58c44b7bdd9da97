"""Foreign commits below a live producer: what it publishes after them, and what the next start of it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from geo.faults import FAULTS
from geo.log.publisher import Publisher
from geo.log.topics import create_topic
from geo.names import Topic
from geo.streams import timetable
from geo.text import first_line
from tests.foreign.held import Effect, Held, Id, Row, held
from tests.foreign.place import FIRST, PENDING, Kind, Place, write
from tests.foreign.verdicts import Cell, Verdict, cells, loud, right
from tests.world import World

CLUSTER, PRODUCER, COLUMN = "us", "live", "producer"

_COLUMNS = StructType([StructField("key", StringType()), StructField("payload", BinaryType())])


def _rows(entries: range) -> list[dict[str, object]]:
    return [{"key": f"live-{entry}", "payload": b"x"} for entry in entries]


class ProducersTopic:
    """The topic of a kind, with messages of two regions and a producer that runs."""

    def __init__(self, world: World, kind: Kind) -> None:
        self.kind, self._world = kind, world
        self.topic = Topic.parse(f"persistent://foreign/producer/{kind.slug}")
        self._log = world.log(CLUSTER, self.topic)
        self.place = Place(world.spark, self._log.name)
        self._seen: list[Held] = []

    @contextmanager
    def _open(self) -> Iterator[Publisher]:
        publisher = Publisher(self._world.tables(CLUSTER), self._world.config, self.topic, PRODUCER)
        publisher.open(_COLUMNS)
        try:
            yield publisher
        except BaseException:
            publisher.close(clean=False)
            raise
        publisher.close()

    def _look(self) -> Held:
        found = held(self.place)
        if found is None:
            raise _Unreadable
        self._seen.append(found)
        return found

    def cell(self) -> Cell:
        create_topic(self._world.tables(CLUSTER), self.topic)
        write(self._log, FIRST, "us", "eu")
        if self.kind.before is not None:
            self.kind.before(self.place)
        said: list[str] = []
        effect: Effect | None = None
        try:
            with self._open() as publisher:
                publisher.publish_rows(_rows(range(10)))
                write(self._log, PENDING, "us", "eu")
                before = self._look()
                try:
                    self.kind.make(self.place)
                except Exception as error:
                    return Cell(Verdict.NONE, first_line(error))
                try:
                    after = self._look()
                except _Unreadable:
                    return _refuses(lambda: publisher.publish_rows(_rows(range(10, 15))))
                effect = Effect.of(before, after)
                said += self._try(publisher, range(10, 15))
        except FAULTS as error:  # it refused, or its last look did, when it was closed
            said.append(first_line(error))
        if effect is None:
            return right(f"it stopped before anybody did anything: {said}")
        stopped = bool(said)
        try:
            with self._open() as publisher:
                said += self._try(publisher, range(15, 20))
        except FAULTS as error:
            said.append(first_line(error))
        faults = self._faults(self._look())
        own = {one for one, rows in before.rows.items() if any(_key(row).startswith("live-") for row in rows)}
        if (taken := own & (effect.removed | effect.changed)) and not stopped:
            faults.append(f"{len(taken)} of its own messages are gone or changed, and it goes on")
        return loud(said[0], *faults) if said else right(*faults)

    def _try(self, publisher: Publisher, entries: range) -> list[str]:
        """Publish; why not, if it is refused, and then nothing may have been written."""
        before = self._look()
        try:
            publisher.publish_rows(_rows(entries))
        except FAULTS as error:
            if wrote := Effect.of(before, self._look()).new:
                raise AssertionError(f"it refused ({error}) and wrote {len(wrote)}") from None
            raise
        added = Effect.of(before, self._look())
        keys = sorted(_key(row) for one in added.new for row in self._seen[-1].rows[one])
        assert keys == sorted(row["key"] for row in _rows(entries)), f"it published {keys}"  # type: ignore[type-var]
        return []

    def _faults(self, now: Held) -> list[str]:
        """What must hold of the producer's messages in all that was ever seen of the log."""
        ever: dict[Id, set[Row]] = {}
        for seen in self._seen:
            for one, rows in seen.rows.items():
                ever.setdefault(one, set()).update(row for row in rows if _key(row).startswith("live-"))
        own = {one: rows for one, rows in ever.items() if rows}
        ledgers: dict[tuple[str, int], list[int]] = {}
        for origin, ledger, entry in own:
            ledgers.setdefault((origin, ledger), []).append(entry)
        faults = [f"a hole in {ledger}" for ledger, entries in ledgers.items() if sorted(entries) != list(range(len(entries)))]
        if used := [one for one, rows in own.items() if len({_key(row) for row in rows}) > 1]:
            faults.append(f"{len(used)} ids used twice (such as {min(used)})")
        keys = [_key(row) for one, rows in now.rows.items() if one in own for row in set(rows) if _key(row).startswith("live-")]
        if len(keys) > len(set(keys)):
            faults.append(f"{len(keys) - len(set(keys))} rows published twice")
        return faults


class _Unreadable(Exception):
    """No engine reads the log."""


def _key(row: Row) -> str:
    return str(row[_KEY] or "")


_KEY = 6
"""Place of the key among the columns of a message."""


def _refuses(publish: Callable[[], None]) -> Cell:
    try:
        publish()
    except FAULTS as error:
        return loud(first_line(error))
    return right("it publishes into a log that nobody can read")


def with_live_producers(spark: SparkSession, folder: Path, kinds: Sequence[Kind]) -> Mapping[Kind, Mapping[str, Cell]]:
    """A producer publishes, and looks at its log before each batch."""
    world = World(folder, (CLUSTER,), (), spark=spark)
    with mock.patch.object(timetable, "LOG_LOOK_S", 0.0):  # an interval only
        return cells(kinds, COLUMN, lambda kind: ProducersTopic(world, kind).cell())
