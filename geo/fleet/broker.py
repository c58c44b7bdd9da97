"""The broker of a cluster: all that writes its logs, in one Spark application (design section 8; Kafka's ReplicaManager).

It is the supervisor with works of every kind: the publications of the configuration, the inbound links, the folding of
acknowledgements. What runs is decided here; how, by each kind's own room.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from geo.config import load
from geo.config.model import Config, Link, Publication
from geo.errors import GeoError, UsageError
from geo.faults import FAULTS, session_is_gone
from geo.log.housekeeping import open_for_writing
from geo.log.publish import publish_source
from geo.log.publish_work import OneProducer, PublishWork
from geo.names import ALL_TOPICS
from geo.replication.link_work import LinkWork
from geo.replication.replicator import LinkTopics
from geo.session import require_delta
from geo.streams.life import Life, State
from geo.streams.supervisor import Supervisor
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.streams.work import Group
from geo.subscription.acks.fold_query import NamespaceFold, Namespaces
from geo.tables.cluster import connect
from geo.tables.ownership import Ownership, broker_runner, claim, release
from geo.text import counted

log = logging.getLogger(__name__)

TRIGGER = "1 second"

FOLD_TRIGGER = "30 seconds"
"""Nobody waits for a fold: consumers read the records that are not folded yet."""

CONFIG_LOOK_S = 5.0
"""How often the configuration's file is read: a change counts without a restart."""

STATUS_S = 60.0
"""Between two lines that say how all is."""

KINDS = ("publisher", "link", "fold")


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """What became of one piece of work. `kind`: one of KINDS. `name`: `us->eu persistent://…`, `persistent://… in eu by default`,
    `persistent://…/__acks`; of a group that cannot be asked what it has, the group's. `messages`: how many it has brought, of a
    fold how many cursors it has written."""

    kind: str
    name: str
    state: State
    reason: str | None
    messages: int


class Broker:
    """Runs everything that `cluster` needs; `run` until done or stopped.

    Topics that come later are found within ten seconds, a changed configuration file within five (`reload`: at once): what it
    changes is ended and begun anew, the rest goes on. A configuration that is wrong is reported, and the one before goes on. One
    work that fails stops no other. With the available-now trigger it makes one pass over what there is.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        cluster: str,
        *,
        trigger: str = TRIGGER,
        take_over: bool = False,
        on_event: Callable[[BrokerReport], None] = lambda report: None,
        say: Callable[[str], None] = log.info,
    ) -> None:
        """`config`: the file it was read from is read anew. `on_event` is told what changes its state, `say` gets lines for people
        now and then. Raises UsageError for a cluster that is not in the configuration, UnsafeError for a storage that several
        writers would break."""
        require_delta(spark)
        parse_trigger(trigger)
        self._path = config.path
        self._text = _read(self._path)
        config = load(self._path)  # it may have changed while Spark started
        self._spark, self._cluster, self._trigger, self._take_over = spark, cluster, trigger, take_over
        self._tables = open_for_writing(connect(spark, config.cluster(cluster)), config)
        self._ownership: Ownership | None = None
        self._on_event, self._say = on_event, say
        self._parts: list[tuple[object, Group[Any]]] = []
        """What each group was made from, and the group."""
        self._lives: dict[tuple[int, int], tuple[Group[Any], Any, Life]] = {}
        self._changing = threading.Lock()
        self._look_at = self._status_at = time.monotonic()
        self._hurry = threading.Event()
        once = trigger == AVAILABLE_NOW
        groups = self._groups(config)
        self._supervisor = Supervisor[Any](
            groups, once=once, on_change=self._changed, regroup=(lambda: None) if once else self._regroup
        )

    def stop(self) -> None:
        """Let running batches end, then stop; callable from a signal handler."""
        self._supervisor.stop()

    def reload(self) -> None:
        """Read the configuration's file at once; callable from a signal handler."""
        self._hurry.set()

    def run(self) -> list[BrokerReport]:
        """Run until stopped, or with the available-now trigger until all there is has been published, has crossed and is folded.

        What cannot continue is reported as FAILED, what another process runs, or what is away, as DELAYED; the rest goes on.
        Raises AlreadyOwnedError if the cluster has a broker already, FencedError once another one took its place.
        """
        (ownership,) = claim(self._tables, [[broker_runner(self._tables)]], take_over=self._take_over)
        self._ownership, self._take_over = ownership, False  # who begins later takes nobody's place
        try:
            reports = [report_of(group, work, life) for group, work, life in self._supervisor.run()]
            release([ownership])
        finally:
            ownership.abandon()
        return sorted(reports, key=lambda report: (KINDS.index(report.kind), report.name))

    # -- what runs ---------------------------------------------------------------------------------------------------

    def _groups(self, config: Config) -> list[Group[Any]]:
        """The groups of a configuration; those that it does not change are those that run."""
        if config.cluster(self._cluster) != self._tables.cluster:
            raise UsageError(f"cluster {self._cluster} itself is another one there: start its broker again.")
        wanted: list[tuple[object, Callable[[], Group[Any]]]] = [
            ((one, config.kafka.get(one.kafka or "")), partial(self._publisher, config, one))
            for one in config.published_in(self._cluster)
        ]
        wanted += [
            ((link, config.cluster(link.source), config.policies, config.links), partial(self._link, config, link))
            for link in config.inbound(self._cluster)
        ]
        wanted.append((config.policies, partial(self._folds, config)))
        self._parts = parts = [(made_from, self._running(made_from) or make()) for made_from, make in wanted]
        groups = [group for _, group in parts]
        with self._changing:
            self._lives = {key: told for key, told in self._lives.items() if any(told[0] is group for group in groups)}
        return groups

    def _running(self, made_from: object) -> Group[Any] | None:
        return next((group for before, group in self._parts if before == made_from), None)

    def _publisher(self, config: Config, what: Publication) -> OneProducer:
        begin = partial(publish_source, self._spark, what, config=config, trigger=self._trigger)
        once = self._trigger == AVAILABLE_NOW
        return OneProducer(
            PublishWork(lambda take_over: begin(take_over=take_over), what.name, once=once, take_over=self._take_over)
        )

    def _link(self, config: Config, link: Link) -> LinkTopics:
        source, options = connect(self._spark, config.cluster(link.source)), parse_trigger(self._trigger)
        return LinkTopics(self._tables, source, config, link, ALL_TOPICS, options, self._take_over)

    def _folds(self, config: Config) -> Namespaces:
        trigger = self._trigger if self._trigger == AVAILABLE_NOW else FOLD_TRIGGER
        return Namespaces(self._tables, config, trigger, take_over=self._take_over)

    def _regroup(self) -> Sequence[Group[Any]] | None:
        """The groups of a changed configuration; None while it is as it was."""
        now = time.monotonic()
        if now - self._status_at >= STATUS_S:
            self._status_at = now
            self._say(self.status())
        if now - self._look_at < CONFIG_LOOK_S and not self._hurry.is_set():
            return None
        self._look_at = now
        self._hurry.clear()
        if self._ownership is not None:
            self._ownership.refuse_if_replaced()
        text = _read(self._path)
        if text == self._text or text is None:  # a file that is being replaced is there in a moment
            return None
        self._text = text
        try:
            groups = self._groups(load(self._path))
        except (UsageError, GeoError, *FAULTS) as error:
            if session_is_gone(error):
                raise
            self._say(f"{self._path} has changed and is not taken, what runs goes on: {error}")
            return None
        self._say(f"{self._path} has changed and is taken: {self.status()}")
        return groups

    # -- what is said of it --------------------------------------------------------------------------------------------

    def _changed(self, group: Group[Any], work: Any, life: Life) -> None:
        with self._changing:
            self._lives[id(group), id(work)] = group, work, life
        self._on_event(report_of(group, work, life))

    def status(self) -> str:
        """One line: how many works of each kind are in which state, and what they have brought so far."""
        with self._changing:
            told = [report_of(*one) for one in self._lives.values()]
        counts: Counter[tuple[str, State]] = Counter((r.kind, r.state) for r in told if r.state is not State.STOPPED)
        states = [
            f"{kind}s " + ", ".join(f"{counts[kind, state]} {state.value}" for state in State if counts[kind, state])
            for kind in KINDS
            if any(of == kind for of, _ in counts)
        ]
        published, replicated = (sum(r.messages for r in told if r.kind == kind) for kind in ("publisher", "link"))
        brought = f"{counted(published, 'message')} published, {replicated:,} replicated"
        return f"{self._cluster}: {'; '.join(states) or 'nothing runs yet'}; {brought}"


def report_of(group: Group[Any], work: Any, life: Life) -> BrokerReport:
    """What is said of a piece of work, or of a group that cannot be asked what it has."""
    reason = life.reason
    match group, work:
        case OneProducer(), _:
            return BrokerReport("publisher", str(group), life.state, reason, group.work.published.rows)
        case LinkTopics(), LinkWork():
            return BrokerReport("link", str(work), life.state, reason, work.link.replicated)
        case LinkTopics(), _:
            return BrokerReport("link", group.link.name, life.state, reason, 0)
        case _, NamespaceFold():
            return BrokerReport("fold", str(work.acks), life.state, reason, work.done.cursors)
    return BrokerReport("fold", str(group), life.state, reason, 0)


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
