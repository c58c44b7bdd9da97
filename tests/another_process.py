"""What a process remembers is put aside: the one place of the tests that knows where that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from geo.coordination import first_use
from geo.delta import mirror, put_commit, s3_store, writer


def forget(patch: pytest.MonkeyPatch) -> None:
    """From now on, as in a process that has just begun: of stores and tables nothing is known."""
    patch.setattr(first_use, "_admitted", set())
    patch.setattr(mirror, "_known", {})
    patch.setattr(put_commit, "_put_at", {})
    patch.setattr(writer, "_committed", {})
    s3_store._port.cache_clear()


@contextmanager
def another_process() -> Iterator[None]:
    """Inside, as another process, which shares no memory with this one."""
    with pytest.MonkeyPatch.context() as patch:
        forget(patch)
        yield
