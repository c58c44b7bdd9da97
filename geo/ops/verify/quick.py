"""Verify by the ends and counts of ledgers, without their content: seconds where `verify` takes minutes. Only reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from geo.config.model import Config
from geo.delta.predicate import Compare, Predicate, TimeUs
from geo.delta.table import Table
from geo.ids import LedgerId
from geo.journal.cluster import ClusterTables
from geo.log.conditions import HAS_ID
from geo.log.ledger_parts import ledger_parts
from geo.log.promises import lost_entries
from geo.names import ALL_TOPICS, Topic
from geo.ops.verify.columns import AHEAD_US
from geo.ops.verify.comparison import Pinned, standings, unaccepted
from geo.ops.verify.ends import Parts, check_link, check_log, overdue_in
from geo.ops.verify.faults import faults, uncounted
from geo.ops.verify.link_ends import End, floors_by_target, key, limits, not_accepted, overdue
from geo.ops.verify.report import Category, ClusterResult, Difference, LinkResult, VerifyReport
from geo.ops.verify.verify import TopicResult, carrying, notes, verify_each
from geo.times import from_us, in_us

_NOTE = "only ends and counts of ledgers were looked at; `geo verify` without --quick compares content"


def verify_by_ends(clusters: Mapping[str, ClusterTables], config: Config, topics: str = ALL_TOPICS) -> VerifyReport:
    """Look at all clusters' logs of the topics that match the glob. Raises UsageError if there is none. Beside live producers and
    links it reports no fault that is not there. All clusters go through each step before the next begins:

    1. read what every link has recorded, and the ends that producers have; 2. pin every log: the early pin; 3. pin every log again: that of the sources; 4. again:
    the late pin; 5. read the links again, for their floors, and the clock: what expires later had not expired when any link
    looked at it. Then what was pinned is read.
    """
    for tables in clusters.values():
        tables.refuse_no_folder()
    return verify_each(clusters, config, topics, 3, lambda seen: partial(_check, seen), _NOTE, by_content=False)


def _check(seen: Pinned, topic: Topic) -> TopicResult:
    pins, policy = seen.of(topic), seen.config.policy(topic)
    logs = {name: seen.logs[topic, name] for name in pins[-1]}
    since = None if policy.message_ttl_s is None else from_us(seen.now_us) - timedelta(seconds=policy.message_ttl_s)
    possible = _possible(seen.now_us)
    pinned = {one for each in pins for one in each.items()}
    read = {one: ledger_parts(logs[one[0]], one[1], since, possible) for one in pinned}
    early, middle, late = ({name: read[name, version] for name, version in each.items()} for each in pins)
    links = carrying(seen.config, topic, seen.registries, seen.ends)
    floors = floors_by_target(topic, links, seen.floors)
    nothing: Parts = {}
    results = []
    due_before = limits(topic, links, seen.ends, seen.now_us, policy.longest_outage_s)
    late_counts: dict[str, int] = {}
    for link in links:
        end = seen.ends.get(key(link, topic))
        origins = [middle[origin] for origin in link.origins if origin in middle]
        targets = early.get(link.target, nothing), late.get(link.target, nothing)
        vouched = end is not None and _is_up_to(end, logs.get(link.source), pins[1].get(link.source))
        both, findings = check_link(
            link, middle.get(link.source, nothing), origins, *targets, floors[link.target], vouched=vouched
        )
        if left_out := not_accepted(end, (end.impossible or 0) if end is not None else 0):
            findings += (Difference(Category.IMPOSSIBLE, left_out, ()),)
        if link.name in due_before and any(finding.category is Category.IN_FLIGHT for finding in findings):
            young = ledger_parts(logs[link.source], pins[1][link.source], from_us(due_before[link.name]), possible)
            late_counts[link.name] = overdue_in(link, middle[link.source], young, targets[1], floors[link.target])
        state, version = (end.state, end.version) if end is not None else (None, None)
        results.append(LinkResult(str(topic), link.name, state, version, both, findings))
    found = []
    held: dict[LedgerId, int] = {}
    for parts in late.values():
        held |= {ledger: max(part.last, held.get(ledger, -1)) for ledger, part in parts.items()}
    horizon_us = None if since is None else in_us(since)
    for name, parts in late.items():
        carried = {origin for link in links if link.target == name for origin in link.origins}
        stands = standings(name, topic, links, seen.ends)
        recorded = unaccepted(seen.promises[topic][name], logs[name].table_id(), horizon_us, stands)
        findings = check_log(name, parts, carried, floors[name], lost_entries(recorded, held), expires=since is not None)
        messages = sum(part.count for part in parts.values())
        found.append(ClusterResult(str(topic), name, pins[-1][name], messages, findings))
    wrong = [
        *faults(topic, seen.registries, logs, links, seen.ends),
        *uncounted(topic, links, seen.ends),
        *overdue(topic, links, seen.ends, late_counts, due_before),
    ]
    return TopicResult(results, found, list(notes(topic, seen.registries, logs, links, seen.ends)), wrong)


def _possible(now_us: int) -> Predicate:
    """The rows that a producer can have written: links replicate no others."""
    return HAS_ID & ~(Compare("publish_time", "<", TimeUs(0)) | Compare("publish_time", ">", TimeUs(now_us + AHEAD_US)))


def _is_up_to(end: End, source: Table | None, version: int | None) -> bool:
    """Tells whether the link has recorded that all of the source at that version was in the target."""
    if source is None or version is None or end.version is None:
        return False
    return end.version >= version and end.table_id == source.table_id()
