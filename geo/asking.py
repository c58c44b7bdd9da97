"""Asking what may never answer: a client of storage that is away tries again for minutes, and nobody can end it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from geo.errors import RetryableError

T = TypeVar("T")


def ask_all(asked: Mapping[str, Callable[[], T]], limit_s: float) -> dict[str, Future[T]]:
    """Ask all of them at once; every Future returned is done, and has what its question returned or raised. One that has not
    answered within the limit, in seconds, has a RetryableError; its thread is left to itself."""
    found: dict[str, Future[T]] = {}
    threads = []
    for name, ask in asked.items():
        found[name] = Future()
        thread = threading.Thread(target=_answer, args=(found[name], ask), name=f"geo-asks-{name}", daemon=True)
        thread.start()
        threads.append((name, thread))
    deadline = time.monotonic() + limit_s
    for name, thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        if not found[name].done():
            late: Future[T] = Future()  # another one: the first may still be filled
            late.set_exception(RetryableError(f"{name} has not answered for {limit_s:g} s"))
            found[name] = late
    return found


def _answer(found: Future[T], ask: Callable[[], T]) -> None:
    try:
        found.set_result(ask())
    except BaseException as error:
        found.set_exception(error)
