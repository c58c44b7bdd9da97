"""When failed works are tried again where no verb says that they may."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping

from geo.streams.life import State


class FailedAgain:
    """The failed works of a group are tried again `after_s` seconds after they were first seen to have failed: by then a person
    may have seen to it, and what may not go on fails again. Asked by one thread."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since: dict[Hashable, float] = {}

    def due(self, known: Mapping[Hashable, tuple[object, State]]) -> list[Hashable]:
        """The keys of the works, among those of the group, that are due now; each is told once."""
        now = time.monotonic()
        self._since = {key: self._since.get(key, now) for key, (_, state) in known.items() if state is State.FAILED}
        due = [key for key, at in self._since.items() if now - at >= self._after_s]
        for key in due:
            del self._since[key]
        return due
