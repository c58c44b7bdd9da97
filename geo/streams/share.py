"""Which topics of a cluster a process does something for, where several processes share them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from geo.names import Topic
from geo.streams.life import State
from geo.streams.work import Found, W


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


def in_share(
    found: Found[W], known: Mapping[Hashable, tuple[W, State]], share: Share, topic_of: Callable[[W], Topic]
) -> Found[W]:
    """What a group of works has found that rest for no other reason: the part of it that is this process's, what of the known works is so no
    longer, and what is so again."""
    if share is ALL:
        return found
    mine: list[tuple[Hashable, W]] = []
    left_out: dict[Hashable, str] = {}
    wanted: list[Hashable] = []
    for key, work in found.fresh:
        if share.elsewhere(topic_of(work)) is None:
            mine.append((key, work))
    for key, (work, state) in known.items():
        why = share.elsewhere(topic_of(work))
        if why is not None and state is not State.PAUSED:
            left_out[key] = why
        elif why is None and state is State.PAUSED:
            wanted.append(key)
    for work in [*(work for _, work in mine), *(known[key][0] for key in wanted)]:
        work.lease.begin_anew(take_over=share.takes_over(topic_of(work)))
    resolved = [key for key in found.resolved if key not in left_out]
    return Found(mine, left_out, wanted=wanted, resolved=resolved)
