"""Status of all regions at once, for somebody who is woken at three. It says what is wrong, since when, what is lost if a region is lost now, and
how every link goes. Facts of the regions in, one value out. Pure: no Spark, clock or I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from geo.coordination.clock import CLOCK_TOLERANCE_US
from geo.names import Topic
from geo.ops.away import met_since, not_before
from geo.ops.backlog import UNKNOWN, Backlog, Trend, smaller, trend
from geo.ops.health import Finding, Health, limited
from geo.ops.looks.clocks import of_host
from geo.ops.problems import THIS_HOST, Noted, Problem, dated, fails, grouped, worst_first
from geo.ops.region_process import RegionProcess, fault_of_region
from geo.reasons import Level, Reason, Wrong
from geo.shown import Sections, Shown
from geo.text import counted
from geo.times import from_us, shown_time


@dataclass(frozen=True, slots=True)
class TopicOfLink:
    """A topic of a link, as it is now. `backlog`: UNKNOWN where its source cannot be read; `before`: what it was a while ago, None where
    the logs do not tell."""

    source: str
    target: str
    topic: Topic
    state: str
    finding: Finding
    backlog: Backlog = UNKNOWN
    before: Backlog | None = None
    risks: tuple[Finding, ...] = ()
    """Risks of its log in the source."""

    @property
    def link(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class Verified:
    """The last verify that ended: when, and whether it found nothing."""

    at_us: int
    clean: bool
    what: str


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """A subscription. `backlog`: messages that wait in `region`, where most is acknowledged; None: not known. By source and target: what moving it
    from one to the other would deliver again, and leave out. What is not there is not known, or cannot be."""

    topic: Topic
    name: str
    region: str
    backlog: int | None
    repeats: Mapping[tuple[str, str], int]
    skips: Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class OfVersions:
    """A subscription of a consumer in `region` that knows only versions of the log. `backlog`: versions that it has not finished; None: not known."""

    topic: Topic
    name: str
    region: str
    backlog: int | None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Facts of one region, by its tables. `unreadable`: why they say nothing; all else is empty then. `topics`: that it has,
    those with messages. `published`: messages a second, those that were published in it; None: not known.
    """

    cluster: str
    unreadable: Wrong | None = None
    brokers: tuple[RegionProcess, ...] = ()
    published: float | None = None
    verified: Verified | None = None
    topics: tuple[Topic, ...] = ()
    own: tuple[Topic, ...] = ()
    """Those into which somebody has published here, of those that no link is known to carry anywhere."""
    of_versions: tuple[OfVersions, ...] = ()
    host_ahead_us: int = 0
    """Microseconds by which this host's clock is ahead of its storage's; negative: behind."""
    risks: tuple[Finding, ...] = ()
    """Findings that do not stop anything yet."""


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """All that a status is made of. `now_us`: by this host's clock. `links`: source and target of each link of the configuration."""

    now_us: int
    clusters: Sequence[ClusterFacts]
    links: Sequence[tuple[str, str]]
    topics: Sequence[TopicOfLink] = ()
    subscriptions: Sequence[SubscriptionFacts] = ()
    noted: Noted = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IfLost:
    """Loss with a region that is lost at this moment: `backlog` is what no other region holds. `acks`: the acknowledgements
    that none holds; what they acknowledge is delivered again. `alone`: topics that no link carries anywhere; None: nobody
    knows.
    """

    backlog: Backlog
    acks: Backlog
    alone: int | None


@dataclass(frozen=True, slots=True)
class ClusterLine:
    """A region, and what would be lost with it."""

    facts: ClusterFacts
    lost: IfLost


@dataclass(frozen=True, slots=True)
class LinkLine:
    """Sum of all topics of a link, those of acknowledgements too."""

    source: str
    target: str
    states: Mapping[str, int]
    backlog: Backlog
    before: Backlog | None
    trend: Trend

    @property
    def link(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def topics(self) -> int:
        return sum(self.states.values())


@dataclass(frozen=True, slots=True)
class Moving:
    """Effect of a move of all subscriptions from one region to another: what it would deliver again, and leave out (None: not
    known).
    """

    source: str
    target: str
    repeats: int
    skips: int | None


@dataclass(frozen=True, slots=True)
class SubscriptionsLine:
    """`count`: of all, those of versions too. `behind`, `versions_behind`: those with a backlog of messages, and of versions, the largest first;
    `unknown`, `versions_unknown`: of how many nobody knows that."""

    count: int
    behind: Sequence[SubscriptionFacts]
    unknown: int
    failovers: Sequence[Moving]
    versions: int
    versions_behind: Sequence[OfVersions]
    versions_unknown: int


@dataclass(frozen=True, slots=True, repr=False)
class Status(Shown):
    """All that is shown, worst first."""

    at_us: int
    problems: Sequence[Problem]
    clusters: Sequence[ClusterLine]
    links: Sequence[LinkLine]
    subscriptions: SubscriptionsLine

    def __repr__(self) -> str:
        told = counted(len(self.problems), "problem") if self.problems else "no problem"
        lag = sum(link.backlog.messages or 0 for link in self.links)
        sure = "" if all(link.backlog.complete for link in self.links) else "at least "
        return f"<Status {told} at {shown_time(from_us(self.at_us))}, {sure}{counted(lag, 'message')} to cross {counted(len(self.links), 'link')}>"

    def sections(self) -> Sections:
        """Tables for people: links, clusters, problems, subscriptions. None: nobody knows."""
        return {
            "links": [
                {"link": one.link, "topics": one.topics, **one.states, "lag_messages": one.backlog.shown.messages, "lag_seconds": one.backlog.shown.seconds,
                 "trend": one.trend.value}
                for one in self.links
            ],
            "clusters": [
                {"cluster": one.facts.cluster, "run_by": [each.name for each in one.facts.brokers if not each.holder.is_dead],
                 "topics": None if one.facts.unreadable else len(one.facts.topics),
                 "published_per_second": one.facts.published, "lost_messages": one.lost.backlog.shown.messages, "cannot_be_read": str(one.facts.unreadable or "")}
                for one in self.clusters
            ],
            "problems": [
                {"level": one.level, "subject": one.first.subject, "topic": one.first.topic, "topics": one.count, "code": one.first.code and one.first.code.value,
                 "what": one.first.reason, "do": one.first.do}
                for one in self.problems
            ],
            "subscriptions behind": [
                {"topic": one.topic, "subscription": one.name, "cluster": one.region, "backlog": one.backlog} for one in self.subscriptions.behind
            ],
        }  # fmt: skip

    def fails(self, fail_on: Level) -> bool:
        return fails((one.level for one in self.problems), fail_on)


def status_of(facts: StatusFacts, max_lag_s: float | None = None) -> Status:
    """The status that these facts are. `max_lag_s`: a topic that is further behind is a problem, however it moves."""
    topics = [
        replace(one, finding=limited(one.finding, one.backlog.seconds, facts.now_us, max_lag_s, complete=one.backlog.complete))
        for one in facts.topics
    ]
    away = [one.cluster for one in facts.clusters if one.unreadable is not None]
    return Status(
        facts.now_us,
        _problems(topics, of_regions(replace(facts, topics=topics)), facts.now_us),
        [ClusterLine(one, _lost(one, facts.links, topics, away)) for one in facts.clusters],
        [_link(source, target, topics, away) for source, target in facts.links],
        _subscriptions(facts.subscriptions, [of for one in facts.clusters for of in one.of_versions]),
    )


def of_regions(facts: StatusFacts) -> list[Finding]:
    """The findings that are of no link, dated by what else tells since when."""
    of_all = (*(one.risks for one in facts.clusters), *(one.risks for one in facts.topics))
    risks = {(one.subject, one.code): one for of_one in of_all for one in of_one}
    found = [
        *(_of_cluster(one) for one in facts.clusters if one.unreadable is not None),
        *_who_runs(facts.clusters, facts.topics),
        *_wrong_clock(facts.clusters),
        *risks.values(),
    ]
    return [dated(_since_links(one, facts.topics), lambda: facts.noted) for one in found]


def _of_cluster(one: ClusterFacts) -> Finding:
    """Finding of a region that cannot be read."""
    assert one.unreadable is not None
    code, what, do = one.unreadable.code, f"{one.cluster} cannot be read: {one.unreadable.what}", one.unreadable.do
    return Finding(one.cluster, None, None, Health.AWAY, None, code, what, do)


def _wrong_clock(clusters: Iterable[ClusterFacts]) -> Iterator[Finding]:
    """Finding of this host, by whose clock everything here is told."""
    worst = max(clusters, key=lambda one: abs(one.host_ahead_us), default=None)
    if worst is not None and abs(worst.host_ahead_us) > CLOCK_TOLERANCE_US:
        what = of_host(f"cluster {worst.cluster}", worst.host_ahead_us)
        yield Finding(THIS_HOST, None, None, Health.STOPPED, None, what.code, what.what, what.fix)


def _who_runs(clusters: Iterable[ClusterFacts], topics: Sequence[TopicOfLink]) -> Iterator[Finding]:
    """Findings of regions whose processes died or are halted; not where a link of it tells that with the same verb."""
    told = {(one.target, one.finding.do) for one in topics}
    for one in clusters:
        found = fault_of_region(one.cluster, one.brokers)
        if found is not None and (one.cluster, found.do) not in told:
            yield found


def _since_links(found: Finding, topics: Iterable[TopicOfLink]) -> Finding:
    """The finding of a region that is away: since the first link from it has met that; else not before its links read it last."""
    if found.since_us is not None or found.health is not Health.AWAY:
        return found
    links = [one.finding for one in topics if one.source == found.subject and one.finding.health is Health.AWAY]
    there = max((one.there_us for one in links if one.there_us is not None), default=None)
    return not_before(replace(found, since_us=met_since(found.subject, links)), found.subject, there)


def _problems(topics: Sequence[TopicOfLink], findings: Sequence[Finding], now_us: int) -> list[Problem]:
    """Worst first. Of a link with a region that is away that one is said alone."""
    away = {one.subject for one in findings if one.health is Health.AWAY}
    of_links = grouped((one.finding for one in topics), now_us)
    told = [one for one in of_links if one.first.health is not Health.AWAY or away.isdisjoint((one.first.link or "").split("->"))]
    of_topics = [one for one in findings if one.topic is not None]
    of_others = [Problem(one) for one in findings if one.topic is None and one.is_problem(now_us)]
    return worst_first([*of_others, *grouped(of_topics, now_us), *told])


_SOURCE_LACKS = (Reason.SOURCE_GONE, Reason.SOURCE_RECREATED, Reason.SOURCE_RESTORED)


def _may_lack(topic: TopicOfLink) -> bool:
    """Tells whether the source may lack what the target has of it."""
    return topic.finding.code in _SOURCE_LACKS or (topic.finding.health is Health.AWAY and not topic.backlog.complete)


def _lost(one: ClusterFacts, links: Sequence[tuple[str, str]], topics: Iterable[TopicOfLink], away: Collection[str]) -> IfLost:
    """Sums what is held by one region alone. What one other region holds is not lost, however far the rest are behind."""
    least: dict[Topic, Backlog] = {}
    unsure = set[Topic]()
    for topic in topics:
        if topic.source == one.cluster:
            before = least.get(topic.topic)
            least[topic.topic] = topic.backlog if before is None else smaller(before, topic.backlog)
        elif topic.target == one.cluster and _may_lack(topic):
            unsure.add(topic.topic)
    if one.unreadable is not None:
        return IfLost(UNKNOWN, UNKNOWN, None)
    messages, acks = Backlog(), Backlog()
    for topic_name in least.keys() | unsure:
        backlog = least.get(topic_name, Backlog())
        backlog = backlog + UNKNOWN if topic_name in unsure else backlog
        if topic_name == topic_name.acks:
            acks += backlog
        else:
            messages += backlog
    not_carried = [topic for topic in one.own if topic not in least]
    goes_nowhere = any(topic not in least for topic in one.topics)
    if goes_nowhere and any(source == one.cluster and target in away for source, target in links):
        # Who cannot be read may hold them.
        return IfLost((messages + UNKNOWN).shown, (acks + UNKNOWN).shown, None if not_carried else 0)
    return IfLost(messages.shown, acks.shown, len(not_carried))


def _link(source: str, target: str, topics: Iterable[TopicOfLink], away: Collection[str]) -> LinkLine:
    own = [one for one in topics if (one.source, one.target) == (source, target)]
    if target in away or (source in away and not own):  # its rows are in its target; what it never brought its source knows
        return LinkLine(source, target, {}, UNKNOWN, None, Trend.UNKNOWN)
    states: dict[str, int] = {}
    backlog, before = Backlog(), Backlog()
    knows_before = True
    for one in own:
        states[one.state] = states.get(one.state, 0) + 1
        backlog += one.backlog
        knows_before &= one.before is not None
        before += one.before or Backlog()
    known = before if knows_before else None
    return LinkLine(source, target, states, backlog.shown, known and known.shown, trend(backlog, known))


def _subscriptions(found: Sequence[SubscriptionFacts], of_versions: Sequence[OfVersions]) -> SubscriptionsLine:
    failovers = []
    for way in sorted({way for one in found for way in one.repeats}):
        of_way = [one for one in found if way in one.repeats]
        knows = all(way in one.skips for one in of_way)
        skips = sum(one.skips[way] for one in of_way) if knows else None
        failovers.append(Moving(*way, sum(one.repeats[way] for one in of_way), skips))
    unknown, versions_unknown = (sum(one.backlog is None for one in of_kind) for of_kind in (found, of_versions))
    count, versions = len(found) + len(of_versions), len(of_versions)
    return SubscriptionsLine(count, _behind(found), unknown, failovers, versions, _behind(of_versions), versions_unknown)


_Kind = TypeVar("_Kind", SubscriptionFacts, OfVersions)


def _behind(found: Iterable[_Kind]) -> list[_Kind]:
    """Those with a backlog, the largest first."""
    return sorted((one for one in found if one.backlog), key=lambda one: (-(one.backlog or 0), one.topic, one.name))
