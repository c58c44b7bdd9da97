"""Parts in which a batch is delivered, and the search in one on which the user's function raised: which of its messages is it? Pure.

The batch is delivered again in halves, a failed half in its halves, and so on. So one bad message of n is found in at most 2·log2(n) + 1 calls and
all others are done. Of several some are found, and what was not reached comes again later.

A function whose database is away fails on everything. So until a part has passed nobody is to blame. Once one message has failed alone the other
halves are tried before any is cut again. So a half that can pass is found. The same holds for a batch of one message: only what the function has
passed directly before can tell its fault from an outage. Without such a control the message is not blamed, and comes again as soon as something has
passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log2

from geo.ids import MessageId


@dataclass(slots=True)
class Halving:
    """`failed` is the batch, in the order in which it is delivered, that has just failed as a whole. Or `untried` are the parts of one that is too
    large to be delivered as a whole.

    Take `part` and say how it went by `passed`, `raised` or `dropped`, until `part` is None.
    """

    failed: Sequence[MessageId] = ()
    untried: Sequence[Sequence[MessageId]] = ()
    control: bool = False
    """The function has passed something directly before this batch."""
    blamed: list[MessageId] = field(default_factory=list, init=False)
    """For which messages the failure counts. They failed alone after another part of the batch had passed, or are a batch of one with a control. If
    nothing of a larger batch passed it is nobody's fault."""
    passed_any: bool = field(default=False, init=False)
    _doubtful: list[MessageId] = field(default_factory=list, init=False)
    """Messages that failed alone when nothing had passed yet: perhaps everything failed then, so they come once more."""
    _parked: list[Sequence[MessageId]] = field(default_factory=list, init=False)
    """Parts that failed since then; they are cut once something has passed."""
    _parts: list[Sequence[MessageId]] = field(default_factory=list, init=False)
    """Still to be delivered, the last one next."""
    _untried: list[Sequence[MessageId]] = field(default_factory=list, init=False)
    """Those of `untried` that still are, the last one next."""
    _calls: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        size = len(self.failed) + sum(map(len, self.untried))
        self._calls = 2 * ceil(log2(max(2, size))) + 1
        self.control = self.control and size == 1
        self._untried = list(reversed(self.untried))
        if self.failed:
            self._split(self.failed)

    @property
    def part(self) -> Sequence[MessageId] | None:
        """Part that is to be delivered next; None: nothing more."""
        next_ones = self._next_ones()
        return next_ones[-1] if next_ones else None

    def passed(self) -> None:
        """The function returned."""
        self._take()
        if not self.passed_any:
            self.passed_any = True
            halves = [half for part in reversed(self._parked) for half in reversed(_halves(part))]
            self._parts = [*halves, *self._parts, *([one] for one in reversed(self._doubtful))]

    def raised(self) -> None:
        """The function raised again."""
        part = self._take()
        if self._doubtful and not self.passed_any and len(part) > 1:
            self._parked.append(part)
        else:
            self._split(part)

    def dropped(self) -> None:
        """Nothing of it is wanted any more."""
        self._next_ones().pop()

    def _next_ones(self) -> list[Sequence[MessageId]]:
        """Tells whose last one is next. What was never delivered is, however many calls it takes, once something has passed."""
        if self._calls > 0 and self._parts:
            return self._parts
        return self._untried if self._calls > 0 or self.passed_any else []

    def _take(self) -> Sequence[MessageId]:
        next_ones = self._next_ones()
        if next_ones is self._parts or not self.passed_any:
            self._calls -= 1
        return next_ones.pop()

    def _split(self, failed: Sequence[MessageId]) -> None:
        if len(failed) == 1:
            (self.blamed if self.passed_any or self.control else self._doubtful).append(failed[0])
        else:
            self._parts += reversed(_halves(failed))


def _halves(part: Sequence[MessageId]) -> tuple[Sequence[MessageId], Sequence[MessageId]]:
    """In their order: what is delivered stays in it as far as that can be."""
    return part[: len(part) // 2], part[len(part) // 2 :]
