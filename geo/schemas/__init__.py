"""Every table of delta-geo as data: columns, version, properties. No Spark here; `geo.delta.table` creates and checks them.

The version stands in each table as the property `geo.schema.version`, the kind as `geo.table`. **Additive-only rule**: a new
version may add nullable columns at the end and nothing else. So an older reader keeps working on a newer table as long as the
major number is the same. A program refuses to *write* a table of a newer version than it knows. A column that is only added to
a journal, and means nothing to who does not know it, needs no new version. A table without it reads as NULL, and who writes the
next row adds it.
"""

from geo.schemas.system import (
    ASSIGNMENTS,
    BUNDLE_REQUESTS,
    BUNDLES,
    CURSORS,
    EVENTS,
    FINISHED,
    JOURNALS,
    LEDGERS,
    LINKS,
    LOAD_AVERAGES,
    LOAD_REPORTS,
    MARKERS,
    OWNERS,
    PLACEMENT_POLICIES,
    PROCESSES,
    REQUESTS,
    TOPICS,
    VERSION_STARTS,
    VERSION_SUBSCRIPTIONS,
)
from geo.schemas.table import Column, TableSchema
from geo.schemas.topic_log import ENVELOPE, TOPIC_LOG

__all__ = [
    "ASSIGNMENTS",
    "BUNDLES",
    "BUNDLE_REQUESTS",
    "CURSORS",
    "ENVELOPE",
    "EVENTS",
    "FINISHED",
    "JOURNALS",
    "LEDGERS",
    "LINKS",
    "LOAD_AVERAGES",
    "LOAD_REPORTS",
    "MARKERS",
    "OWNERS",
    "PLACEMENT_POLICIES",
    "PROCESSES",
    "REQUESTS",
    "TOPICS",
    "TOPIC_LOG",
    "VERSION_STARTS",
    "VERSION_SUBSCRIPTIONS",
    "Column",
    "TableSchema",
]
