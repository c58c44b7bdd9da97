"""The configuration: one YAML file, read into the frozen tree of `model.py`.

    version: 1                             required
    clusters:                              required, at least one; the name is lower case, as in `names.py`
      eu:                                  either `root`, or `catalog` and `schema`
        root: /data/eu                     a path, relative to this file, or a URI; tables are folders below it
        catalog: prod                      tables are of a catalog, Unity Catalog or another
        schema: geo_eu
        checkpoints: /Volumes/geo/eu       a path or URI; default <root>/checkpoints, required with a catalog
        spark_conf:                        Spark settings by which the cluster is reached; secrets only as references
          fs.s3a.bucket.eu.access.key: secret://env/EU_KEY    or secret://file/ABSOLUTE_PATH
        storage:                           how an S3 root is reached, in object_store's words (deltalake's storage_options); secrets only as references
          aws_region: eu-west-1
        owner_timeout: 5 minutes           a runner on another host that is silent for so long is replaced; 30 seconds or more
    links:                                 default none
      - source: us                         required; the cluster that is read
        target: eu                         required; the cluster that reads, runs the link and is written
        topics: [persistent://*/*/*]       globs; default all
        start: earliest                    or latest; default earliest
        origins: [us]                      whose messages cross; default the source's. More: forwarding through a hub
        carry: both                        or messages, or acks: only the acknowledgements of subscriptions; default both
        num_fetchers: 4                    how many batches of the link run at once; default 4
        dispatch_rate:                     how much of each topic it brings per second; default any number
          messages_per_second: 1000
          bytes_per_second: 10000000
        expect_every: 1 day                where it is run by a schedule, how often: only after one and a half of it it is missed; default none
    topics:                                default none; the first match wins
      - match: persistent://shop/*/*       required; a glob. System topics (__acks) only if its name starts with __
        message_ttl: 7 days                <int> seconds|minutes|hours|days|weeks; default none, messages do not expire
        longest_outage: 7 days             how long a link may be away and still find what it has to read; default 7 days
        replication_clusters: [eu, us]     only links between these carry the topic; default all. One alone: no replication
        dispatch_rate:                     as of a link, which it replaces; the first match that has one counts; default the link's
          messages_per_second: 100
        replicate_subscription_state: true whether regions share a subscription that is created on it; the first match that says so counts; default
                                           true. false: it is of its own region only
    snapshots:                             of topics with version subscriptions
      frequency: 10 seconds                at most so often one is taken; default 10 seconds. Each is some commits of the log: see docs/guarantees.md
      timeout: 30 seconds                  after so long one is given up; default 30 seconds
      max_cached: 30                       so many each subscription keeps that it has still to pass; default 30, 3 to 300
    placement:                             default none: a cluster has one broker. With it, be it `{}`, several share its topics
      broker_timeout: 30 seconds           a broker that says nothing for so long is taken for dead; default 30 seconds
      bundles: 4                           how many parts a namespace has at first; default 4
      strategy: LeastLongTermMessageRate   who gets a bundle; one of STRATEGIES, default the first
      shedder: ThresholdShedder            who gives one up; one of SHEDDERS, default the first
      settings:                            as in `placement.Settings`, Pulsar's without loadBalancer
        shedding_interval_s: 60
    kafka:                                 default none: PLAINTEXT; how Kafka is reached, by its bootstrap servers
      broker-1:9092,broker-2:9092:
        security_protocol: SASL_SSL        settings of kafka-python, those of KAFKA_SETTINGS; secrets only as references
        sasl_plain_password: secret://env/KAFKA_PASSWORD
    publish:                               default none; what `geo broker` publishes
      - cluster: eu                        required; the cluster whose broker does it
        topic: persistent://shop/web/sales required
        producer: default                  the name under which progress is kept; default `default`
        jsonl: /data/in                    a JSON lines file or a directory of them, relative to this file; or
        kafka: broker-1:9092,broker-2:9092 bootstrap servers, and
        kafka_topic: sales                 the Kafka topic to read, one ledger per partition
        kafka_start: earliest              or latest: where to begin when nothing was published yet; default earliest

Every finding is reported with its line, all at once. What the tree itself allows is in `model.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from yaml.nodes import MappingNode, Node, SequenceNode

from geo.config.model import (
    Cluster,
    Config,
    DispatchRate,
    Link,
    Publication,
    Snapshots,
    TopicPolicy,
    check_carry,
    check_identifier,
    check_known,
    check_start,
    problems,
)
from geo.config.placement import BalancerSettings, Placement, parse_setting
from geo.config.secret import SECRET_FORMS, Secret
from geo.config.spark_conf import check_conf
from geo.config.yaml_nodes import MAX_CHARACTERS, Reader, duration_s, line_of, resolve_location
from geo.errors import ConfigError, UsageError
from geo.names import Topic, check_cluster, check_topic_glob, check_user_producer
from geo.text import show

T = TypeVar("T")

VERSION = "1"

KAFKA_SETTINGS = (
    "security_protocol", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "ssl_cafile", "ssl_certfile",
    "ssl_keyfile", "ssl_password", "ssl_check_hostname", "client_id",
)  # fmt: skip
_KAFKA_SECRETS = ("sasl_plain_password", "ssl_password")


def load(path: str | Path) -> Config:
    """The configuration in the file. Raises ConfigError: every finding as `file:line: what, allowed, suggestion`."""
    try:
        # Bounded before it is read: a path to the wrong file should not fill the memory. UTF-8 has up to 4 bytes.
        with open(path, "rb") as file:
            text = file.read(4 * MAX_CHARACTERS + 1).decode("utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: not UTF-8; save the file in that encoding"]) from None
    return parse(text, path=path)


def parse(text: str, *, path: str | Path) -> Config:
    """As `load`, of a text that is already read; `path` is for messages and as the start of relative paths."""
    reader = Reader(str(path))
    document = reader.document(text)
    fields = reader.fields(
        document, "the configuration", ("version", "clusters"), ("links", "topics", "snapshots", "placement", "kafka", "publish")
    )
    if "version" in fields and reader.word(fields["version"], "version", _check_version) is None:
        reader.finish()  # by another version every key may mean something else: nothing below is worth reading

    base = os.path.dirname(os.path.abspath(path))

    def resolve(text: str) -> str:
        return resolve_location(text, base)

    entries = reader.entries(fields.get("clusters"), "clusters")
    clusters: dict[str, Cluster] = {}
    lines: dict[int, int] = {}  # of each cluster and link, by id(): two equal links are still two findings
    for name, (key, node) in entries.items():
        cluster = _read_cluster(reader, name, line_of(key), node, resolve)
        if cluster is not None:
            clusters[name], lines[id(cluster)] = cluster, line_of(key)
    if isinstance(group := fields.get("clusters"), MappingNode) and not group.value:
        reader.refuse(group, "clusters is empty; expected: at least one cluster")

    links: list[Link] = []
    link_nodes = reader.items(fields.get("links"), "links")
    for node in link_nodes:
        link = _read_link(reader, node, entries)
        if link is not None:
            links.append(link)
            lines[id(link)] = line_of(node)
    policies = [_read_policy(reader, node, entries) for node in reader.items(fields.get("topics"), "topics")]
    snapshots = _read_snapshots(reader, fields.get("snapshots"))
    placement = _read_placement(reader, fields["placement"]) if "placement" in fields else None
    kafka = {
        servers: _read_kafka(reader, servers, node) for servers, (_, node) in reader.entries(fields.get("kafka"), "kafka").items()
    }

    publications: list[Publication] = []
    for node in reader.items(fields.get("publish"), "publish"):
        if (publication := _read_publication(reader, node, entries, resolve)) is not None:
            publications.append(publication)
            lines[id(publication)] = line_of(node)

    has_all_links = len(links) == len(link_nodes)  # otherwise a gap may be the link that could not be read
    # Those that policies name are looked up as they are read.
    for where, message in problems(list(clusters.values()), entries, links, (), publications, has_all_links=has_all_links):
        reader.refuse(lines[id(where)], message)
    reader.finish()
    found = tuple(policy for policy in policies if policy is not None)
    return Config(str(path), clusters, tuple(links), found, kafka, tuple(publications), snapshots, placement)


_GONE = {"single_driver": "single_driver is gone: any number of processes write an S3 root now; remove the line"}
"""Keys of a cluster that earlier programs had."""


def _read_cluster(reader: Reader, name: str, line: int, node: Node, resolve: Callable[[str], str]) -> Cluster | None:
    what = f"cluster {show(name)}"
    fields = reader.fields(
        node, what, (), ("root", "catalog", "schema", "checkpoints", "spark_conf", "storage", "owner_timeout"), _GONE
    )
    conf = _read_settings(reader, fields.get("spark_conf"), f"{what}: spark_conf", _conf_value)
    storage = _read_settings(reader, fields.get("storage"), f"{what}: storage", lambda _, text: _maybe_secret(text))

    before = reader.refused
    reader.attempt(line, lambda: check_cluster(name))
    location, identifier = partial(reader.text, check=resolve), partial(reader.word, check=check_identifier)
    reads: Reads = {
        "root": location, "catalog": identifier, "schema": identifier, "checkpoints": location,
        "owner_timeout_s": partial(reader.word, check=duration_s),
    }  # fmt: skip
    given = _given(fields, reads, f"{what}: ")
    if reader.refused > before or not isinstance(node, MappingNode):
        return None  # what is wrong is already said, and the rest would follow from it
    return reader.attempt(line, lambda: Cluster(name, spark_conf=conf, storage=storage, **given))


Reads = Mapping[str, Callable[[Node | None, str], Any]]
"""How each parameter of what is configured is read, from a node and what it is called."""


def _given(fields: Mapping[str, Node], reads: Reads, what: str = "") -> dict[str, Any]:
    """The parameters that the fields give, in the order of `reads`: neither those that are left out, which have their defaults, nor those that
    are wrong. One in seconds, `…_s`, is a duration under the key without that."""
    keys = {name: name.removesuffix("_s") for name in reads}
    found = {name: read(fields.get(keys[name]), f"{what}{keys[name]}") for name, read in reads.items()}
    return {name: value for name, value in found.items() if value not in (None, ())}


def _known(found: Mapping[str, T | None]) -> dict[str, T]:
    """Without what could not be read, as was said."""
    return {key: value for key, value in found.items() if value is not None}


def _read_settings(
    reader: Reader, node: Node | None, what: str, read: Callable[[str, str], str | Secret]
) -> dict[str, str | Secret]:
    """Settings by their names; `read` makes of a name and its text what it says."""
    of = what.rpartition(": ")[0]
    entries = reader.entries(node, what).items()
    return _known({key: reader.word(at, f"{of}: {show(key)}", partial(read, key)) for key, (_, at) in entries})


def _read_kafka(reader: Reader, servers: str, node: Node) -> dict[str, str | Secret]:
    what = f"kafka {show(servers)}"
    fields = reader.fields(node, what, (), KAFKA_SETTINGS).items()
    return _known({key: reader.word(at, f"{what}: {key}", partial(_kafka_value, key)) for key, at in fields})


def _read_link(reader: Reader, node: Node, clusters: Collection[str]) -> Link | None:
    more = ("topics", "start", "origins", "carry", "num_fetchers", "dispatch_rate", "expect_every")
    fields = reader.fields(node, "link", ("source", "target"), more)
    known = partial(check_known, clusters=clusters)
    reads: Reads = {
        "source": partial(reader.word, check=known),
        "target": partial(reader.word, check=known),
        "start": partial(reader.word, check=check_start),
        "carry": partial(reader.word, check=check_carry),
        "topics": partial(_read_list, reader, check=check_topic_glob),
        "origins": partial(_read_list, reader, check=known),
        "num_fetchers": partial(reader.word, check=_number),
        "dispatch_rate": partial(_read_dispatch_rate, reader),
        "expect_every_s": partial(reader.word, check=duration_s),
    }
    given = _given(fields, reads)
    if not given.keys() >= {"source", "target"}:
        return None
    return reader.attempt(line_of(node), lambda: Link(**given, line=line_of(node)))


def _read_dispatch_rate(reader: Reader, node: Node | None, what: str) -> DispatchRate | None:
    if node is None:
        return None
    kinds = ("messages_per_second", "bytes_per_second")
    given = _given(reader.fields(node, what, (), kinds), dict.fromkeys(kinds, partial(reader.word, check=_number)))
    return reader.attempt(line_of(node), lambda: DispatchRate(**given))


def _read_snapshots(reader: Reader, node: Node | None) -> Snapshots:
    if node is None:
        return Snapshots()
    fields = reader.fields(node, "snapshots", (), ("frequency", "timeout", "max_cached"))
    seconds, number = partial(reader.word, check=duration_s), partial(reader.word, check=_number)
    given = _given(fields, {"frequency_s": seconds, "timeout_s": seconds, "max_cached": number})
    return reader.attempt(line_of(node), lambda: Snapshots(**given)) or Snapshots()


def _read_placement(reader: Reader, node: Node) -> Placement | None:
    fields = reader.fields(node, "placement", (), ("broker_timeout", "bundles", "strategy", "shedder", "settings"))
    name = partial(reader.word, check=str)
    reads: Reads = {
        "broker_timeout_s": partial(reader.word, check=duration_s), "bundles": partial(reader.word, check=_number),
        "strategy": name, "shedder": name,
    }  # fmt: skip
    given = _given(fields, reads)
    entries = reader.entries(fields.get("settings"), "placement: settings").items()
    settings = _known({name: reader.word(value, name, partial(parse_setting, name)) for name, (_, value) in entries})
    return reader.attempt(line_of(node), lambda: Placement(settings=BalancerSettings(**settings), **given))


def _read_publication(reader: Reader, node: Node, clusters: Collection[str], resolve: Callable[[str], str]) -> Publication | None:
    more = ("producer", "jsonl", "kafka", "kafka_topic", "kafka_start")
    fields = reader.fields(node, "publish", ("cluster", "topic"), more)
    before = reader.refused
    reads: Reads = {
        "cluster": partial(reader.word, check=partial(check_known, clusters=clusters)),
        "topic": partial(reader.word, check=Topic.parse),
        "producer": partial(reader.word, check=check_user_producer),
        "jsonl": partial(reader.text, check=resolve),
        "kafka": partial(reader.text, check=str),
        "kafka_topic": partial(reader.text, check=str),
        "kafka_start": partial(reader.word, check=check_start),
    }
    given = _given(fields, reads)
    if not given.keys() >= {"cluster", "topic"} or reader.refused > before:
        return None
    return reader.attempt(line_of(node), lambda: Publication(**given))


def _read_list(reader: Reader, node: Node | None, what: str, check: Callable[[str], str]) -> tuple[str, ...]:
    items = reader.items(node, what)
    if isinstance(node, SequenceNode) and not items:
        reader.refuse(node, f"{what} is empty; leave it out for the default")
    words = (reader.word(item, what, check) for item in items)
    return tuple(word for word in words if word is not None)


def _read_policy(reader: Reader, node: Node, clusters: Collection[str]) -> TopicPolicy | None:
    more = ("message_ttl", "longest_outage", "replication_clusters", "dispatch_rate", "replicate_subscription_state")
    fields = reader.fields(node, "policy", ("match",), more)
    seconds = partial(reader.word, check=duration_s)
    reads: Reads = {
        "match": partial(reader.word, check=check_topic_glob),
        "message_ttl_s": seconds,
        "replication_clusters": partial(_read_list, reader, check=partial(check_known, clusters=clusters)),
        "longest_outage_s": seconds,
        "dispatch_rate": partial(_read_dispatch_rate, reader),
        "replicate_subscription_state": partial(reader.word, check=_flag),
    }
    given = _given(fields, reads)
    return TopicPolicy(**given, line=line_of(node)) if "match" in given else None


def _number(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 15:
        raise UsageError(f"{show(text)} is no whole number; expected: digits only, such as 1000")
    return int(text)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise UsageError(f"{show(text)} is neither true nor false")
    return text == "true"


def _check_version(text: str) -> str:
    if text != VERSION:
        raise UsageError(f"{show(text)} is unknown; this program reads version {VERSION}")
    return text


def _conf_value(key: str, text: str) -> str | Secret:
    value = _maybe_secret(text)
    check_conf(key, value)
    return value


def _maybe_secret(text: str) -> str | Secret:
    return Secret(text) if text.lower().startswith("secret:") else text


def _kafka_value(key: str, text: str) -> str | Secret:
    if key in _KAFKA_SECRETS and not text.lower().startswith("secret:"):
        raise UsageError(f"{key} is a secret, its value (not shown) stands open; expected: {SECRET_FORMS}")
    return Secret(text) if text.lower().startswith("secret:") else text
