"""A quick look at whether logs agree: the ends and counts of ledgers, derived from two versions of each log. No content is compared.

What it can tell: holes and repeats in a log, what a target has not got yet, and what it has beyond its source. As `verify`, it shares no
code with what it audits. The comparison is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone

from geo.config.model import Config, Link
from geo.errors import UsageError
from geo.ids import LedgerId
from geo.log.topic_log import Held, ledgers_held
from geo.log.topics import Registered, registered_topics
from geo.names import ALL_TOPICS, Topic, topic_glob_matches
from geo.tables.cluster import ClusterTables
from geo.text import printable
from schemas import LINKS

Ledgers = Mapping[LedgerId, Held]

_AT_ONCE = 4
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class QuickLog:
    """One topic's log in one cluster. `holes` and `repeats`: entries that its ledgers lack between their first and last, or have too
    often; in a ledger with both they may cancel each other out."""

    topic: str
    cluster: str
    version: int
    ledgers: int
    messages: int
    holes: int
    repeats: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuickLink:
    """One topic of one link. `behind`: entries above the target's ends, in flight unless the link has stopped. `lacking`: entries below the
    target's beginnings. `beyond`: entries above the source's ends, of ledgers that the source has."""

    topic: str
    link: str
    ledgers: int
    behind: int
    lacking: int
    beyond: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuickReport:
    logs: tuple[QuickLog, ...]
    links: tuple[QuickLink, ...]

    @property
    def clean(self) -> bool:
        """Whether no fault was found. What is behind is none."""
        return not any(one.holes or one.repeats for one in self.logs) and not any(one.lacking or one.beyond for one in self.links)

    def to_json(self) -> dict[str, object]:
        """`clean`, and `clusters` and `links` with the fields of QuickLog and QuickLink."""
        return {"clean": self.clean, "clusters": [asdict(one) for one in self.logs], "links": [asdict(one) for one in self.links]}

    def lines(self) -> list[str]:
        """For a terminal: a line for each link of a topic, a line for each log with a fault, and the summary."""
        lines = []
        for link in self.links:
            counts = {"behind": link.behind, "lacking": link.lacking, "beyond the source": link.beyond}
            lines.append(_line(link.topic, link.link, f"{link.ledgers:,} ledgers, ", counts, link.examples, "in step"))
        for log in self.logs:
            if log.holes or log.repeats:
                counts = {"holes": log.holes, "repeats": log.repeats}
                lines.append(_line(log.topic, log.cluster, "", counts, log.examples, ""))
        said = "clean" if self.clean else "NOT CLEAN"
        count, behind = sum(log.messages for log in self.logs), sum(link.behind for link in self.links)
        lines.append(
            f"{said} by ends and counts: {len(self.logs):,} logs, {count:,} messages counted, {behind:,} behind; content is compared without "
            "--quick"
        )
        return [printable(line) for line in lines]


def _line(topic: str, where: str, what: str, counts: Mapping[str, int], examples: tuple[str, ...], well: str) -> str:
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or well
    such = f", such as {', '.join(examples)}" if examples else ""
    return f"{topic}  {where}: {what}{said}{such}"


def of_log(topic: str, cluster: str, version: int, held: Ledgers) -> QuickLog:
    """What a log's ledgers say. A ledger has all entries between its first and its last, once (L5)."""
    lack = {ledger: one.last - one.first + 1 - one.count for ledger, one in sorted(held.items())}
    examples = tuple(str(ledger) for ledger, count in lack.items() if count)[:_EXAMPLES]
    holes, repeats = sum(max(0, count) for count in lack.values()), sum(max(0, -count) for count in lack.values())
    return QuickLog(topic, cluster, version, len(held), sum(one.count for one in held.values()), holes, repeats, examples)


def of_link(
    topic: str, link: Link, source: Ledgers, early: Ledgers, late: Ledgers, floors: Mapping[str, int], *, expires: bool
) -> QuickLink:
    """The source's ledgers beside the target's.

    `source` was pinned after `early`, so what that has beyond it no link can have brought; and before `late`, so what that lacks was not
    published meanwhile. `floors`: the first entry wanted, by ledger. `expires`: messages have a time to live, `Held.since` is
    the first one within it.
    """
    behind = lacking = beyond = ledgers = 0
    examples: list[str] = []
    for ledger, held in sorted(source.items()):
        if ledger.origin not in link.origins or (held.replicate_to is not None and link.target not in held.replicate_to):
            continue
        ledgers += 1
        begin = max(held.since if expires and held.since is not None else held.first, floors.get(str(ledger), 0))
        due = held.last - begin + 1 if not expires or held.since is not None else 0
        there, then = late.get(ledger), early.get(ledger)
        found = (
            min(due, max(0, held.last - max(there.last if there is not None else -1, begin - 1))) if due > 0 else 0,
            min(due, max(0, there.first - begin)) if due > 0 and there is not None else 0,
            max(0, then.last - held.last) if then is not None else 0,
        )
        behind, lacking, beyond = behind + found[0], lacking + found[1], beyond + found[2]
        if any(found):
            examples.append(str(ledger))
    return QuickLink(topic, link.name, ledgers, behind, lacking, beyond, tuple(examples[:_EXAMPLES]))


def quick(clusters: Mapping[str, ClusterTables], config: Config, topics: str = ALL_TOPICS) -> QuickReport:
    """Look at all clusters' logs of the topics that match the glob. Raises UsageError if there is none. Beside live producers and links it
    reports no fault that is not there: every log is pinned twice, and floors are read last."""
    registries = {name: {one.topic: one for one in registered_topics(tables)} for name, tables in clusters.items()}
    known = sorted(set[Topic]().union(*registries.values()))
    matching = [topic for topic in known if topic_glob_matches(topics, topic)]
    if not matching:
        raise UsageError(f"no topic matches {topics}; the topics are: {', '.join(map(str, known[:20])) or 'none'}")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        each = list(pool.map(lambda topic: _topic(clusters, config, topic, registries), matching))
    return QuickReport(tuple(log for logs, _ in each for log in logs), tuple(link for _, links in each for link in links))


def _topic(
    clusters: Mapping[str, ClusterTables], config: Config, topic: Topic, registries: Mapping[str, Mapping[Topic, Registered]]
) -> tuple[list[QuickLog], list[QuickLink]]:
    ttl_s = config.policy(topic).message_ttl_s
    since = None if ttl_s is None else datetime.now(timezone.utc) - timedelta(seconds=ttl_s)
    logs = {name: tables.log(topic) for name, tables in clusters.items()}
    logs = {name: log for name, log in logs.items() if log.exists()}
    pins = [{name: log.latest_version() for name, log in logs.items()} for _ in range(3)]
    read: dict[tuple[str, int], Ledgers] = {}
    for pinned in pins:
        for name, version in pinned.items():
            if (name, version) not in read:
                read[name, version] = ledgers_held(logs[name], version, since)
    early, middle, late = ({name: read[name, pinned[name]] for name in logs} for pinned in pins)
    floors = {name: _floors(tables, topic) for name, tables in clusters.items()}
    local = {name: registry[topic].replication_clusters for name, registry in registries.items() if topic in registry}
    links = [link for link in config.links_of(topic, local) if link.source in logs]
    nothing: Ledgers = {}
    return (
        [of_log(str(topic), name, pins[0][name], held) for name, held in early.items()],
        [
            of_link(
                str(topic),
                link,
                middle[link.source],
                early.get(link.target, nothing),
                late.get(link.target, nothing),
                floors[link.target].get(link.source, {}),
                expires=since is not None,
            )
            for link in links
        ],
    )


def _floors(tables: ClusterTables, topic: Topic) -> dict[str, Mapping[str, int]]:
    """By source: the first entries that the link from there brings."""
    rows: Iterable[Mapping[str, object]] = (row.asDict() for row in tables.journal(LINKS).newest(topic=str(topic)))
    return {str(row["source"]): dict(row["floors"] or {}) for row in rows}  # type: ignore[call-overload]
