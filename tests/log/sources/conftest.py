"""What the tests of sources share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka_broker import Broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker of one module's own."""
    started = Broker(tmp_path_factory.mktemp("kafka"))
    yield started
    started.close()
