"""The broker of a cluster: all that writes its logs, in one Spark application (design section 8; Kafka's ReplicaManager).

It is the supervisor with works of every kind: publications, inbound links, folds of acknowledgements, and where version subscriptions may go
on. A configuration becomes groups of works in `work_groups.py`; what is reported of them is in `work_reports.py`.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from geo.config.placement import Placement
from geo.coordination.claiming import claim
from geo.coordination.heartbeat import restart_housekeeper
from geo.coordination.ownership import Ownership, giving_back
from geo.coordination.runners import broker_runner
from geo.errors import FencedError
from geo.faults import Tried, reason_of
from geo.fleet.bundle_states import Activity
from geo.fleet.config_file import ConfigFile
from geo.fleet.health_events import HealthEvents
from geo.fleet.member import Member
from geo.fleet.turns import LinkTurns
from geo.fleet.work_groups import WorkGroups
from geo.fleet.work_reports import BrokerReport, WorkKind, WorkReports, report_of
from geo.journal.cluster import connect
from geo.journal.event_rate import EventKind
from geo.journal.events import events_of
from geo.log.housekeeping import open_for_writing
from geo.log.publish_work import OneProducer
from geo.names import check_broker
from geo.progress import Counts, rates
from geo.reasons import Reason
from geo.replication.absent_regions import refuse_to_recreate
from geo.replication.link_topics import LinkTopics, note_link
from geo.session import require_delta
from geo.streams import timetable
from geo.streams.life import Life, State
from geo.streams.life_events import LifeEvents
from geo.streams.share import ALL, Share
from geo.streams.supervisor import Supervisor
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.streams.work import Group
from geo.text import counted, first_line

log = logging.getLogger(__name__)

TRIGGER = "1 second"


class Broker:
    """Runs everything that `cluster` needs; `run` until done or stopped.

    Topics that come later are found within ten seconds, a changed configuration file within ten (`reload`: at once). What depends on what changed is
    restarted, the rest goes on. A change of `num_fetchers` or `dispatch_rate` ends nothing. A configuration that is wrong is reported, and the one
    before goes on. One work that fails stops no other. With the available-now trigger it makes one pass of each kind, side by side: what a link
    replicates in it is folded by the next.
    """

    def __init__(
        self,
        spark: SparkSession,
        config_path: str,
        cluster: str,
        *,
        trigger: str = TRIGGER,
        take_over: bool = False,
        name: str | None = None,
        on_event: Callable[[BrokerReport], None] = lambda report: None,
        say: Callable[[str], None] = log.info,
        health: HealthEvents | None = None,
    ) -> None:
        """`health`: what has looked how all is before it began. `name`: of a broker that shares its cluster with others (`placement` in the
        configuration). It is unique among them; the host's if none is given. With the available-now trigger it shares with nobody. `on_event` gets
        what changes its state, `say` gets lines for people now and then.

        Raises ConfigError, UsageError for a cluster that is not in the configuration and for a name that can be none. Raises UnsafeError for a
        storage that several writers would break.
        """
        require_delta(spark)
        parse_trigger(trigger)
        self._file = ConfigFile(config_path)
        config = self._file.config
        self._cluster, self._trigger = cluster, trigger
        self._tables = open_for_writing(connect(spark, config.cluster(cluster)), config)
        refuse_to_recreate(config, self._tables)
        self._ownership: Ownership | None = None
        self._on_event, self._say = on_event, say
        self._member = None if config.placement is None or trigger == AVAILABLE_NOW else self._as_member(config.placement, name)
        self._reports = WorkReports()
        self._events, self._subject = events_of(self._tables), f"broker of {cluster}"
        self._life_events = LifeEvents(self._events)
        self._health = health or HealthEvents(cluster, self._events, say)
        self._status_at = self._asked_at = time.monotonic()
        self._counted: Counts = {}
        """Counts at its last line about how all is."""
        self._is_leaving = self._has_begun = False
        once = trigger == AVAILABLE_NOW
        share: Share = ALL if self._member is None else self._member
        self._groups = WorkGroups(spark, self._tables, trigger, share, take_over)
        self._parts = self._groups.made_of(config, [], config)
        self._supervisor = Supervisor[Any](
            [group for _, group in self._parts],
            once=once,
            on_change=self._changed,
            regroup=(lambda: None) if once else self._regroup,
            faults=(Exception,),  # also one of this program is the work's that has it, and the others go on
        )

    def stop(self) -> None:
        """Let running batches end, then stop; callable from a signal handler. One that shares its cluster first lets the others take
        over, for a minute at most; asked again, it stops at once."""
        if self._member is None or self._is_leaving:
            self._supervisor.stop()
        else:
            self._is_leaving = True
            self._member.hand_over()

    def reload(self) -> None:
        """Read the configuration's file at once, also one that was refused; callable from a signal handler."""
        self._file.hurry()

    def run(self) -> list[BrokerReport]:
        """Run until stopped, or with the available-now trigger until each kind has made its pass.

        What cannot continue is reported as FAILED, what another process runs, or what is away, as DELAYED; the rest goes on.
        Raises AlreadyOwnedError if the cluster has a broker already, FencedError once another one took its place.
        """
        of = "" if self._member is None else f" {self._member.name}"
        self._subject = f"broker{of} of {self._cluster}"
        try:
            reports = self._run_alone() if self._member is None else self._run_shared(self._member)
        except BaseException as error:
            self._tell(State.FAILED, code=reason_of(error), reason=first_line(error))
            raise
        if self._trigger != AVAILABLE_NOW:
            self._tell(State.STOPPED)
        kinds = list(WorkKind)
        return sorted(reports, key=lambda report: (kinds.index(report.kind), report.name))

    def _run_alone(self) -> list[BrokerReport]:
        (ownership,) = claim(self._tables, [[broker_runner(self._tables)]], take_over=self._groups.take_over)
        self._ownership, self._groups.take_over = ownership, False  # who begins later takes nobody's place
        with giving_back([ownership]):
            return self._run_all()

    def _tell(self, state: State, *, code: Reason | None = None, reason: str | None = None) -> None:
        """The event of its own beginning and end."""
        before = State.RUNNING.value if self._has_begun else None
        self._events.note(EventKind.OWNER, self._subject, state.value, from_state=before, code=code, reason=reason)

    def _run_all(self) -> list[BrokerReport]:
        if self._trigger != AVAILABLE_NOW:
            self._tell(State.RUNNING, reason=str(self._tables.me))
            self._has_begun = True
            groups = Counter(type(group) for _, group in self._parts)
            has = f"{counted(groups[OneProducer], 'publisher')} and {counted(groups[LinkTopics], 'link')} by {self._file}"
            self._say(f"{self._cluster}: {self._tables.me} runs {has}, and says each minute how all is")
        return [report_of(group, work, life) for group, work, life in self._supervisor.run()]

    # -- a cluster that is shared --------------------------------------------------------------------------------------

    def _as_member(self, placement: Placement, name: str | None) -> Member:
        name = socket.gethostname() if name is None else name
        check_broker(name)
        return Member(
            self._tables,
            name,
            placement,
            activities=self._activities,
            look_now=lambda: self._supervisor.look_now(),
            say=self._say,
        )

    def _run_shared(self, member: Member) -> list[BrokerReport]:
        """Runs as one of several. What it ran is its own no longer once it has ended."""
        take_over, self._groups.take_over = self._groups.take_over, False
        member.begin(take_over=take_over)
        try:
            member.start()
            reports = self._run_all()
            member.close()
        finally:
            member.abandon()
        return reports

    # -- what runs ---------------------------------------------------------------------------------------------------

    def _regroup(self) -> Sequence[Group[Any]] | None:
        """The groups of a changed configuration; None while it is as it was."""
        now = time.monotonic()
        if (seconds := now - self._status_at) >= timetable.STATUS_S:
            self._say(self.status(self._counted, seconds))
            self._status_at, self._counted = now, self.counts()
            self._health.look(self._file.config, self._reports.behind(), regions=self._reports.is_source_away())
        if self._member is not None:
            if self._member.fault is not None:
                raise self._member.fault
            if self._is_leaving and self._member.has_handed_over:
                self._supervisor.stop()
        if now - self._asked_at >= (timetable.OWNED_LOOK_S if self._tables.is_near else timetable.REMOTE_OWNED_LOOK_S):
            self._asked_at = now
            self._refuse_if_replaced()
        return self._take_up() if self._file.has_changed() else None

    def _take_up(self) -> Sequence[Group[Any]] | None:
        """The groups of the configuration as it is now; None if it is wrong, and what runs goes on."""
        with Tried() as tried:
            config = self._file.config
            parts = self._groups.made_of(config, self._parts, self._file.config)
            if self._member is not None and config.placement is not None:
                self._member.refuse(config.placement)
            restart_housekeeper(open_for_writing(self._tables, config))
        if tried.fault is not None:
            self._file.refuse()
            self._events.note(
                EventKind.CONFIG, str(self._file), "refused", code=reason_of(tried.fault), reason=first_line(tried.fault)
            )
            log.warning("%s: the changed configuration is refused, what runs goes on: %s", self._file, tried.fault)
            return None
        for _, group in parts:
            if isinstance(group, LinkTopics) and isinstance(group.turns, LinkTurns):
                link = config.link(group.link.source, group.link.target)
                group.turns.change(link.num_fetchers, partial(config.dispatch_rate, link))
        if self._member is not None and config.placement is not None:
            self._member.change(config.placement)
        self._reports.drop_all_but([group for _, group in self._parts])
        self._parts = parts
        self._file.take()
        self._events.note(EventKind.CONFIG, str(self._file), "taken")
        self._say(f"{self._file}: configuration reloaded")
        return [group for _, group in parts]

    def _refuse_if_replaced(self) -> None:
        """Raises FencedError if another broker took this one's place. A fault of the storage that may pass does."""
        with Tried(FencedError) as tried:
            if self._ownership is not None:
                self._ownership.refuse_if_replaced()
        if (fault := tried.fault) is not None:
            log.warning("broker of %s: whether it is still the only one cannot be seen now: %s", self._cluster, first_line(fault))

    # -- what is said of it --------------------------------------------------------------------------------------------

    def _changed(self, group: Group[Any], work: Any, life: Life) -> None:
        self._on_event(self._reports.note(group, work, life))
        if isinstance(group, LinkTopics):
            note_link(self._life_events, group, work, life)
        else:
            self._life_events.note_work(group, work, life)

    def _activities(self) -> list[Activity]:
        """Activities for each topic."""
        reports = [(work, report_of(group, work, life)) for group, work, life in self._supervisor.works()]
        return [Activity(work.topic, one.state, 0 if one.kind is WorkKind.FOLD else one.count) for work, one in reports]

    def counts(self) -> Counts:
        """Counts of all works since the start."""
        return self._reports.counts()

    def status(self, before: Counts = MappingProxyType({}), seconds: float = 0.0) -> str:
        """One line: how many works of each kind are in which state, and the counts of all since the start. With rates, if the counts were `before` so
        many seconds ago.
        """
        words = self._reports.words([group for _, group in self._parts])
        shared = "" if self._member is None else f"; {self._member.line}"
        return f"{self._cluster}: {words}{shared}; {rates(self.counts(), before, seconds)}"
