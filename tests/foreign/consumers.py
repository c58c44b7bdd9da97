"""Foreign commits below a consumer that runs: each message is delivered once, in the order of its ledger, or the run says why not."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from geo.faults import FAULTS
from geo.log.topics import create_topic
from geo.names import Topic
from geo.subscription.consumer import Subscription
from geo.text import first_line
from tests.foreign.held import Held, Id, held, ids_of
from tests.foreign.place import FIRST, LATER, PENDING, Kind, Place, write
from tests.foreign.verdicts import Cell, Verdict, cells, loud, right
from tests.world import World

CLUSTER, COLUMN = "us", "consumer"

CONSUMERS = logging.getLogger("geo.subscription.consumer.run")
"""In which a consumer says that it cannot go on yet; after a while it ends with what is in its way."""

LIMIT_S, MORE_S = 60.0, 1.0
"""How long messages are waited for, and how long after them something may come that must not."""


class _Said(logging.Handler):
    """The last warning that was logged."""

    last: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.last = record.getMessage()


class ConsumersTopic:
    """The topic of a kind, with messages of two regions and a consumer that runs."""

    def __init__(self, world: World, kind: Kind) -> None:
        self.kind, self._world = kind, world
        self.topic = Topic.parse(f"persistent://foreign/consumer/{kind.slug}")
        self._log = world.log(CLUSTER, self.topic)
        self.place = Place(world.spark, self._log.name)
        self._said = _Said()
        self.given: list[tuple[Id, str]] = []
        """What the function was given: ids and keys, in their order."""
        self.consumer = Subscription(world.spark, self.topic, "billing", world.config, CLUSTER)

    def _function(self, messages: DataFrame) -> DataFrame:
        rows = messages.toArrow()
        self.given += zip(ids_of(rows), map(str, rows["key"].to_pylist() if "key" in rows.column_names else ()), strict=False)
        return messages

    def _until_given(self, wanted: set[Id]) -> None:
        """Raises what ended the consumer."""
        self._until(lambda: wanted <= {one for one, _ in self.given})

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done() and time.monotonic() < deadline:
            self.consumer.await_termination(0.1)

    def cell(self) -> Cell:
        create_topic(self._world.tables(CLUSTER), self.topic)
        write(self._log, FIRST, "us", "eu")
        if self.kind.before is not None:
            self.kind.before(self.place)
        before = held(self.place)
        assert before is not None
        self.consumer.start(self._function, trigger="250 ms")
        CONSUMERS.addHandler(self._said)
        try:
            self._until_given(before.ids)
            write(self._log, PENDING, "us", "eu")
            try:
                self.kind.make(self.place)
            except Exception as error:
                return Cell(Verdict.NONE, first_line(error))
            try:
                write(self._log, LATER, "us", "eu")
            except Exception:  # the log takes no rows of ours any more
                time.sleep(MORE_S)
            after = held(self.place)
            if after is not None:
                self._until_given(after.ids)
            else:
                self._until(lambda: self._said.last is not None)
            time.sleep(MORE_S)
            self.consumer.await_termination(0)
        except FAULTS as error:
            return loud(first_line(error))
        finally:
            CONSUMERS.removeHandler(self._said)
            self.consumer.stop()
            self._end()
        if self._said.last is not None and (after is None or after.ids - {one for one, _ in self.given}):
            return loud(self._said.last)
        if after is None:
            return right("a log that cannot be read is passed over")
        return right(*self._faults(before, after))

    def _end(self) -> None:
        try:
            self.consumer.await_termination(LIMIT_S)
        except FAULTS:
            return  # it was told above

    def _faults(self, before: Held, after: Held) -> list[str]:
        counts = Counter(one for one, _ in self.given)
        faults = []
        if missing := after.ids - counts.keys():
            faults.append(f"{len(missing)} not delivered (such as {min(missing)})")
        if twice := [one for one, count in counts.items() if count > 1]:
            faults.append(f"{len(twice)} delivered more than once (such as {min(twice)})")
        ends: dict[tuple[str, int], int] = {}
        # What somebody brings back that was not there when the consumer began comes when it comes.
        in_order = (one for one, _ in self.given if one in before.ids or one[2] >= PENDING.start)
        for origin, ledger, entry in dict.fromkeys(in_order):
            if entry < ends.get((origin, ledger), -1):
                faults.append(f"{origin}:{ledger}:{entry} behind {ends[origin, ledger]}")
            ends[origin, ledger] = entry
        return faults


def with_consumers(spark: SparkSession, folder: Path, kinds: Sequence[Kind]) -> Mapping[Kind, Mapping[str, Cell]]:
    """A consumer has had all there is, and waits for more."""
    world = World(folder, (CLUSTER,), (), spark=spark)
    return cells(kinds, COLUMN, lambda kind: ConsumersTopic(world, kind).cell())
