"""The note beside a publisher: places of a source that no end says, since nothing was published up to them.

It counts as long as its source partition is published as it was then. If it is lost, such places are read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from geo.journal.cluster import ClusterTables
from geo.log.ledgers import SourceEnd
from geo.log.sources.source import Position
from geo.names import Topic


class SourceNote:
    """The note of one producer and topic."""

    def __init__(self, tables: ClusterTables, topic: Topic, producer: str) -> None:
        self._files, self._path = tables.files, f"{tables.checkpoint('publish', topic.path, producer)}/position.json"

    def read(self, ends: Mapping[str, SourceEnd]) -> Position:
        """The places that were noted last, of source partitions that are published as they were then; `ends` are those of now."""
        try:
            note = json.loads("\n".join(self._files.lines(self._path)))
            position, then = dict(note["position"]), dict(note["ends"])
        except (ValueError, KeyError, TypeError):
            return {}
        now = _offsets(position, ends)
        return {name: place for name, place in position.items() if then.get(name) == now.get(name)}

    def replace(self, position: Position, ends: Mapping[str, SourceEnd]) -> None:
        self._files.replace(self._path, [json.dumps({"position": position, "ends": _offsets(position, ends)})])


def _offsets(names: Iterable[str], ends: Mapping[str, SourceEnd]) -> dict[str, str]:
    return {name: end.offset for name in names if (end := ends.get(name)) is not None}
