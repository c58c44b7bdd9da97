"""A real Kafka broker for tests: one KRaft node from its jars, started, stopped and killed as a process.

`python -m tests.kafka_broker` fetches its jars, so that no test waits for them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

from geo.jars import default_folder, ensure_jars, find_java, parse_lock

USER, PASSWORD = "geo", "correct horse"
_START_S = 120.0
_LOCK = Path(__file__).with_name("kafka.lock")
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{controller}
listeners=PLAINTEXT://localhost:{plain},SASL_SSL://localhost:{sasl},CONTROLLER://localhost:{controller}
advertised.listeners=PLAINTEXT://localhost:{plain},SASL_SSL://localhost:{sasl}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
ssl.keystore.type=PKCS12
ssl.keystore.location={folder}/broker.p12
ssl.keystore.password=changeit
log.dirs={folder}/data
log.segment.bytes=1048576
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.segment.delete.delay.ms=100
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class Broker:
    """One broker below `folder`. It keeps its data and ports when it is stopped and started again."""

    def __init__(
        self, folder: Path, java_options: Sequence[str] = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    ) -> None:
        self._java_options = java_options
        self._classpath = os.pathsep.join(map(str, jars_of_kafka()))
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._plain, self._sasl, controller = free_ports(3)
        self._properties = folder / "server.properties"
        self._properties.write_text(
            _PROPERTIES.format(
                plain=self._plain, sasl=self._sasl, controller=controller, folder=folder, user=USER, password=PASSWORD
            )
        )
        formatted = self._java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._properties))
        self._keytool("-genkeypair", "-keyalg", "EC", "-validity", "30", "-dname", "CN=localhost", "-ext", "SAN=dns:localhost")
        formatted.wait(_START_S)
        self.start()
        self.certificate.write_text(ssl.get_server_certificate(("localhost", self._sasl)))

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self._plain}"

    @property
    def sasl_bootstrap(self) -> str:
        """Where TLS and a password are asked for."""
        return f"localhost:{self._sasl}"

    @property
    def certificate(self) -> Path:
        """The broker's certificate, which nobody else has signed: what `ssl_cafile` names."""
        return self._folder / "broker.pem"

    def start(self) -> None:
        """Returns when the broker answers."""
        self._process = self._java("kafka.Kafka", str(self._properties))
        deadline = time.monotonic() + _START_S
        while not self._answers():
            log = (self._folder / "broker.log").read_text()[-2000:]
            assert self._process.poll() is None, f"the broker ended:\n{log}"
            assert time.monotonic() < deadline, f"the broker does not start:\n{log}"
            time.sleep(0.1)
        KafkaAdminClient(bootstrap_servers=self.bootstrap).close()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("localhost", self._plain), timeout=1):
            return True
        return False

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_START_S)

    def partitions(self, topic: str) -> int:
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            (described,) = admin.describe_topics([topic])
            return len(described["partitions"])

    def commit(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """A consumer group stands at these offsets, by partition."""
        stands = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}
        with contextlib.closing(KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False)) as one:
            one.assign(list(stands))
            one.commit(stands)

    def damage(self, topic: str, value: bytes) -> None:
        """While it is stopped: turn a byte of a record's value on the disk."""
        (segment,) = (self._folder / "data" / f"{topic}-0").glob("*.log")
        data = segment.read_bytes()
        assert data.count(value) == 1
        segment.write_bytes(data.replace(value, value[:-1] + bytes([value[-1] ^ 1])))

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])

    def keep_all(self, topic: str) -> None:
        """No record of a topic goes any more."""
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.bytes": "-1"})])

    def delete(self, topic: str) -> None:
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            admin.delete_topics([topic])

    def produce(self, topic: str, records: Iterable[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]]) -> None:
        """Records are partition, key, value and headers. Returns when all are acknowledged."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5, acks="all")
        for partition, key, value, headers in records:
            producer.send(topic, value=value, key=key, headers=headers, partition=partition)
        producer.flush()
        producer.close()

    def _keytool(self, *args: str) -> None:
        store = [
            "-alias",
            "broker",
            "-storetype",
            "PKCS12",
            "-keystore",
            str(self._folder / "broker.p12"),
            "-storepass",
            "changeit",
        ]
        subprocess.run([str(Path(find_java()).with_name("keytool")), *args, *store], check=True, capture_output=True)

    def _java(self, *args: str) -> subprocess.Popen[bytes]:
        with open(self._folder / "broker.log", "ab") as log:
            command = [find_java(), *self._java_options, "-cp", self._classpath, *args]
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def jars_of_kafka() -> list[Path]:
    """The jars of the broker, downloaded once."""
    return ensure_jars(default_folder().with_name("kafka"), parse_lock(_LOCK.read_text()))


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


if __name__ == "__main__":
    jars_of_kafka()
