"""Result of a verify, as values, JSON and text. Pure: how it is found stands in `verify.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from enum import Enum

from geo.shown import Sections, Shown
from geo.text import counted, printable

EXAMPLES = 5
"""Shown per finding: enough to see whether it is one ledger or all, and to look one up."""


class Category(str, Enum):
    """Kind of message that is not simply the same in both logs of a link."""

    MISSING = "missing"
    UNEXPECTED = "unexpected"
    DIFFERENT = "different"
    DUPLICATES = "duplicates"
    HOLES = "holes"
    IMPOSSIBLE = "impossible"
    IN_FLIGHT = "in_flight"
    EXPIRED = "expired"

    @property
    def words(self) -> str:
        return self.value.replace("_", " ")


def counted_as(category: Category, count: int) -> str:
    """`1 hole`, `2 holes`, `1 missing`."""
    plural = category in (Category.DUPLICATES, Category.HOLES)
    return counted(count, category.words.removesuffix("s")) if plural else f"{count:,} {category.words}"


MEANING = {
    Category.MISSING: "recorded as replicated, but the target lacks them; `geo reconcile` of the link appends them",
    Category.UNEXPECTED: (
        "no link brings their origin here, they are not addressed to this cluster, or their source and origin lack them"
        " (if those lost data, put it back before their producers go on)"
    ),
    Category.DIFFERENT: "same message id, but not the same row: one of the logs was changed, or an id was used twice",
    Category.DUPLICATES: "ids that are in the log more than once: two writers at a time, or a file was copied in",
    Category.IMPOSSIBLE: (
        "rows with ids or times that no message has: somebody else wrote them, and no link brings them. Delete them in the source, or keep them:"
        " `geo reconcile` of the link takes it as it is then"
    ),
    Category.HOLES: (
        "entries lacking below the last of their ledger in this log, or below the end that its producer recorded; a gap is shown by its first"
        " entry, a lost end as first-last (`geo reconcile` accepts it)"
    ),
}
"""The faults: any of them makes a report not clean. What is in flight or expired is reported, and is no fault."""

LINK_COUNTS = (
    Category.MISSING,
    Category.UNEXPECTED,
    Category.DIFFERENT,
    Category.IN_FLIGHT,
    Category.EXPIRED,
    Category.IMPOSSIBLE,
)
CLUSTER_COUNTS = (Category.DUPLICATES, Category.HOLES, Category.UNEXPECTED)


@dataclass(frozen=True, slots=True)
class Difference:
    """`count` messages of one category, above 0. `examples` are the first of them, as `origin:ledger:entry`."""

    category: Category
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkResult:
    """One topic of one link. `state` and `end` are those of its newest row, None before it has any.

    `compared`: messages of the link's origins that are in both logs; where only ends and counts are known, that both can have.
    """

    topic: str
    link: str
    state: str | None
    end: int | None
    compared: int
    findings: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """One topic's log in one cluster, at `version`. `messages`: its rows, markers too, each id once."""

    topic: str
    cluster: str
    version: int
    messages: int
    findings: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, repr=False)
class VerifyReport(Shown):
    """All topics that were verified: one LinkResult per topic and link, one ClusterResult per topic and log."""

    topics: tuple[str, ...]
    links: tuple[LinkResult, ...]
    clusters: tuple[ClusterResult, ...]
    notes: tuple[str, ...]
    by_content: bool = True
    """Messages were compared, each by all its columns; if not, ledgers were, by their ends and counts."""
    faults: tuple[str, ...] = ()
    """Faults beside messages, each with what to do."""

    @property
    def clean(self) -> bool:
        """True if no fault was found."""
        return not self.faults and not any(self.total(category) for category in MEANING)

    @property
    def compared(self) -> int:
        return sum(result.compared for result in self.links)

    def total(self, category: Category) -> int:
        return sum(finding.count for _, _, finding in self.findings() if finding.category is category)

    def findings(self) -> Iterator[tuple[str, str, Difference]]:
        """Topic, link or cluster, and what was found there."""
        for link in self.links:
            yield from ((link.topic, link.link, finding) for finding in link.findings)
        for cluster in self.clusters:
            yield from ((cluster.topic, cluster.cluster, finding) for finding in cluster.findings)

    def to_json(self) -> dict[str, object]:
        """The report with keys that stay; new ones may be added.

        - `clean`, `by_content`: boolean. `compared`: number. `topics`: list of names. `notes`, `faults`: lists of texts.
        - `totals`: number of each category: missing, unexpected, different, duplicates, holes, impossible, in_flight, expired.
        - `links`: list of {topic, link, state, end, compared, missing, unexpected, different, in_flight, expired, impossible}.
          State and end (a version of the source) are null before the link has recorded any.
        - `clusters`: list of {topic, cluster, version, messages, duplicates, holes, unexpected}.
        - `findings`: list of {category, topic, where (a link or a cluster), count, examples}, all above 0.
        """
        return {
            "clean": self.clean,
            "by_content": self.by_content,
            "compared": self.compared,
            "topics": list(self.topics),
            "totals": {category.value: self.total(category) for category in Category},
            "links": [_fields(result, LINK_COUNTS) for result in self.links],
            "clusters": [_fields(result, CLUSTER_COUNTS) for result in self.clusters],
            "findings": [
                {
                    "category": found.category.value,
                    "topic": topic,
                    "where": where,
                    "count": found.count,
                    "examples": list(found.examples),
                }
                for topic, where, found in self.findings()
            ],
            "notes": list(self.notes),
            "faults": list(self.faults),
        }

    def __repr__(self) -> str:
        return f"<VerifyReport {self._summary()}>"

    def sections(self) -> Sections:
        """Tables for people: links, clusters, findings, and faults and notes, as `to_json` has them."""
        found = [
            {"category": one.category.words, "topic": topic, "where": where, "count": one.count, "examples": one.examples}
            for topic, where, one in self.findings()
        ]
        told = [{"": "fault", "what": one} for one in self.faults] + [{"": "note", "what": one} for one in self.notes]
        return {
            "links": [_fields(result, LINK_COUNTS) for result in self.links],
            "clusters": [_fields(result, CLUSTER_COUNTS) for result in self.clusters],
            "findings": found,
            "faults and notes": told,
        }

    def _summary(self) -> str:
        done = "compared" if self.by_content else "counted"
        links = len({result.link for result in self.links})
        scope = (
            f"{counted(len(self.topics), 'topic')}, {counted(links, 'link')}, {counted(self.compared, 'message')} {done}, "
            f"{self.total(Category.IN_FLIGHT):,} in flight"
        )
        if self.clean:
            return f"clean: {scope}"
        found = [counted_as(category, self.total(category)) for category in MEANING if self.total(category)]
        return f"NOT CLEAN: {', '.join(found + ([counted(len(self.faults), 'fault')] if self.faults else []))}; {scope}"

    def lines(self) -> list[str]:
        """For a terminal: a line per topic and link, the notes, the summary, and below it each fault with examples.

        Names that come out of a table are made printable, so that a message cannot forge a line.
        """
        done = "compared" if self.by_content else "counted"
        lines = [f"{r.topic}  {r.link}: {r.compared:,} {done}, {_counts_as_text(r.findings)}" for r in self.links]
        lines += [f"note: {note}" for note in self.notes]
        lines += [*(f"fault: {fault}" for fault in self.faults), self._summary()]
        for category in (one for one in MEANING if self.total(one)):
            lines.append(f"  {category.words}: {MEANING[category]}")
            lines += [
                f"    {topic}  {where}: {found.count:,}{', such as ' if found.examples else ''}{', '.join(found.examples)}"
                for topic, where, found in self.findings()
                if found.category is category
            ]
        return [printable(line) for line in lines]


def _fields(result: LinkResult | ClusterResult, categories: Iterable[Category]) -> dict[str, object]:
    """Fields of a result but for its findings, and how many there are of each category."""
    found = {finding.category: finding.count for finding in result.findings}
    said = {field.name: getattr(result, field.name) for field in fields(result) if field.name != "findings"}
    return said | {category.value: found.get(category, 0) for category in categories}


def _counts_as_text(findings: Iterable[Difference]) -> str:
    """Counts of a link. What hardly ever is there is named only where it is."""
    found = {finding.category: finding.count for finding in findings}
    shown = (category for category in LINK_COUNTS if category is not Category.IMPOSSIBLE or category in found)
    return ", ".join(counted_as(category, found.get(category, 0)) for category in shown)
