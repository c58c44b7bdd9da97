"""Topics of a cluster for which a process does something, where several processes share them."""

from __future__ import annotations

from typing import Protocol

from geo.names import Topic


class Share(Protocol):
    """May be asked by several threads. What a method answers here is so for a process that shares with nobody."""

    def elsewhere(self, topic: Topic) -> str | None:
        """Tells why nothing is done for the topic here; None: it is this process's."""
        return None

    def takes_over(self, topic: Topic) -> bool:
        """Tells, of a topic that is this process's, whether what an earlier owner may still run for it is to be replaced."""
        return False


class _All(Share):
    """Share of a process that shares with nobody."""


ALL: Share = _All()
