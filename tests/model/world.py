"""Clusters whose logs are lists, run by the real decisions: which ledger a row gets, what a link's start does, what crosses, what
a consumer has in hand. Only what reads and appends is a model; each effect is a point at which a run can stop for good.

A run is a generator that yields the name of the window it is in: whoever drives it may let it go on, kill it there, or let
another one take over and then continue it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from geo.delta.history import LOOK_BACK, CommitName
from geo.ids import LedgerId, MessageId
from geo.log.continuing import CommitsAbove, continued, fold, tail_of
from geo.log.ledgers import REBUILD_RECORD, LedgerKey, ProducerProgress, RowsOfKey, new_keys, plan
from geo.replication.gaps import gaps, steps
from geo.replication.link_start import Reconcile, StartFacts, begins, lacks, look_at_target, standing, start
from geo.replication.link_state import LinkRecord, LinkState
from geo.replication.rule import Rule, Verdict
from geo.replication.source_history import CompareLogs, Fault, brings, judge
from geo.streams.life import State
from geo.subscription.acks.ack_state import AckState, merged
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.consumer.delivery import Answer, Delivery
from tests.model.log import Log, Row, Rows, ends, extents
from tests.routed import RoutedRow, verdict

MESSAGES, ACKS = "messages", "acks"
STEP_ROWS = 3
"""Entries in a step of a reconcile: small, so that there are several."""

Run = Iterator[str]


class FailedError(Exception):
    """A link stopped for a person to look at."""


class ReplacedError(Exception):
    """Another runner took over."""


class AgainError(Exception):
    """A fault that the next start resolves by itself."""


@dataclass(frozen=True, slots=True)
class Link:
    source: str
    target: str
    origins: frozenset[str]

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(slots=True)
class Producer:
    """What `system/ledgers` says of one: exact up to `exact_to`."""

    progress: ProducerProgress = field(default_factory=ProducerProgress)
    exact_to: CommitName | None = None
    complete: bool = True


@dataclass(slots=True)
class Cluster:
    logs: dict[str, Log] = field(default_factory=lambda: {MESSAGES: Log(), ACKS: Log()})
    producers: dict[tuple[str, str], Producer] = field(default_factory=dict)
    rows: dict[tuple[str, str], LinkState] = field(default_factory=dict)
    """The newest row of each link into it, by source and topic."""
    tokens: dict[tuple[str, str], int] = field(default_factory=dict)
    """Who owns an origin's way into a topic: the newest claim."""

    def copy(self) -> Cluster:
        logs = {name: log.copy() for name, log in self.logs.items()}
        producers = {name: replace(one) for name, one in self.producers.items()}
        return Cluster(logs, producers, dict(self.rows), dict(self.tokens))


class World:
    """Clusters and the links between them. Time passes only by `now_us`."""

    def __init__(self, links: Mapping[str, tuple[str, ...]]) -> None:
        """`links`: `source->target` to the origins that cross."""
        self.links = {
            name: Link(source, target, frozenset(origins or (source,)))
            for name, origins in links.items()
            for source, _, target in [name.partition("->")]
        }
        names = sorted({cluster for link in self.links.values() for cluster in (link.source, link.target)})
        self.clusters = {name: Cluster() for name in names}
        self.now_us, self._ledgers, self._claims = 1_000_000, 0, 0
        self.consumers: dict[tuple[str, str], Delivery] = {}

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(self, cluster: str, rows: list[Row], *, topic: str = MESSAGES, producer: str = "p") -> Run:
        """One start of a producer and one batch: rows it has not published yet, each with where it goes to."""
        there, log = self.clusters[cluster], self.clusters[cluster].logs[topic]
        known = there.producers.get((producer, topic), Producer())
        progress = self._resumed(cluster, topic, producer, known)
        keys = [LedgerKey("", row.replicate_to) for row in rows]
        counted = [RowsOfKey(key, keys.count(key)) for key in dict.fromkeys(keys)]
        new = new_keys(progress, counted)
        ids = [self._next_ledger() for _ in new]
        end = (progress.sources[""].count if "" in progress.sources else 0) + len(rows)
        batch = plan(progress, producer, counted, {"": f'["{end}"]'}, self.now_us, ids)
        there.producers[producer, topic] = Producer(progress.opened(batch), log.name, complete=False)
        yield "publish-ledgers-opened"
        following = {span.key: MessageId(cluster, span.ledger_id, span.first) for span in batch.spans}
        made: dict[MessageId, Row] = {}
        for row, key in zip(rows, keys, strict=True):
            made[following[key]] = replace(row, publish_time_us=batch.publish_time_us)
            following[key] = replace(following[key], entry_id=following[key].entry_id + 1)
        yield "publish-before-append"
        log.append(made, batch.encode())
        yield "publish-after-append"
        there.producers[producer, topic] = Producer(progress.after(batch), log.name, complete=True)
        yield "publish-ends-recorded"

    def _resumed(self, cluster: str, topic: str, producer: str, known: Producer) -> ProducerProgress:
        log = self.clusters[cluster].logs[topic]
        tail = CommitsAbove()
        if known.exact_to is not None:
            first = known.exact_to.version + 1
            at = log.at(known.exact_to.version) if known.exact_to.version <= log.newest else None
            commits = log.between(first, log.newest)
            tail = tail_of(known.exact_to, log.table_id, log.newest, at, first, commits, producer)
        progress, _ = fold(known.progress, tail)
        own = {ledger.ledger_id: end for ledger, end in ends(log.rows).items() if ledger.origin == cluster}
        peers = {
            name: {ledger.ledger_id: end for ledger, end in ends(one.logs[topic].rows).items() if ledger.origin == cluster}
            for name, one in self.clusters.items()
            if name != cluster
        }
        return continued(progress, own, peers, tail, complete=known.complete)[0]

    def _next_ledger(self) -> int:
        self._ledgers += 1
        return self._ledgers

    # -- links -------------------------------------------------------------------------------------------------------

    def link(self, name: str, *, topic: str = MESSAGES, accept_source: bool = False) -> Run:
        """One run of a link: own its origins' ways, start, and bring what there is, a commit a turn. Raises FailedError,
        AgainError and ReplacedError."""
        link = self.links[name]
        source, target, there = self._log(link.source, topic), self._log(link.target, topic), self.clusters[link.target]
        rule = Rule(link.source, link.target, link.origins)
        self._claims += 1
        claim = self._claims
        for origin in link.origins:
            there.tokens[origin, topic] = claim
        yield "link-claimed"
        run = _LinkRun(self, link, topic, rule, claim)
        recorded = there.rows.get((link.source, topic))
        looked = None
        if recorded is not None and recorded.target is not None:
            commits = target().between(recorded.target.version, target().newest)
            looked = look_at_target(link.name, recorded.target, target().table_id, target().newest, commits)
        stands = standing(recorded, looked, link.name, rule.origins)
        judged = None if stands.cursor is None else run.judged(stands.cursor, source().newest)
        decision = start(StartFacts(recorded, stands, judged, accept_source=accept_source))
        if isinstance(decision, Fault):
            run.record(State.FAILED, stands.cursor, recorded.target if recorded else None, decision.what)
            raise FailedError(decision.what)
        if isinstance(decision, Reconcile):
            cursor = source().name
            if begins(recorded):
                run.record(State.RUNNING, None, None)
            pinned = run.made_for = target().name
            for step in run.missing():
                yield "link-before-reconcile-append"
                run.append(step, cursor, reconciling=True)
                yield "link-after-reconcile-append"
            run.record(State.STOPPED, cursor, run.still_there(pinned))
        else:
            assert looked is not None
            cursor, run.made_for = decision.cursor, looked.newest
            if recorded is not None and cursor != recorded.cursor:
                run.record(State.RUNNING, cursor, looked.newest)
                yield "link-start-recorded"
        while cursor.version < source().newest:
            last = cursor.version + 1
            fault = run.judged(cursor, last)
            if isinstance(fault, Fault):
                run.record(State.FAILED, cursor, None, fault.what)
                raise FailedError(fault.what)
            if fault is not None:
                raise AgainError(fault.why)
            (commit,) = source().between(last, last)
            after = CommitName.of(source().table_id, commit)
            if brings(commit, rule.origins, link.source):
                crossing = run.crossing(source().brought(last, last))
                yield "link-before-append"
                run.append(crossing, after)
                yield "link-after-append"
            cursor = after
        run.refuse_if_replaced()
        run.record(State.STOPPED, cursor, target().name)
        yield "link-state-recorded"

    def _log(self, cluster: str, topic: str) -> Callable[[], Log]:
        """It may be another one at the next look."""
        return lambda: self.clusters[cluster].logs[topic]

    # -- consumers ---------------------------------------------------------------------------------------------------

    def known(self, cluster: str, subscription: str) -> AckState:
        """What the records in a cluster say of a subscription."""
        rows = self.clusters[cluster].logs[ACKS].rows.values()
        return merged(row.payload[1] for row in rows if row.payload[0] == subscription)

    def consumer(self, cluster: str, subscription: str) -> Delivery:
        """The one that runs there, once it knows what its cluster does."""
        one = self.consumers.setdefault((cluster, subscription), Delivery(self.known(cluster, subscription), 60.0))
        one.received(self.known(cluster, subscription))
        return one

    def consume(self, cluster: str, subscription: str, keep: frozenset[MessageId] = frozenset()) -> tuple[MessageSet, Run]:
        """Deliver what is wanted, acknowledge all but `keep`. Returns what was delivered, and the run that publishes it."""
        one = self.consumer(cluster, subscription)
        delivered = one.wanted(MessageSet.of(self.clusters[cluster].logs[MESSAGES].rows), MessageSet())
        one.hand_out(delivered)
        one.settle(delivered, Answer(delivered - MessageSet.of(keep)), one.state.epoch, self.now_us / 1e6)
        return delivered, self.flush(cluster, subscription)

    def flush(self, cluster: str, subscription: str) -> Run:
        yield "acks-before-flush"
        news = self.consumers[cluster, subscription].take_unpublished()
        if news is not None:
            yield from self.publish(cluster, [Row(payload=(subscription, news))], topic=ACKS, producer=f"acks-{subscription}")

    def stop_consumer(self, cluster: str, subscription: str) -> None:
        """It is killed: what it did not publish is forgotten."""
        self.consumers.pop((cluster, subscription), None)

    # -- faults ------------------------------------------------------------------------------------------------------

    def rebuild(self, cluster: str, source: str) -> None:
        """A region gets its own messages back from a peer."""
        there, log = self.clusters[source].logs[MESSAGES].rows, self.clusters[cluster].logs[MESSAGES]
        log.append({m: row for m, row in there.items() if m.origin == cluster and m not in log.rows}, REBUILD_RECORD)

    # -- what must be ------------------------------------------------------------------------------------------------

    def due(self, link: Link, topic: str = MESSAGES) -> Rows:
        """What of its source's log must be in its target."""
        rule = Rule(link.source, link.target, link.origins)
        return {m: row for m, row in self.clusters[link.source].logs[topic].rows.items() if _crosses(rule, m, row, self.now_us)}

    def lacks(self, link: Link, topic: str = MESSAGES) -> list[str]:
        there = self.clusters[link.target].logs[topic].rows
        return sorted(str(m) for m, row in self.due(link, topic).items() if there.get(m) != row)


class _LinkRun:
    """What one run of a link reads and appends."""

    def __init__(self, world: World, link: Link, topic: str, rule: Rule, claim: int) -> None:
        self._world, self._link, self._topic, self._rule, self._claim = world, link, topic, rule, claim
        self.made_for = self._target.name
        """The commit of the target that was looked at, or compared with."""

    @property
    def _source(self) -> Log:
        return self._world.clusters[self._link.source].logs[self._topic]

    @property
    def _target(self) -> Log:
        return self._world.clusters[self._link.target].logs[self._topic]

    def judged(self, cursor: CommitName, last: int) -> Fault | CompareLogs | None:
        before = self._source.between(cursor.version - LOOK_BACK, min(cursor.version, self._source.newest))
        since = self._source.between(cursor.version + 1, last)
        return judge(cursor, self._source.table_id, last, before, since, self._rule.origins)

    def crossing(self, rows: Rows) -> Rows:
        return {m: row for m, row in rows.items() if _crosses(self._rule, m, row, self._world.now_us)}

    def missing(self) -> list[Rows]:
        """The steps of a reconcile."""
        source, target = (self.crossing(log.rows) for log in (self._source, self._target))
        found: list[Rows] = []
        for step in steps(gaps(extents(source), extents(target)), STEP_ROWS):
            wanted = {
                m: row
                for m, row in source.items()
                for gap in step
                if gap.ledger == LedgerId(m.origin, m.ledger_id) and gap.first <= m.entry_id <= gap.last and m not in target
            }
            found.append(wanted)
        return found

    def refuse_if_replaced(self) -> None:
        tokens = self._world.clusters[self._link.target].tokens
        if any(tokens[origin, self._topic] != self._claim for origin in self._link.origins):
            raise ReplacedError(self._link.name)

    def append(self, rows: Rows, cursor: CommitName, *, reconciling: bool = False) -> None:
        self.refuse_if_replaced()
        origins, token = tuple(sorted(self._rule.origins)), str(self._claim)
        record = LinkRecord(self._link.name, origins, self._topic, cursor, self._claim, token, reconciling=reconciling)
        commits = self._target.between(self.made_for.version, self._target.newest)
        looked = look_at_target(self._link.name, self.made_for, self._target.table_id, self._target.newest, commits)
        if looked.why is not None:
            raise AgainError(looked.why)
        self._target.append(rows, record.encode())

    def still_there(self, since: CommitName) -> CommitName:
        commits = self._target.between(since.version, self._target.newest)
        looked = look_at_target(self._link.name, since, self._target.table_id, self._target.newest, commits)
        own = frozenset(name for name, record in looked.by_origin.items() if record.token == str(self._claim))
        if (why := lacks(looked, self._link.name, self._rule.origins - own)) is not None:
            raise AgainError(why)
        return looked.newest

    def record(self, state: State, cursor: CommitName | None, target: CommitName | None, reason: str | None = None) -> None:
        """A row of a lower generation does not count."""
        rows = self._world.clusters[self._link.target].rows
        before = rows.get((self._link.source, self._topic))
        if before is None or before.generation <= self._claim:
            rows[self._link.source, self._topic] = LinkState(
                self._link.source, self._topic, state, reason, self._claim, tuple(sorted(self._rule.origins)), cursor, target,
                {}, 0, 0 if before is None else before.sequence + 1,
            )  # fmt: skip


def _crosses(rule: Rule, message: MessageId, row: Row, now_us: int) -> bool:
    routed = RoutedRow(message.origin, row.replicate_to, None, row.publish_time_us, message.ledger_id, message.entry_id)
    return verdict(rule, routed, now_us) is Verdict.REPLICATE


def finish(run: Run) -> None:
    """Let a run come to its end."""
    for _ in run:
        pass
