"""A Kafka topic published into the log, from a real broker: exactly once, in order, and loud when something is gone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from geo.cli.main import main
from geo.config import load
from geo.config.publication import Publication
from geo.errors import SourceChangedError, UnsafeError, UsageError
from geo.log.publish import publish_kafka
from geo.log.publisher import Published
from geo.log.sources.kafka import BATCH_ROWS, KafkaReader, parse_span
from geo.log.sources.kafka_topic import KafkaTopic
from geo.names import Topic
from geo.reasons import Reason
from tests.kafka_broker import PASSWORD, USER, Broker
from tests.processes import geo
from tests.world import TOPIC, World

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def _publish(
    world: World,
    broker: Broker,
    topic: str,
    to: Topic = TOPIC,
    *,
    batch_rows: int = BATCH_ROWS,
    accept_lost: bool = False,
    accept_unreadable: Sequence[str] = (),
    **of: Any,
) -> Published:
    """`of`: of the publication."""
    what = Publication("eu", to, kafka=broker.bootstrap, kafka_topic=topic, **of)
    spans = tuple(map(parse_span, accept_unreadable))
    return world.published(what, batch_rows=batch_rows, accept_lost=accept_lost, accept_unreadable=spans).published


def test_a_record_keeps_everything_it_has(world: World, broker: Broker) -> None:
    broker.create("whole", 1)
    broker.produce(
        "whole",
        [
            (0, b"k", b"v", [("trace", b"abc")]),
            (0, b"deleted", None, []),
            (0, b"\xff\xfe", b"\x00", [("a", b"1"), ("a", b"2")]),
        ],
    )
    assert _publish(world, broker, "whole").rows == 3
    rows = world.log("eu").read().orderBy("entry_id").collect()
    assert [(r["key"], None if r["payload"] is None else bytes(r["payload"])) for r in rows] == [
        ("k", b"v"),
        ("deleted", None),
        ("//4=", b"\x00"),
    ]
    assert rows[0]["properties"] == {"trace": "abc", "kafka.topic": "whole", "kafka.partition": "0", "kafka.offset": "0"}
    assert rows[2]["properties"]["kafka.key"] == "base64"
    assert json.loads(rows[2]["properties"]["kafka.headers"]) == [["a", "MQ=="], ["a", "Mg=="]]
    assert all(row["event_time"] is not None for row in rows)


def test_records_of_any_number_and_in_any_storage_are_published_alike(world: World, broker: Broker) -> None:
    """Read by the process itself, by tasks past the JVM, and by tasks into it."""
    broker.create("alike", 3)
    broker.produce("alike", [(i % 3, b"k", str(i).encode(), [("h", b"1")]) for i in range(7_000)])
    topics = {name: Topic.parse(f"persistent://shop/web/{name}") for name in ("few", "many", "spark")}
    world.leave_to_spark("eu", topics["spark"])
    found = {}
    for name, topic in topics.items():
        assert _publish(world, broker, "alike", to=topic, batch_rows=1_500 if name == "few" else 10_000).rows == 7_000
        rows = world.log("eu", topic).read().select("entry_id", "key", "properties", "payload", "event_time", "replicate_to")
        found[name] = sorted(map(str, rows.collect()))
    assert found["few"] == found["many"] == found["spark"]


def test_where_a_latest_start_began_counts_though_nothing_was_published_and_if_it_is_lost_nothing_is_skipped(
    world: World, broker: Broker
) -> None:
    broker.create("lost", 2)
    broker.produce("lost", [(0, None, b"before", []), (1, None, b"before", [])])
    assert _publish(world, broker, "lost", kafka_start="latest").rows == 0
    broker.produce("lost", [(0, None, b"while nothing ran", [])])
    assert _publish(world, broker, "lost", kafka_start="latest").rows == 1
    (note,) = Path(world.config.cluster("eu").checkpoints).rglob("position.json")
    note.unlink()
    broker.produce("lost", [(1, None, b"while nothing ran", [])])
    assert _publish(world, broker, "lost", kafka_start="latest").rows == 2, "all of the partition of which nothing is known"


def test_a_partition_that_was_read_and_is_gone_stops_the_stream(world: World, broker: Broker) -> None:
    broker.create("fewer", 1)
    broker.produce("fewer", [(0, None, b"0", [])])
    assert _publish(world, broker, "fewer").rows == 1
    note = Path(world.config.cluster("eu").checkpoints) / "publish" / TOPIC.path / "default" / "position.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"position": {"kafka:fewer:1": [7, ""]}, "ends": {}}))
    with pytest.raises(SourceChangedError, match="partition 1: the whole partition, read up to 7"):
        _publish(world, broker, "fewer")


def test_a_time_before_1970_is_kept_and_one_beyond_all_times_stops_nothing(world: World, broker: Broker) -> None:
    from kafka import KafkaProducer

    # Kept for ever: by its time the first record has long expired, and the broker removes such ones now and then.
    broker.create("times", 1, **{"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for time_ms in (-86_400_000, 0, 1_700_000_000_000, 1_700_000_000_000_000, 1_700_000_000_000_000_000):
        producer.send("times", value=b"x", partition=0, timestamp_ms=time_ms)
    producer.close()
    assert _publish(world, broker, "times").rows == 5
    found = world.log("eu").read().orderBy("entry_id").selectExpr("unix_millis(event_time)", "properties['kafka.timestamp']")
    assert [tuple(row) for row in found.collect()] == [
        (-86_400_000, None), (0, None), (1_700_000_000_000, None), (None, "1700000000000000"), (None, "1700000000000000000"),
    ]  # fmt: skip


def test_a_lost_checkpoint_repeats_nothing_and_new_partitions_are_read(world: World, broker: Broker) -> None:
    broker.create("grows", 1)
    broker.produce("grows", [(0, b"a", str(i).encode(), []) for i in range(50)])
    assert _publish(world, broker, "grows", batch_rows=20).commits == 3
    checkpoints = Path(world.config.cluster("eu").checkpoints)
    (checkpoints / "publish").rename(world.folder / "away")
    broker.produce("grows", [(0, b"a", b"50", [])])
    done = _publish(world, broker, "grows")
    assert (done.rows, done.already_published) == (1, 0), "the producer's record says where to go on"
    from kafka.admin import KafkaAdminClient, NewPartitions

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_partitions({"grows": NewPartitions(total_count=2)})
    admin.close()
    broker.produce("grows", [(1, b"b", b"0", [])])
    assert _publish(world, broker, "grows").rows == 1
    assert world.log("eu").read().select("ledger_id").distinct().count() == 2


def test_offsets_that_are_gone_stop_the_stream_with_their_range(world: World, broker: Broker) -> None:
    broker.create("short", 1, **{"segment.bytes": "1048576", "retention.bytes": "1048576"})
    broker.produce("short", [(0, None, b"first", [])])
    assert _publish(world, broker, "short").rows == 1
    _fill_until_gone(broker, "short")
    with pytest.raises(SourceChangedError, match=r"nothing says that they were read \(partition 0: 1 to \d+\).*--accept-lost"):
        _publish(world, broker, "short")
    assert world.count("eu") == 1
    assert _publish(world, broker, "short", accept_lost=True).rows > 0
    ends = world.log("eu").read().agg(F.max("entry_id"), F.count("*")).collect()[0]
    assert ends[0] + 1 == ends[1], "the ledger has no hole: its entries are what was published"


def test_ends_of_transactions_and_aborted_records_that_are_gone_are_no_loss_and_records_are(world: World, broker: Broker) -> None:
    from kafka import KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient

    def transaction(name: str, *values: bytes, commit: bool = True) -> None:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", transactional_id=name)
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send("aborts", value=value)
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)()
        producer.close()

    def delete_up_to(offset: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.delete_records({TopicPartition("aborts", 0): offset})
        admin.close()

    broker.create("aborts", 1)
    transaction("a", b"0", b"1")  # and its end at 2
    transaction("b", b"3", commit=False)  # and its end at 4
    assert _publish(world, broker, "aborts").rows == 2
    delete_up_to(5)
    # Of another host, or a checkpoint folder that was emptied: only the record of the producer says where to go on.
    (Path(world.config.cluster("eu").checkpoints) / "publish").rename(world.folder / "away")
    assert _publish(world, broker, "aborts").rows == 0
    transaction("a", b"5")
    delete_up_to(6)
    with pytest.raises(SourceChangedError, match=r"nothing says that they were read \(partition 0: 5 to 5\)"):
        _publish(world, broker, "aborts")


def _fill_until_gone(broker: Broker, topic: str) -> None:
    """Until its first records are gone; from then on all stay, so that none goes while a batch is read."""
    from kafka import KafkaConsumer, TopicPartition

    where, consumer = TopicPartition(topic, 0), KafkaConsumer(bootstrap_servers=broker.bootstrap)
    while consumer.beginning_offsets([where])[where] <= 1:
        broker.produce(topic, [(0, None, b"x" * 100_000, []) for _ in range(20)])
    consumer.close()
    broker.keep_all(topic)


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(world: World, broker: Broker) -> None:
    broker.create("anew", 1)
    broker.produce("anew", [(0, None, b"1", [])])
    _publish(world, broker, "anew")
    broker.delete("anew")
    broker.create("anew", 1)
    broker.produce("anew", [(0, None, b"2", []), (0, None, b"3", [])])
    with pytest.raises(SourceChangedError, match="deleted and made anew"):
        _publish(world, broker, "anew")
    (Path(world.config.cluster("eu").checkpoints) / "publish").rename(world.folder / "away")
    with pytest.raises(SourceChangedError, match=r"deleted and made anew.*\(its id is \S+, it was \S+\)"):
        _publish(world, broker, "anew")
    assert _publish(world, broker, "anew", producer="r").rows == 2
    with pytest.raises(UsageError, match="Kafka topic nowhere is not at"):
        _publish(world, broker, "nowhere", producer="q")


def test_a_broker_that_asks_for_tls_and_a_password_gets_the_referenced_one(
    world: World, broker: Broker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broker.create("guarded", 1)
    broker.produce("guarded", [(0, None, b"1", [])])
    settings = (
        f"security_protocol: SASL_SSL, ssl_cafile: {broker.certificate}, sasl_mechanism: PLAIN, sasl_plain_username: {USER}"
    )
    with world.path.open("a") as file:
        file.write(f'kafka:\n  "{broker.sasl_bootstrap}": {{{settings}, sasl_plain_password: secret://env/KAFKA_PASSWORD}}\n')
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    stream = publish_kafka(world.spark, broker.sasl_bootstrap, "guarded", TOPIC, load(world.path), "eu")
    stream.await_termination()
    assert stream.published.rows == 1
    assert PASSWORD not in "".join(capfd.readouterr())


def test_what_cannot_be_read_stops_at_its_offsets_until_its_loss_is_accepted_and_is_then_listed(
    world: World, broker: Broker
) -> None:
    """A batch of three that is damaged on the broker's disk; a header whose name is no UTF-8, which not every client refuses to send."""
    from kafka import KafkaProducer

    class NoText(str):
        def encode(self, *_: Any) -> bytes:
            return b"\xff"

    broker.create("bad", 1)
    broker.produce("bad", [(0, None, b"0", []), (0, None, b"1", [])])
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=1_000)
    for value in (b"2", b"the third", b"4"):
        producer.send("bad", value=value, partition=0)
    producer.flush()
    producer.send("bad", value=b"5", partition=0, headers=[(NoText("?"), b"")]).get()
    producer.close()
    broker.produce("bad", [(0, None, b"6", [])])
    broker.stop()
    broker.damage("bad", b"the third")
    broker.start()
    with pytest.raises(UnsafeError, match=r"partition 0: offset 2 to 5 cannot be read .*--accept-unreadable 0:2-5`"):
        _publish(world, broker, "bad")
    with pytest.raises(UnsafeError, match="offset 2 to 5"):
        _publish(world, broker, "bad", accept_unreadable=("0:2-4",))
    assert world.count("eu") == 0, "nothing of the batch"
    done = _publish(world, broker, "bad", accept_unreadable=("0:2-4", "0:2-5"))
    assert (done.rows, done.rejected) == (3, 1)
    payloads = world.log("eu").read().orderBy("entry_id").select("payload").collect()
    assert [bytes(row["payload"]) for row in payloads] == [b"0", b"1", b"6"]
    (rejects,) = Path(world.config.cluster("eu").checkpoints).rglob("rejects/**/*.jsonl")
    rejected = json.loads(rejects.read_text())
    assert (rejected["partition"], rejected["offset"]) == ("kafka:bad:0", 2)
    assert rejected["reason"].startswith("offset 2 to 5 cannot be read")
    assert rejected["reason"].endswith("accepted as lost")


def test_a_subscription_begins_where_a_consumer_group_of_kafkas_stands(
    world: World, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one partition it has read some, of the second nothing, and of a third all. What another producer published of a topic of that name
    may have come from another Kafka cluster."""
    broker.create("grouped", 3)
    broker.produce("grouped", [(p, None, f"{p}/{i}".encode(), []) for i in range(4) for p in range(3)])
    broker.commit("grouped", "g", {0: 3, 2: 4})
    named = ["--config", str(world.path), "--cluster", "eu", "--topic", str(TOPIC), "--subscription", "s"]
    create = ["subscriptions", "create", *named, "--kafka", broker.bootstrap, "--kafka-topic", "grouped", "--kafka-group"]
    assert _publish(world, broker, "grouped").rows == 12
    assert _publish(world, broker, "grouped", producer="other").rows == 12
    assert main([*create, "nobody"]) == 2
    assert "group 'nobody' has committed no offset of topic grouped" in capsys.readouterr().err
    assert main([*create, "g"]) == 0
    assert "begins at Kafka topic grouped: partition 0 from offset 3, partition 2 from offset 4" in capsys.readouterr().out
    assert main(["consume", *named, "--trigger", "available-now", "-o", "json"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    given = sorted(json.loads(line)["payload"] for line in lines)
    others = [f"{p}/{i}" for i in range(4) for p in range(3)]
    assert given == sorted(["0/3", "1/0", "1/1", "1/2", "1/3", *others])


def test_what_stays_until_a_person_acts_is_named_at_once(broker: Broker) -> None:
    """Not waited for as a broker is that is away, and what to do is said."""
    from kafka.admin import (
        ACL,
        ACLOperation,
        ACLPermissionType,
        KafkaAdminClient,
        ResourcePattern,
        ResourceType,
        UserScramCredentialUpsertion,
    )

    broker.create("named", 1)
    broker.create("others", 1)
    others = ACL("User:others", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, "others"))
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.create_acls([others])
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("scram", "SCRAM-SHA-256", PASSWORD)])
    plain = {"bootstrap_servers": broker.bootstrap}
    good = {
        "bootstrap_servers": broker.sasl_bootstrap, "ssl_cafile": str(broker.certificate), "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN", "sasl_plain_username": USER, "sasl_plain_password": PASSWORD,
    }  # fmt: skip
    scram = {**good, "sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "scram"}
    one_is_away = {"bootstrap_servers": f"nowhere.invalid:9092,{broker.bootstrap}"}
    for admitted in (good, scram, plain, one_is_away):
        with contextlib.closing(KafkaReader(KafkaTopic(admitted, "named"))) as reader:
            assert reader.begin({}), admitted
    elsewhere = broker.sasl_bootstrap.replace("localhost", "127.0.0.1")
    refused: tuple[tuple[dict[str, Any], str, Reason, str], ...] = (
        ({**good, "sasl_plain_password": "x"}, "named", Reason.KEYS_REFUSED, f"the password of user '{USER}' is refused"),
        ({**scram, "sasl_plain_password": "x"}, "named", Reason.KEYS_REFUSED, "the password of user 'scram' is refused"),
        ({**scram, "sasl_plain_username": "x"}, "named", Reason.KEYS_REFUSED, "the password of user 'x' is refused"),
        ({**good, "sasl_mechanism": "SCRAM-SHA-512"}, "named", Reason.CONFIG, "not one of its own: PLAIN, SCRAM-SHA-256"),
        ({**good, "sasl_plain_username": None}, "named", Reason.CONFIG, "sasl_plain_username is not set"),
        ({**good, "ssl_cafile": "/none.pem"}, "named", Reason.CONFIG, "ssl_cafile /none.pem: No such file"),
        ({**good, "ssl_cafile": __file__}, "named", Reason.CONFIG, f"ssl_cafile {__file__}: not what is needed"),
        ({**good, "ssl_cafile": None}, "named", Reason.NO_ANSWER, "its certificate is not trusted: self-signed.*ssl_cafile"),
        ({**good, "bootstrap_servers": elsewhere}, "named", Reason.NO_ANSWER, "not valid for '127.0.0.1'.*a host that it names"),
        ({"bootstrap_servers": broker.sasl_bootstrap}, "named", Reason.CONFIG, "this port speaks TLS.*security_protocol: SSL"),
        ({**good, "security_protocol": "SSL"}, "named", Reason.CONFIG, "it asks who we are .SASL PLAIN, SCRAM-SHA-256"),
        ({**good, **plain}, "named", Reason.CONFIG, "this port does not speak TLS.*security_protocol: SASL_PLAINTEXT"),
        ({**plain, "security_protocol": "SASL_PLAINTEXT"}, "named", Reason.CONFIG, "asks for no password.*: PLAINTEXT"),
        ({"bootstrap_servers": "nowhere.invalid:9092"}, "named", Reason.NO_ANSWER, "no such host .nowhere.invalid: "),
        ({"bootstrap_servers": "localhost:port"}, "named", Reason.CONFIG, "no list of host:port"),
        (good, "others", Reason.NO_RIGHT, f"user '{USER}' has no right to read topic others.*READ and DESCRIBE"),
        (good, "nowhere", Reason.USAGE, "Kafka topic nowhere is not at .*Create it there"),
        (plain, "no topic", Reason.CONFIG, "'no topic' is no name of a topic"),
    )  # fmt: skip
    for settings, topic, code, words in refused:
        with (
            contextlib.closing(KafkaReader(KafkaTopic(settings, topic))) as reader,
            pytest.raises(UsageError, match=words) as raised,
        ):
            reader.begin({})
        assert raised.value.code is code, words
        assert PASSWORD not in str(raised.value)


def test_records_arrive_once_in_order_though_publisher_and_broker_fall(world: World, broker: Broker) -> None:
    """SIGKILL of the publisher in the middle, the broker stopped and started under the next one, while records keep coming."""
    partitions, each = 4, 2_500
    broker.create("many", partitions)

    def produce(first: int, end: int) -> None:
        broker.produce("many", [(p, str(p).encode(), str(i).encode(), []) for i in range(first, end) for p in range(partitions)])

    args = ["publish", "--config", str(world.path), "--cluster", "eu", "--topic", str(TOPIC), "--kafka", broker.bootstrap]
    args += ["--kafka-topic", "many", "--trigger", "500 ms", "--batch-rows", "1000"]
    produce(0, each // 2)
    with geo(world.folder, *args) as first:
        first.until(lambda: world.count("eu") >= 2_000)
    with geo(world.folder, *args) as second:
        second.until(lambda: world.count("eu") >= 4_000)
        broker.stop()
        broker.start()
        produce(each // 2, each)
        second.until(lambda: world.count("eu") >= partitions * each)
    rows = world.log("eu").read()
    ledgers = rows.groupBy("ledger_id").agg(
        F.min("entry_id").alias("first"), F.max("entry_id").alias("last"), F.count("*").alias("rows"),
        F.countDistinct("key").alias("keys"), F.min(F.expr("entry_id = cast(payload AS string)")).alias("in_order"),
    ).collect()  # fmt: skip
    assert [r[1:] for r in ledgers] == [(0, each - 1, each, 1, True)] * partitions
    world.replicate("us")
    world.assert_clean()
