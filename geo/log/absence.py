"""Messages for regions and topics that are mentioned somewhere and are not there, each with its remedy. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from geo.log.kept_policies import clusters_of, restored
from geo.names import Topic
from geo.reasons import Reason, Wrong

NEW_FOR_US = 600 * 1_000_000
"""Microseconds after the first topic came that links are to replicate, for which a region that is empty is new. It takes so long to start the
broker of the second region after that of the first.
"""


class KnownTopic(Protocol):
    """A topic of a registry, or that it lacks (geo.log.topics.Registered)."""

    @property
    def topic(self) -> Topic: ...
    @property
    def is_unknown(self) -> bool: ...
    @property
    def is_unclear(self) -> bool: ...


def gone_region(name: str, place: str, readers: Sequence[str]) -> Wrong:
    """Describe a region in which nothing is registered, though the links of others (`readers`) have read it."""
    what = f"nothing is registered at {place}, and {', '.join(readers)} replicated from it: it was moved away, or its place in the configuration is wrong"
    do = (
        "Put its folder back (its system/topics too), or correct the configuration. If it is lost for good: geo rebuild --cluster "
        f"{name} --from {readers[0]}, or geo clusters remove {name}"
    )
    return Wrong(Reason.SOURCE_GONE, what, do)


def emptied_region(name: str, place: str, readers: Sequence[str]) -> Wrong:
    """Describe, as `gone_region`, a region that has logs of topics, though its registry names none."""
    what = (
        f"nothing is registered at {place}, though logs of topics are there, and {', '.join(readers)} replicated from it: its system/topics was "
        "emptied, or another one was put in its place"
    )
    do = f"Put it back. If there is no copy of it, end what publishes there and run: geo rebuild --cluster {name} --from {readers[0]}"
    return Wrong(Reason.REGISTRY_EMPTY, what, do)


def log_gone(log: str, name: str, topic: Topic) -> Wrong:
    """Describe a topic of a registry whose log is not there."""
    of = f"--cluster {name} --topic {topic}"
    do = f"Put it back. If nobody is to have it: geo topics create {of}, then geo topics delete {of}"
    return Wrong(Reason.SOURCE_GONE, f"its log {log} is not there", do)


def is_new(topic_since_us: int, now_us: int) -> bool:
    """True if a topic that a link is to replicate came into its source so lately that its target may be new and empty."""
    return now_us - topic_since_us < NEW_FOR_US


def nothing_in_target(name: str, place: str) -> Wrong:
    """Describe a region in which nothing is registered, though links are to replicate something into it. Nobody else would tell if it was there: a
    source does not know its readers.
    """
    what = f"nothing is registered at {place} of {name}: no link into it has ever run there, or it was moved away"
    do = (
        f"If it is new, start it: geo broker --cluster {name}, or geo replicate --cluster {name}. If not, put its folder back (its system folder too), or correct its "
        "place in the configuration, before anything runs there"
    )
    return Wrong(Reason.TARGET_GONE, what, do)


def log_gone_in_target(topic: str, source: str, target: str) -> Wrong:
    """Describe a topic whose log in a target is not there, though a link has written it."""
    do = (
        "Put it back. Without it the next start of the link makes it anew, and brings what its source still has: what was published in "
        f"{target} comes back by this alone: geo rebuild --cluster {target} --from {source}"
    )
    return Wrong(Reason.TARGET_GONE, f"the log of {topic} in {target} is not there, though {source}->{target} has written it", do)


def lost_by_registry(one: KnownTopic, cluster: str, registry: str) -> Wrong | None:
    """Describe a topic that the registry of its cluster lacks, or lost once.

    None: neither is so.
    """
    clear = f"Say where it may go, which registers it too: geo topics set --cluster {cluster} --topic {one.topic} --replication-clusters {cluster},…, or --inherit"
    only = "only links that have carried it do"
    if one.is_unknown:
        what = f"{registry} of {cluster} lacks it, though its log is there: an older copy was put back"
        again = f"Whoever publishes into it, or replicates into {cluster}, registers it again"
        if one.is_unclear:
            return Wrong(Reason.REGISTRY_EMPTY, f"{what}; its log does not say where it may go: {only}", f"{again}. {clear}")
        return Wrong(Reason.REGISTRY_EMPTY, what, f"{again}, as its log says")
    if one.is_unclear:
        what = f"{registry} of {cluster} lost it once, and its log did not say where it may go: {only}"
        return Wrong(Reason.REGISTRY_EMPTY, what, clear)
    return None


def unlike_log(topic: Topic, kept: str | None, told: str | None, cluster: str) -> Wrong | None:
    """Describe a topic whose policies in the registry (as a log would keep them) are not those that its log has.

    None: they are, or one of both does not say.
    """
    if kept is None or told is None or kept == told:
        return None
    registry, log = (", ".join(clusters_of(restored(one)) or ()) or "as configured" for one in (kept, told))
    what = (
        f"by the registry of {cluster} its replication clusters are: {registry}, by its log: {log}; an older copy of system/topics was put back, or "
        "who set them died; links carry what neither forbids"
    )
    do = f"Say it again: geo topics set --cluster {cluster} --topic {topic} --replication-clusters …, or --inherit"
    return Wrong(Reason.POLICY, what, do)
