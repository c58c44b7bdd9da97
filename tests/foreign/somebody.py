"""Somebody who commits at random to the logs of a soak, beside its processes: by delta-rs or by hand, whose commits are put if absent.
(Spark's own commits on a local disk can replace another process's.)"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

from pyspark.sql import SparkSession

from geo.text import first_line
from tests.foreign import by_delta_rs, crafted
from tests.foreign.place import Kind, Place

_REPLICAS = Kind(
    "delete of replicas", "delta-rs", lambda place: place.delta_rs().delete(f"origin <> '{place.here}' AND entry_id % 20 = 7")
)

_HARMLESS = (
    "optimize",
    "of nothing",
    "set_",
    "checkpoint",
    "compact_logs",
    "vacuum, as is",
    "nothing but",
    "txn alone",
    "unknown action",
)

KINDS = [
    _REPLICAS,
    Kind("vacuum, as is", "delta-rs", lambda place: place.delta_rs().vacuum(dry_run=False)),
    *(
        kind
        for kind in (*by_delta_rs.KINDS, *crafted.KINDS)
        if any(word in kind.name for word in _HARMLESS) and kind.before is None
    ),
]
"""After which every message can be brought to where it belongs by the verbs that are advised."""


class Somebody:
    """Commits to the logs of one topic, by cluster their paths."""

    def __init__(self, spark: SparkSession, paths: Mapping[str, str], chance: random.Random) -> None:
        self._spark, self._paths, self._random = spark, paths, chance
        self.done: Counter[str] = Counter()

    def act(self) -> None:
        """Perhaps one commit of any kind to any of the logs."""
        cluster = self._random.choice(sorted(self._paths))
        kind, place = self._random.choice(KINDS), Place(self._spark, self._paths[cluster], cluster)
        if self._random.random() < 0.3 and place.log.is_dir():
            try:
                kind.make(place)
                self.done[kind.name] += 1
            except Exception as error:  # a commit of ours came between, or nobody makes that one twice
                self.done[f"{kind.name}, refused"] += 1
                print(f"  somebody: {kind.name} in {cluster}: {first_line(error)}", flush=True)
