"""Which topics of a cluster a process does something for, where several processes share them."""

from __future__ import annotations

from typing import Protocol

from geo.names import Topic


class Share(Protocol):
    """May be asked by several threads."""

    def elsewhere(self, topic: Topic) -> str | None:
        """Why nothing is done for the topic here; None: it is this process's."""

    def takes_over(self, topic: Topic) -> bool:
        """Of a topic that is this process's: whether what an earlier owner may still run for it is to be replaced."""


class _All:
    def elsewhere(self, topic: Topic) -> str | None:
        return None

    def takes_over(self, topic: Topic) -> bool:
        return False


ALL: Share = _All()
"""Of a process that shares with nobody."""
