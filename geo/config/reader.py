"""The configuration: one YAML file, read into the frozen tree of `model.py`. Every key is in `keys.py`, and in docs/configuration.md, which is made of it.

Every finding is reported with its line, all at once. What the tree itself allows is in `model.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from yaml.nodes import MappingNode, Node, SequenceNode

from geo.config.choices import check_carry, check_schema_change, check_start, check_updates
from geo.config.cluster import Cluster, check_identifier
from geo.config.keys import CLUSTERS, LINKS, PLACEMENT, PUBLISH, RATE, SNAPSHOTS, TOPICS, KeyKind, KeysOf
from geo.config.model import Config, DispatchRate, Link, Snapshots, TopicPolicy, check_known, problems
from geo.config.placement import BalancerSettings, Placement, parse_setting
from geo.config.publication import Publication
from geo.config.secret import SECRET_FORMS, Secret
from geo.config.spark_conf import check_conf
from geo.config.yaml_nodes import MAX_CHARACTERS, Reader, line_of, resolve_location
from geo.errors import ConfigError, UsageError
from geo.names import Topic, check_cluster, check_topic_glob, check_user_producer
from geo.text import show
from geo.times import duration_s

T = TypeVar("T")

VERSION = "1"

KAFKA_SETTINGS = (
    "security_protocol", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "ssl_cafile", "ssl_certfile",
    "ssl_keyfile", "ssl_password", "ssl_check_hostname", "client_id",
)  # fmt: skip
KAFKA_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
KAFKA_CHOICES = {
    "security_protocol": KAFKA_PROTOCOLS,
    "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "AWS_MSK_IAM"),
    "ssl_check_hostname": ("true", "false"),
}
KAFKA_SECRETS = ("sasl_plain_password", "ssl_password")


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


def read(config: Config | str | Path) -> Config:
    """The configuration, or the one in the file of that path. Raises as `load`."""
    return config if isinstance(config, Config) else load(config)


def parse(text: str, *, path: str | Path) -> Config:
    """Reads as `load` a text that is already there; `path` is for messages and as the start of relative paths."""
    reader = Reader(str(path))
    document = reader.document(text)
    more = ("links", "topics", "snapshots", "placement", "kafka", "publish")
    fields = reader.fields(document, "the configuration", ("version", "clusters"), more)
    if "version" in fields and reader.word(fields["version"], "version", _check_version) is None:
        reader.finish()  # by another version every key may mean something else: nothing below is worth reading

    base = os.path.dirname(os.path.abspath(path))

    def resolve(text: str) -> str:
        return resolve_location(text, base)

    entries = reader.entries(fields.get("clusters"), "clusters")
    kinds = _kinds(reader, entries, resolve)
    clusters: dict[str, Cluster] = {}
    lines: dict[int, int] = {}  # of each cluster and link, by id(): two equal links are still two findings
    for name, (key, node) in entries.items():
        cluster = _read_cluster(reader, kinds, name, line_of(key), node)
        if cluster is not None:
            clusters[name], lines[id(cluster)] = cluster, line_of(key)
    if isinstance(group := fields.get("clusters"), MappingNode) and not group.value:
        reader.refuse(group, "clusters is empty; expected: at least one cluster")

    links: list[Link] = []
    link_nodes = reader.items(fields.get("links"), "links")
    for node in link_nodes:
        link = _read_link(reader, kinds, node)
        if link is not None:
            links.append(link)
            lines[id(link)] = line_of(node)
    policies = [_read_policy(reader, kinds, node) for node in reader.items(fields.get("topics"), "topics")]
    snapshots = _read_snapshots(reader, kinds, fields.get("snapshots"))
    placement = _read_placement(reader, kinds, fields["placement"]) if "placement" in fields else None
    kafka = {
        servers: _read_kafka(reader, servers, node) for servers, (_, node) in reader.entries(fields.get("kafka"), "kafka").items()
    }

    publications: list[Publication] = []
    for node in reader.items(fields.get("publish"), "publish"):
        if (publication := _read_publication(reader, kinds, node)) is not None:
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

_NONE_GONE: Mapping[str, str] = MappingProxyType({})


Kinds = Mapping[KeyKind, Callable[[Node | None, str], Any]]
"""Readers of the values behind keys, each from a node and what it is called."""


def _kinds(reader: Reader, clusters: Collection[str], resolve: Callable[[str], str]) -> Kinds:
    def word(check: Callable[[str], Any]) -> Callable[[Node | None, str], Any]:
        return partial(reader.word, check=check)

    def text(check: Callable[[str], Any]) -> Callable[[Node | None, str], Any]:
        return partial(reader.text, check=check)

    known = partial(check_known, clusters=clusters)
    return {
        KeyKind.DURATION: word(duration_s), KeyKind.NUMBER: word(_number), KeyKind.FLAG: word(_flag), KeyKind.START: word(check_start),
        KeyKind.CARRY: word(check_carry), KeyKind.UPDATES: word(check_updates), KeyKind.SCHEMA: word(check_schema_change), KeyKind.CLUSTER: word(known), KeyKind.CLUSTERS: partial(_read_list, reader, check=known),
        KeyKind.GLOB: word(check_topic_glob), KeyKind.GLOBS: partial(_read_list, reader, check=check_topic_glob),
        KeyKind.LOCATION: text(resolve), KeyKind.IDENTIFIER: word(check_identifier), KeyKind.TOPIC: word(Topic.parse),
        KeyKind.PRODUCER: word(check_user_producer), KeyKind.NAME: word(str), KeyKind.TEXT: text(str),
        KeyKind.RATE: partial(_read_dispatch_rate, reader), KeyKind.COLUMNS: partial(_read_list, reader, check=str),
        KeyKind.TABLE: text(lambda place: resolve(place) if "/" in place else place),
    }  # fmt: skip


def _fields(reader: Reader, of: KeysOf, node: Node | None, what: str, gone: Mapping[str, str] = _NONE_GONE) -> dict[str, Node]:
    return reader.fields(node, what, of.required, of.optional, gone)


def _given(kinds: Kinds, of: KeysOf, fields: Mapping[str, Node], what: str = "") -> dict[str, Any]:
    """The parameters that the fields give, in the order of the keys. Those that are left out, which have their defaults, and those that are wrong
    are not among them. Settings are read for themselves."""
    keys = [key for key in of.keys if key.kind is not KeyKind.SETTINGS]
    found = {key.parameter: kinds[key.kind](fields.get(key.name), f"{what}{key.name}") for key in keys}
    return {name: value for name, value in found.items() if value not in (None, ())}


def _read_cluster(reader: Reader, kinds: Kinds, name: str, line: int, node: Node) -> Cluster | None:
    what = f"cluster {show(name)}"
    fields = _fields(reader, CLUSTERS, node, what, _GONE)
    conf = _read_settings(reader, fields.get("spark_conf"), f"{what}: spark_conf", _conf_value)
    storage = _read_settings(reader, fields.get("storage"), f"{what}: storage", lambda _, text: _maybe_secret(text))

    before = reader.refused
    reader.attempt(line, lambda: check_cluster(name))
    given = _given(kinds, CLUSTERS, fields, f"{what}: ")
    if reader.refused > before or not isinstance(node, MappingNode):
        return None  # what is wrong is already said, and the rest would follow from it
    return reader.attempt(line, lambda: Cluster(name, spark_conf=conf, storage=storage, **given))


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


def _read_link(reader: Reader, kinds: Kinds, node: Node) -> Link | None:
    given = _given(kinds, LINKS, _fields(reader, LINKS, node, "link"))
    if not given.keys() >= {"source", "target"}:
        return None
    return reader.attempt(line_of(node), lambda: Link(**given, line=line_of(node)))


def _read_dispatch_rate(reader: Reader, node: Node | None, what: str) -> DispatchRate | None:
    if node is None:
        return None
    numbers = {KeyKind.NUMBER: partial(reader.word, check=_number)}
    given = _given(numbers, RATE, _fields(reader, RATE, node, what))
    return reader.attempt(line_of(node), lambda: DispatchRate(**given))


def _read_snapshots(reader: Reader, kinds: Kinds, node: Node | None) -> Snapshots:
    if node is None:
        return Snapshots()
    given = _given(kinds, SNAPSHOTS, _fields(reader, SNAPSHOTS, node, "snapshots"))
    return reader.attempt(line_of(node), lambda: Snapshots(**given)) or Snapshots()


def _read_placement(reader: Reader, kinds: Kinds, node: Node) -> Placement | None:
    fields = _fields(reader, PLACEMENT, node, "placement")
    given = _given(kinds, PLACEMENT, fields)
    entries = reader.entries(fields.get("settings"), "placement: settings").items()
    settings = _known({name: reader.word(value, name, partial(parse_setting, name)) for name, (_, value) in entries})
    return reader.attempt(line_of(node), lambda: Placement(settings=BalancerSettings(**settings), **given))


def _read_publication(reader: Reader, kinds: Kinds, node: Node) -> Publication | None:
    fields = _fields(reader, PUBLISH, node, "publish")
    before = reader.refused
    given = _given(kinds, PUBLISH, fields)
    if not given.keys() >= {"cluster", "topic"} or reader.refused > before:
        return None
    return reader.attempt(line_of(node), lambda: Publication(**given))


def _read_list(reader: Reader, node: Node | None, what: str, check: Callable[[str], str]) -> tuple[str, ...]:
    items = reader.items(node, what)
    if isinstance(node, SequenceNode) and not items:
        reader.refuse(node, f"{what} is empty; leave it out for the default")
    words = (reader.word(item, what, check) for item in items)
    return tuple(word for word in words if word is not None)


def _read_policy(reader: Reader, kinds: Kinds, node: Node) -> TopicPolicy | None:
    given = _given(kinds, TOPICS, _fields(reader, TOPICS, node, "policy"))
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
    if key in KAFKA_SECRETS and not text.lower().startswith("secret:"):
        raise UsageError(f"{key} is a secret, its value (not shown) stands open; expected: {SECRET_FORMS}")
    if text not in KAFKA_CHOICES.get(key, (text,)):
        raise UsageError(f"{show(text)} is unknown; expected: {' or '.join(KAFKA_CHOICES[key])}")
    return _maybe_secret(text)
