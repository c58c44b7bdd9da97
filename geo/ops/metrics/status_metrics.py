"""Metrics of all regions, of what `geo status` is made of (`geo.ops.status`). Pure: no Spark, clock or I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from geo.coordination.claims import Liveness
from geo.ops.backlog import Backlog
from geo.ops.metrics.exposition import Family, Series
from geo.ops.status import Status, StatusFacts, TopicOfLink

OF_TOPIC = ("source", "target", "topic")

BUILD_INFO = Family("geo_build_info", "info", "Version of the program that looked.", ("version",))
LOOKED_AT = Family("geo_status_timestamp_seconds", "gauge", "When the regions were looked at, by the clock of who looked.")
CLUSTER_UP = Family("geo_cluster_up", "gauge", "1: the tables of the region can be read; 0: they cannot.", ("geo_cluster",))
BROKER_UP = Family(
    "geo_broker_up", "gauge", "1: a broker of the region lives; 0: none does. Nothing: it cannot be read.", ("geo_cluster",)
)
LAST_SIGN = Family(
    "geo_owner_last_sign_timestamp_seconds",
    "gauge",
    "Last sign of life of a process that runs a region.",
    ("geo_cluster", "owner"),
)
LINK_TOPICS = Family("geo_link_topics", "gauge", "Topics of a link, by state.", ("source", "target", "state"))
LAG_MESSAGES = Family(
    "geo_link_lag_messages", "gauge", "Messages that have not crossed, at least. Nothing: nobody knows.", OF_TOPIC
)
LAG_SECONDS = Family(
    "geo_link_lag_seconds", "gauge", "Age of the oldest message that has not crossed. Nothing: nobody knows.", OF_TOPIC
)
UNHEALTHY = Family(
    "geo_link_unhealthy",
    "gauge",
    "Topics of which a person has to see to something, in the words of docs/health.md.",
    (*OF_TOPIC, "health", "reason"),
)
STATE_SINCE = Family(
    "geo_link_state_since_timestamp_seconds",
    "gauge",
    "Since when a topic of a link has had its health, where that is known.",
    (*OF_TOPIC, "health"),
)
UNREPLICATED_MESSAGES = Family(
    "geo_cluster_unreplicated_messages", "gauge", "Messages in no other region: lost if this one is lost now.", ("geo_cluster",)
)
UNREPLICATED_SECONDS = Family(
    "geo_cluster_unreplicated_seconds", "gauge", "Age of the oldest message that is in no other region.", ("geo_cluster",)
)
BACKLOG = Family(
    "geo_subscription_backlog_messages", "gauge", "Messages that are not acknowledged.", ("geo_cluster", "topic", "subscription")
)
REPEATS = Family(
    "geo_subscription_failover_repeats", "gauge", "Messages that a failover would deliver again.", (*OF_TOPIC, "subscription")
)
CLOCK_SKEW = Family(
    "geo_clock_skew_seconds", "gauge", "Seconds by which the clock of who looked is ahead of the storage's.", ("geo_cluster",)
)
VERIFIED_AT = Family("geo_verify_last_timestamp_seconds", "gauge", "When the last `geo verify` ended.", ("geo_cluster",))
VERIFY_CLEAN = Family("geo_verify_clean", "gauge", "1: the last `geo verify` found nothing.", ("geo_cluster",))
PROBLEMS = Family("geo_problems", "gauge", "Problems that `geo status` shows, by level.", ("level",))
DROPPED = Family("geo_metrics_dropped_series", "gauge", "Topics that have no series of their own, since there are too many.")

FAMILIES = (
    *(BUILD_INFO, LOOKED_AT, CLUSTER_UP, BROKER_UP, LAST_SIGN, LINK_TOPICS, LAG_MESSAGES, LAG_SECONDS, UNHEALTHY, STATE_SINCE),
    *(UNREPLICATED_MESSAGES, UNREPLICATED_SECONDS, BACKLOG, REPEATS, CLOCK_SKEW, VERIFIED_AT, VERIFY_CLEAN, PROBLEMS, DROPPED),
)

MOST_TOPICS = 10_000
"""Topics of links that have series of their own. Of more each link has the sum of its topics, as topic `*`."""


def status_metrics(facts: StatusFacts, status: Status, version: str, *, most: int = MOST_TOPICS) -> Sequence[Series]:
    """Makes all series of a look, of which `status` was made. What cannot be read, or is not known, has none: it is not 0."""
    made = {family: Series(family) for family in FAMILIES}
    made[BUILD_INFO].add(1, version)
    made[LOOKED_AT].add(status.at_us / 1e6)
    for cluster in facts.clusters:
        name = cluster.cluster
        made[CLUSTER_UP].add(int(cluster.unreadable is None), name)
        if cluster.unreadable is not None:
            continue
        brokers = [one for one in cluster.brokers if one.does == "broker"]
        made[BROKER_UP].add(int(any(one.holder.liveness is Liveness.LIVES for one in brokers)), name)
        for one in cluster.brokers:
            made[LAST_SIGN].add(_seconds(one.holder.last_us), name, one.name)
        made[CLOCK_SKEW].add(cluster.host_ahead_us / 1e6, name)
        if cluster.verified is not None:
            made[VERIFIED_AT].add(cluster.verified.at_us / 1e6, name)
            made[VERIFY_CLEAN].add(int(cluster.verified.clean), name)
    for line in status.clusters:
        made[UNREPLICATED_MESSAGES].add(line.lost.backlog.messages, line.facts.cluster)
        made[UNREPLICATED_SECONDS].add(line.lost.backlog.seconds, line.facts.cluster)
    for link in status.links:
        for state, count in link.states.items():
            made[LINK_TOPICS].add(count, link.source, link.target, state)
    for source, target, topic, backlog in _lags(facts.topics, most):
        made[LAG_MESSAGES].add(backlog.shown.messages, source, target, topic)
        made[LAG_SECONDS].add(backlog.shown.seconds, source, target, topic)
    for labels, count in Counter(_problems(facts, most)).items():
        made[UNHEALTHY].add(count, *labels)
    for of in facts.topics if len(facts.topics) <= most else ():
        made[STATE_SINCE].add(_seconds(of.finding.since_us), of.source, of.target, str(of.topic), of.finding.health.value)
    for subscription in facts.subscriptions:
        topic, named = str(subscription.topic), subscription.name
        made[BACKLOG].add(subscription.backlog, subscription.region, topic, named)
        for (source, target), count in subscription.repeats.items():
            made[REPEATS].add(count, source, target, topic, named)
    levels = Counter(one.level for one in status.problems)
    for level in ("warn", "error"):
        made[PROBLEMS].add(levels[level], level)
    made[DROPPED].add(len(facts.topics) if len(facts.topics) > most else 0)
    return list(made.values())


def _lags(topics: Sequence[TopicOfLink], most: int) -> Iterator[tuple[str, str, str, Backlog]]:
    if len(topics) <= most:
        yield from ((one.source, one.target, str(one.topic), one.backlog) for one in topics)
        return
    sums: dict[tuple[str, str], Backlog] = {}
    for one in topics:
        sums[one.source, one.target] = sums.get((one.source, one.target), Backlog()) + one.backlog
    yield from ((source, target, "*", backlog) for (source, target), backlog in sums.items())


def _problems(facts: StatusFacts, most: int) -> Iterator[tuple[str, str, str, str, str]]:
    for one in facts.topics:
        if one.finding.is_problem(facts.now_us):
            topic = str(one.topic) if len(facts.topics) <= most else "*"
            yield one.source, one.target, topic, one.finding.health.value, one.finding.code.value if one.finding.code else ""


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6
