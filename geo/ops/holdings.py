"""Which messages of a topic the clusters hold, as facts for a removal. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from pyspark.sql import functions as F

from geo.asking import ask_all
from geo.config.model import Config
from geo.ids import LedgerId
from geo.log.peers import WAIT_S
from geo.log.topic_log import is_message
from geo.names import Topic
from geo.now import now_us
from geo.ops.removal import Extents, OnlyThere, only_there
from geo.replication.gaps import Extent
from geo.replication.missing_rows import extents
from geo.tables.cluster import ClusterTables
from geo.text import first_line
from geo.times import from_us


def held_in(tables: ClusterTables, topic: Topic, ttl_s: int | None = None) -> dict[LedgerId, Extent]:
    """The messages of a topic in a cluster, but for those that are older than `ttl_s`; none if it has no such topic."""
    log = tables.log(topic)
    if not log.exists():
        return {}
    rows = log.read().where(is_message())
    if ttl_s is not None:
        rows = rows.where(F.col("publish_time") >= F.lit(from_us(now_us()) - timedelta(seconds=ttl_s)))
    return extents(rows)


def held_by(clusters: Mapping[str, ClusterTables], topic: Topic) -> tuple[dict[str, Extents], dict[str, str]]:
    """The messages that each of the clusters has of a topic, and of those that cannot be read within a minute the reason."""

    def read(tables: ClusterTables) -> Extents:
        tables.refuse_no_folder()
        return held_in(tables, topic)

    found: dict[str, Extents] = {}
    away: dict[str, str] = {}
    for name, answer in ask_all({name: partial(read, tables) for name, tables in clusters.items()}, WAIT_S).items():
        try:
            found[name] = answer.result()
        except Exception as error:  # whatever it has: it is as good as away
            away[name] = first_line(error)
    return found, away


def only_in(tables: ClusterTables, others: Mapping[str, ClusterTables], config: Config, topic: Topic) -> OnlyThere:
    """What a cluster has of a topic, not expired, and no other one that can be read."""
    mine = held_in(tables, topic, config.policy(topic).message_ttl_s)
    found, away = held_by(others, topic) if mine else ({}, {})
    return only_there(mine, list(found.values()), away)
