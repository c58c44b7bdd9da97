"""Messages that the user's function has in hand, noted in a small file before it is called. A start after the death of the process finds what it
died on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from geo.crash import CrashPoint, reach
from geo.delta.files import SmallFiles
from geo.faults import session_is_gone
from geo.subscription.acks.ack_state import Epoch
from geo.subscription.acks.message_set import MessageSet


class Attempt:
    """The file of one subscription in one cluster, whose consumer owns it. Two lines: the epoch, and the messages."""

    def __init__(self, files: SmallFiles, path: str) -> None:
        self._files, self._path = files, path

    @contextmanager
    def of(self, messages: MessageSet, epoch: Epoch) -> Iterator[None]:
        """The function is called with `messages` inside. An error that it raises is no death, but the end of Spark's process
        is."""
        self._files.replace(self._path, [str(epoch), str(messages)])
        reach(CrashPoint.CONSUME_ATTEMPTED)
        try:
            yield
        except BaseException as error:
            if not session_is_gone(error):
                self.forget()
            raise
        self.forget()

    def died_on(self, epoch: Epoch) -> MessageSet:
        """Messages that a run that died had in hand, if that was in this epoch. The note stays until the next one, or until it is forgotten."""
        lines = self._files.lines(self._path)
        return MessageSet.parse(lines[1]) if len(lines) == 2 and lines[0] == str(epoch) else MessageSet()

    def forget(self) -> None:
        """Nothing is in hand any more, or what the run died on is published."""
        self._files.remove(self._path)
