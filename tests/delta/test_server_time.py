"""What time a server says it is, how long that may take, and where it is not asked."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from geo.delta import server_time
from geo.delta.server_time import server_time_us
from tests.object_store import ObjectStore as S3


def test_behind_a_proxy_of_the_environment_a_server_is_not_asked_but_where_none_leads_there(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs_s() -> float | None:
        told = server_time_us(s3.endpoint)
        return None if told is None else abs(told / 1e6 - time.time())

    assert (differs_s() or 60) < 60
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        with monkeypatch.context() as environment:
            environment.setenv(name, "http://127.0.0.1:9")
            assert differs_s() is None
            environment.setenv("NO_PROXY", "store.invalid,127.0.0.1")
            assert (differs_s() or 60) < 60
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert (differs_s() or 60) < 60


def test_a_name_with_many_addresses_that_take_nothing_is_given_up_after_the_time_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_time, "ANSWER_S", 0.2)
    with ExitStack() as stack:
        silent = stack.enter_context(socket.socket())
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        for _ in range(4):  # its queue is full: what comes now is dropped
            waits = stack.enter_context(socket.socket())
            waits.setblocking(False)
            with suppress(BlockingIOError):
                waits.connect(silent.getsockname())

        def addresses(*args: Any, **more: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", silent.getsockname())] * 8

        monkeypatch.setattr(socket, "getaddrinfo", addresses)
        began = time.monotonic()
        assert server_time_us("http://store.invalid") is None
        assert 0.2 <= time.monotonic() - began < 1.2
