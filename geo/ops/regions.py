"""All regions of a configuration, asked side by side, each within a time, by who looks at them. One that does not answer holds up nobody. Reads only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import NoReturn, TypeVar

from geo.asking import Late, ask, ask_all
from geo.config.cluster import Cluster
from geo.coordination.signs import take_hands
from geo.coordination.storage_clock import storage_now_us
from geo.delta.driver import Driver
from geo.delta.held_files import Below, as_listed
from geo.delta.mirror import may_be_old
from geo.disk import local_path
from geo.errors import OtherClusterError, RetryableError
from geo.faults import Tried
from geo.journal.cluster import ClusterTables
from geo.locations import storage_of
from geo.replication.absent_regions import refuse_gone
from geo.schemas import EVENTS, LINKS, OWNERS, REQUESTS, TOPICS, TableSchema

T = TypeVar("T")

ANSWERS_S, READ_S = 20.0, 300.0
"""Seconds that a region may take to answer at all: a store that refuses connections takes some fifteen seconds to be told. And
to tell the rest.
"""

BY_SPARK_S = 180.0
"""Seconds that a region may take to answer that Spark reads, which starts first."""

OF_LINKS = (TOPICS, LINKS, REQUESTS, OWNERS)
OF_ALL = (*OF_LINKS, EVENTS)
"""The system tables of which a picture is made."""


class _Away(ClusterTables):
    """A region that does not answer: who would read it is told so at once."""

    port = None

    def __init__(self, tables: ClusterTables, why: BaseException) -> None:
        # Of a wrong name only its own region is refused as unsafe; what it has to do with others is away.
        self._why = RetryableError(str(why), code=why.code) if isinstance(why, OtherClusterError) else why
        super().__init__(Driver(self._refuse, find_port=self._refuse), tables.cluster)

    def refuse_no_folder(self) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise self._why


class Regions:
    """One picture of regions. `given`, `clusters`: how each is reached; once somebody has asked, one that did not answer says so to whoever would read
    it in `clusters`. `reads`: the system tables that will be read, each once; none: those that are read are as they are then. `late`: as `ask_all`, of who makes
    one picture after the other."""

    def __init__(
        self, clusters: Mapping[str, ClusterTables], reads: Sequence[TableSchema] = (), late: Late | None = None
    ) -> None:
        self.given, self._reads = clusters, reads
        self.clusters = dict(clusters)
        self._late: Late = {} if late is None else late
        self._began = time.monotonic()
        self._below: dict[str, Below] = {}
        self._away: dict[str, BaseException] | None = None

    def ask(self, read: Callable[[ClusterTables], T]) -> dict[str, Future[T]]:
        """Asks each region: what `read` returns or raises; of one that does not answer at all, what is in its way. Each Future
        is done.
        """
        away = self._answer()
        asked = {name: partial(self._read, read, tables) for name, tables in self.clusters.items() if name not in away}
        answers = ask_all(asked, READ_S, self._late)
        for name, why in away.items():
            answers[name] = Future()
            answers[name].set_exception(why)
        return {name: answers[name] for name in self.clusters}

    def read_each(
        self, read: Callable[[ClusterTables], Iterable[T]], *, alone: bool = False
    ) -> tuple[list[T], dict[str, BaseException]]:
        """Collects what `read` finds in every region, all asked side by side and each within a time, and of each that cannot be
        read, why. Raises OtherClusterError of one under a wrong name, unless each tells of itself `alone`: what others say of
        it would be about another place.
        """
        found, unreadable = list[T](), dict[str, BaseException]()
        for name, answer in self.ask(lambda tables: list(read(tables))).items():
            with Tried(*(() if alone else (OtherClusterError,))) as tried:
                found += answer.result()
            if tried.fault is not None:
                unreadable[name] = tried.fault
        return found, unreadable

    def ask_places(self, read: Callable[[ClusterTables], T]) -> dict[str, Future[T]]:
        """Asks as `ask`, of where each region lies, whatever is in the way of reading it. One that has not answered is not
        asked again.
        """
        self._answer()
        return ask_all({name: partial(read, tables) for name, tables in self.given.items()}, READ_S, self._late)

    def within(self, what: str, read: Callable[[], T]) -> T:
        """Returns what `read` does, for a caller that reads regions by `clusters`: within the same time."""

        def seen() -> T:
            with self._as_seen():
                return read()

        self._answer()
        return ask_all({what: seen}, READ_S, self._late)[what].result()

    def _answer(self) -> Mapping[str, BaseException]:
        """Tells why those that are away are so, which is asked once."""
        if self._away is None:
            limit_s = BY_SPARK_S if any(_is_for_spark(one.cluster) for one in self.clusters.values()) else ANSWERS_S
            there, self._away = dict(self.clusters), {}
            asked = {name: partial(self._look, tables) for name, tables in there.items()}
            for name, answer in ask_all(asked, limit_s, self._late).items():
                with Tried() as tried:
                    answer.result()
                if tried.fault is not None:
                    self._away[name], self.clusters[name] = tried.fault, _Away(there[name], tried.fault)
        return self._away

    def _look(self, tables: ClusterTables) -> None:
        """Raises what is in the way of reading a region. On a store one list tells of all of its system tables, which are read side by side;
        whoever needs one takes what was read."""
        if self._reads and (port := tables.port) is not None:
            if tables.cluster.root is not None:
                below = self._below[tables.cluster.name] = port.all_below(f"{tables.cluster.root}/system")
                with Tried():  # the files themselves are there
                    take_hands(tables, port, below)
            ask("its time", partial(storage_now_us, tables, writes=False))  # whoever needs it waits for the rest of that
            # The list is an answer: what takes long to be read is left to who needs it.
            ask_all({schema.kind: partial(self._prefetch, tables, schema) for schema in self._reads}, ANSWERS_S / 2)
        with self._as_seen():
            refuse_gone(tables, self.clusters.values())

    def _prefetch(self, tables: ClusterTables, schema: TableSchema) -> None:
        with Tried(), self._as_seen():  # what is in its way is met by who needs it
            tables.journal(schema).newest()

    def _read(self, read: Callable[[ClusterTables], T], tables: ClusterTables) -> T:
        with self._as_seen():
            return read(tables)

    @contextmanager
    def _as_seen(self) -> Iterator[None]:
        """A small table on a store is as it was at the first look since the picture was begun. What an earlier one read counts for nothing."""
        if not self._reads:
            yield
            return
        with may_be_old(time.monotonic() - self._began), as_listed(tuple(self._below.values())):
            yield


def _is_for_spark(cluster: Cluster) -> bool:
    return cluster.root is None or (local_path(cluster.root) is None and storage_of(cluster.root) != "s3a")
