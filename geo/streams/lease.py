"""Ownership of a piece of work, and what became of it after a fault, at a stop, or once nobody waits for it."""

from __future__ import annotations

import math
import time
from typing import Generic, Protocol, TypeVar

from geo.errors import FencedError


class Owned(Protocol):
    """Subject of a lease: an ownership, or what runs and has one."""

    def abandon(self) -> None:
        """Own it no longer, and write nothing: whoever continues finds out what became of it. Waits for nobody."""

    def refuse_if_replaced(self) -> None:
        """Raises FencedError if somebody took over what was owned."""


T = TypeVar("T", bound=Owned)


class Lease(Generic[T]):
    """Ownership of one piece of work. The methods are called by one thread at a time, but for `abandon`.

    | it was | by | and the next claim |
    |---|---|---|
    | held | `hold` | |
    | given back, or never held | `give_back` | takes it |
    | lost after a fault | `lose` | is refused if somebody took it over since: who was replaced does not come back by itself |
    | abandoned | `abandon` | gives it back at once, until somebody waits for it again (`expect`) |
    | this process's again | `restart` | takes it, whoever had it meanwhile |

    An owner that lives is replaced only if that was asked for: until it was held once, for `within_s` at most.
    """

    def __init__(self, *, take_over: bool = False, within_s: float = math.inf) -> None:
        self.takes_over_until = time.monotonic() + within_s if take_over else -math.inf
        self.held: T | None = None
        self.last: T | None = None
        """The ownership that is held, or was last."""
        self.takes_over = False
        """The last claim replaced an owner that lives, as was asked for."""
        self.is_replaced = False
        """Somebody took it over."""
        self._lost: T | None = None
        self.is_left = False
        """Nobody waits for it any more."""

    @property
    def is_held(self) -> bool:
        return self.held is not None

    def expect(self) -> None:
        """Somebody waits for what is claimed from now on."""
        self.is_left = False

    def start_claim(self) -> bool:
        """It is about to be claimed. Whether to replace an owner that lives. Raises FencedError if somebody took over what was lost."""
        if self._lost is not None:
            try:
                self._lost.refuse_if_replaced()
            except FencedError:
                self.is_replaced = True
                raise
        self._lost = None
        self.takes_over = time.monotonic() < self.takes_over_until
        return self.takes_over

    def hold(self, owned: T) -> None:
        """This was claimed. It is held, unless nobody waits for it any more."""
        self.held = self.last = owned
        self.takes_over_until = -math.inf
        if self.is_left:
            self.abandon()

    def give_back(self) -> T | None:
        """Nothing is held, and nothing was lost: what was held is its caller's to give back."""
        owned, self.held, self._lost = self.held, None, None
        return owned

    def lose(self, error: BaseException) -> T | None:
        """A fault ended what is held, which is its caller's to give up. None: nothing was held, and what was lost before stays so."""
        owned, self.held = self.held, None
        if owned is not None:
            self._lost, self.is_replaced = owned, isinstance(error, FencedError)
        return owned

    def abandon(self) -> None:
        """Own it no longer, and write nothing. Waits for nobody."""
        self.is_left = True
        owned, self.held = self.held, None
        if owned is not None:
            owned.abandon()

    def restart(self, *, take_over: bool) -> None:
        """It is this process's from now on, or again, whoever had it meanwhile. For one that is not held. `take_over`: an owner that
        lives is replaced."""
        self._lost, self.is_replaced = None, False
        if take_over:
            self.takes_over_until = math.inf
