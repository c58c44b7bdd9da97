"""Asking what may never answer: a client of storage that is away tries again for minutes, and nobody can end it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeAlias, TypeVar

from geo.errors import RetryableError
from geo.reasons import Reason

T = TypeVar("T")


Late: TypeAlias = dict[str, tuple[Future[Any], float]]
"""Those that were asked and have not answered, and since when (monotonic), of who asks the same ones again and again."""


def ask_all(asked: Mapping[str, Callable[[], T]], limit_s: float, late: Late | None = None) -> dict[str, Future[T]]:
    """Ask all of them at once; every Future returned is done, and has what its question returned or raised. One that has not
    answered within the limit, in seconds, has a RetryableError; its thread is left to itself. One that is `late` is not asked again until
    that thread has ended, so there is never more than one of it."""
    late, now = {} if late is None else late, time.monotonic()
    for name in [name for name, (answer, _) in late.items() if answer.done()]:
        del late[name]
    found = {name: ask(name, call) for name, call in asked.items() if name not in late}
    wait(found.values(), limit_s)
    for name in asked:
        if name in found and found[name].done():
            continue
        since = late.setdefault(name, (found[name], now))[1] if name in found else late[name][1]
        told: Future[T] = Future()  # another one: the first may still be filled
        waited_s = max(limit_s, round(now - since))
        told.set_exception(RetryableError(f"{name} has not answered for {waited_s:g} s", code=Reason.NO_ANSWER))
        found[name] = told
    return {name: found[name] for name in asked}


def ask(name: str, call: Callable[[], T]) -> Future[T]:
    """Ask one in a thread of its own, for which nobody waits."""
    found: Future[T] = Future()
    threading.Thread(target=_answer, args=(found, call), name=f"geo-asks-{name}", daemon=True).start()
    return found


def _answer(found: Future[T], ask: Callable[[], T]) -> None:
    try:
        found.set_result(ask())
    except BaseException as error:
        found.set_exception(error)
