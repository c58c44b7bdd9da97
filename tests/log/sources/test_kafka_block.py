"""Records of a Kafka topic as rows, without a broker."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from geo.errors import RetryableError, SourceChangedError, UsageError
from geo.log.ledgers import SourceEnd
from geo.log.source_identity import by_columns
from geo.log.sources import kafka_access
from geo.log.sources.kafka import KafkaReader, OffsetSpan, gone_offsets, parse_span, refuse_other_topic
from geo.log.sources.kafka_access import refuse_hopeless
from geo.log.sources.kafka_rows import block_of
from geo.log.sources.kafka_topic import KafkaTopic
from geo.times import FIRST_US, LAST_US, in_us


@dataclass
class _Record:
    timestamp: int
    topic: str = "t"
    partition: int = 0
    offset: int = 7
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: tuple[tuple[str, bytes | None], ...] = ()


@pytest.mark.parametrize(
    ("time_ms", "event_us", "kept"),
    [
        (-1, None, None),  # Kafka's: it has none
        (-2, -2_000, None),
        (0, 0, None),
        (-62_135_596_800_000, FIRST_US, None),  # the time zero of .NET and Go
        (-62_135_596_800_001, None, "-62135596800001"),
        (253_402_300_799_999, LAST_US - 999, None),
        (253_402_300_800_000, None, "253402300800000"),
    ],
)
def test_the_time_of_a_record_is_its_event_time_or_else_a_property(time_ms: int, event_us: int | None, kept: str | None) -> None:
    (row,) = block_of([_Record(time_ms)]).to_pylist()
    assert in_us(row["event_time"]) == event_us
    assert dict(row["properties"]).get("kafka.timestamp") == kept


@pytest.mark.parametrize(
    ("known", "begins", "gone"),
    [
        ({}, {0: 7}, []),  # a first start: what is there is all
        ({0: 7}, {0: 7, 1: 0}, []),
        ({0: 5}, {0: 7}, ["partition 0: 5 to 6"]),
        ({0: 7}, {0: 7, 1: 3}, ["partition 1: 0 to 2"]),  # it came later, and some of it went before it was read
        ({0: 7, 1: 3}, {0: 7}, []),  # that a partition is gone is said otherwise
    ],
)
def test_what_of_partitions_is_gone_before_it_was_read(known: dict[int, int], begins: dict[int, int], gone: list[str]) -> None:
    assert gone_offsets(known, begins) == gone


def test_the_offsets_of_an_option_are_one_or_a_range() -> None:
    assert [parse_span(text) for text in ("0:17", "3:17-20")] == [OffsetSpan(0, 17, 18), OffsetSpan(3, 17, 21)]
    assert list(map(str, (OffsetSpan(0, 17, 18), OffsetSpan(3, 17, 21)))) == ["0:17", "3:17-20"]
    for text in ("", "17", "0:", "0:a", "0:-1", "0:1-", "0:²"):
        with pytest.raises(UsageError, match="such as 0:17"):
            parse_span(text)


def test_the_end_of_a_partition_says_what_was_read_behind_its_last_record() -> None:
    """Ends of transactions, aborted records: once they are gone they must not look unread."""
    end = by_columns("p", "o", {"kafka:t:0": "id"}, {"kafka:t:0": 4}).encode("kafka:t:0", ["1"])
    assert end == '["4","id"]'
    assert KafkaReader(KafkaTopic({}, "t")).place_of("kafka:t:0", SourceEnd(end, 2)) == [5, "id"]


def test_a_partition_of_which_nothing_is_known_begins_with_its_first_offset_and_what_of_it_is_gone_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = KafkaTopic({}, "t")
    reader = KafkaReader(topic)
    monkeypatch.setattr(topic, "bounds", lambda: ({0: 0, 1: 3}, {0: 9, 1: 9}))
    monkeypatch.setattr(topic, "topic_id", lambda: "id")
    position = reader.begin({"kafka:t:0": [9, "id"]})
    assert position == {"kafka:t:0": [9, "id"], "kafka:t:1": [0, "id"]}
    with pytest.raises(SourceChangedError, match="partition 1: 0 to 2"):
        reader.next(position)


def test_a_topic_is_refused_that_has_another_id_than_what_was_published_of_it() -> None:
    known = {"kafka:t:0": [5, ""], "kafka:t:1": [9, "id"]}
    refuse_other_topic("t", "id", known)
    refuse_other_topic("t", "", known)  # a broker too old to have ids
    with pytest.raises(SourceChangedError, match=r"of another Kafka cluster.*its id is new, it was id"):
        refuse_other_topic("t", "new", known)


def test_the_places_to_go_on_from_are_those_of_the_topic_alone() -> None:
    reader = KafkaReader(KafkaTopic({}, "a:b"))
    ends = {"kafka:a:b:0": '["4","id"]', "kafka:a:b:12": '["0"]', "kafka:a:1": '["9"]', "file": '["2024-01-01"]'}
    places = {name: reader.place_of(name, SourceEnd(end, 1)) for name, end in ends.items()}
    assert places == {"kafka:a:b:0": [5, "id"], "kafka:a:b:12": [1, ""], "kafka:a:1": None, "file": None}


def test_a_host_that_is_not_known_is_refused_unless_it_let_this_process_in_before(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"bootstrap_servers": "nowhere.invalid:9092"}
    with pytest.raises(UsageError, match="no such host"):
        refuse_hopeless(settings)
    monkeypatch.setattr(kafka_access, "_let_in", {settings["bootstrap_servers"]})
    with pytest.raises(RetryableError, match=r"cannot be reached: nowhere\.invalid"):
        refuse_hopeless(settings)
