"""Asking what may never answer: a client of storage that is away tries again for minutes, and nobody can end it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import TypeVar

from geo.errors import RetryableError
from geo.reasons import Reason

T = TypeVar("T")


def ask_all(asked: Mapping[str, Callable[[], T]], limit_s: float) -> dict[str, Future[T]]:
    """Ask all of them at once; every Future returned is done, and has what its question returned or raised. One that has not
    answered within the limit, in seconds, has a RetryableError; its thread is left to itself."""
    found = {name: ask(name, call) for name, call in asked.items()}
    wait(found.values(), limit_s)
    for name, answer in found.items():
        if not answer.done():
            late: Future[T] = Future()  # another one: the first may still be filled
            late.set_exception(RetryableError(f"{name} has not answered for {limit_s:g} s", code=Reason.NO_ANSWER))
            found[name] = late
    return found


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
