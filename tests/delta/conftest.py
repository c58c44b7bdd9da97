"""Fixtures of tests about tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka_broker import free_ports
from tests.object_store import ObjectStore as S3


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """An S3 API, without buckets; of those who share it each makes its own."""
    store = S3(free_ports(1)[0], tmp_path_factory.mktemp("s3") / "log")
    yield store
    store.close()
