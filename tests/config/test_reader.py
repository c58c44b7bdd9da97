"""The configuration: what is right becomes a tree, what is wrong is said all at once, with its line, and no secret."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from geo.config.cluster import Cluster
from geo.config.model import Config, DispatchRate, Link, TopicPolicy
from geo.config.publication import Publication
from geo.config.reader import load, parse
from geo.config.secret import Secret
from geo.config.yaml_nodes import MAX_CHARACTERS, contains
from geo.errors import ConfigError, UsageError
from geo.names import Topic
from geo.times import MAX_DURATION_S

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = Topic("public", "default", "flights")

MESH = """\
version: 1
clusters:
  eu: {root: /data/eu}
  us: {root: /data/us}
  asia: {root: /data/asia}
links:
"""
HUB = MESH + "  - {source: asia, target: us}\n  - {source: us, target: eu, origins: [us, asia]}\n"
_ASIA = "  - {source: asia, target: eu, topics: ['persistent://a/*/*']}"
_FORWARDS = "  - {source: eu, target: us}\n  - {source: us, target: eu, origins: [us, asia]}"


def _findings(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse(text, path="geo.yaml")
    return list(refused.value.findings)


def _finding(text: str) -> str:
    findings = _findings(text)
    assert len(findings) == 1, findings
    return findings[0]


def _cluster(fields: str) -> str:
    return f"version: 1\nclusters:\n  eu: {fields}\n"


def _publish(entries: str) -> str:
    return (
        _cluster(f"{{root: /a}}\npublish: [{entries}]")
        .replace("topic: T", 'topic: "persistent://a/b/c"')
        .replace('c"/__acks', '__acks"')
    )


def _link(entry: str) -> str:
    return MESH + f"  - {{source: us, target: eu, {entry}}}\n"


# What is right


def test_the_example_is_a_configuration() -> None:
    config = load(ROOT / "conf" / "example.yaml")
    assert sorted(config.clusters) == ["eu", "us"]
    assert [link.name for link in config.links] == ["us->eu", "eu->us"]
    assert config.policy(FLIGHTS).message_ttl_s == 7 * 86_400
    assert config.policy(Topic("flights", "audit", "x")).message_ttl_s is None


def test_every_key_becomes_a_field() -> None:
    config = parse(
        dedent("""\
        version: 1
        clusters:
          eu: {root: s3a://geo-eu/a/, spark_conf: {fs.s3a.access.key: "secret://env/K", fs.s3a.secret.key: "secret://env/K"}}
          us: {catalog: prod, schema: geo_us, checkpoints: /Volumes/geo/us, owner_timeout: 90 seconds}
        links:
          - {source: us, target: eu, topics: ["persistent://public/*/*"], start: latest, origins: [us]}
        topics:
          - {match: "persistent://public/*/f?", message_ttl: 1 week}
          - {match: "persistent://*/*/*"}
        """),
        path="geo.yaml",
    )
    conf: dict[str, str | Secret] = {"fs.s3a.access.key": Secret("secret://env/K"), "fs.s3a.secret.key": Secret("secret://env/K")}
    eu = Cluster("eu", root="s3a://geo-eu/a", checkpoints="s3a://geo-eu/a/checkpoints", spark_conf=conf)
    us = Cluster("us", catalog="prod", schema="geo_us", checkpoints="/Volumes/geo/us", owner_timeout_s=90)
    assert eu.owner_timeout_s == 300, "the default"
    assert eu.reached == dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), Secret("secret://env/K"))
    link = Link("us", "eu", ("persistent://public/*/*",), "latest", ("us",))
    policies = (TopicPolicy("persistent://public/*/f?", 604_800), TopicPolicy("persistent://*/*/*"))
    assert config == Config("geo.yaml", {"eu": eu, "us": us}, (link,), policies)


def test_links_and_topics_may_be_left_out() -> None:
    config = parse(_cluster("{root: /data/eu}"), path="geo.yaml")
    assert (config.links, config.policies) == ((), ())
    assert config.policy(FLIGHTS) == TopicPolicy("persistent://*/*/*", None)


def test_a_link_carries_the_source_s_messages_of_all_topics_from_the_earliest_unless_told() -> None:
    link = parse(MESH + "  - {source: us, target: eu}", path="geo.yaml").link("us", "eu")
    assert (link.topics, link.start, link.origins) == (("persistent://*/*/*",), "earliest", ("us",))
    assert link.carries(Topic("a", "b", "__acks"))
    assert not Link("us", "eu", ("persistent://a/*/*",)).carries(FLIGHTS)


def test_a_relative_path_starts_at_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "geo.yaml"
    file.write_text("version: 1\nclusters: {eu: {root: ../data//eu/}, us: {root: us, checkpoints: cp}}\n")
    monkeypatch.chdir(tmp_path)
    for path in (file, "conf/geo.yaml"):
        config = load(path)
        assert config.path == str(path)
        assert config.cluster("eu").root == str(tmp_path / "data" / "eu")
        assert config.cluster("us").checkpoints == str(tmp_path / "conf" / "cp")


@pytest.mark.parametrize(
    "uri",
    ["s3a://b/geo", "abfss://c@account.dfs.core.windows.net/geo", "dbfs:/geo", "file:///geo"],
)
def test_a_uri_is_kept_as_it_is(uri: str) -> None:
    assert parse(_cluster(f'{{root: "{uri}"}}'), path="geo.yaml").cluster("eu").root == uri


def test_a_cluster_may_be_called_no_which_yaml_takes_for_false() -> None:
    text = "version: 1\nclusters: {no: {root: /a}, se: {root: /b}}\nlinks: [{source: no, target: se}]"
    config = parse(text, path="geo.yaml")
    assert config.link("no", "se").origins == ("no",)


def test_the_first_policy_that_matches_wins() -> None:
    text = _cluster("{root: /a}") + dedent("""\
        topics:
          - {match: "persistent://public/default/flights", message_ttl: 30 seconds}
          - {match: "persistent://public/*/*", message_ttl: 2 hours}
        """)
    config = parse(text, path="geo.yaml")
    assert config.policy(FLIGHTS).message_ttl_s == 30
    assert config.policy(Topic("public", "x", "y")).message_ttl_s == 7200
    assert config.policy(Topic("other", "x", "y")).message_ttl_s is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1 second", 1), ("90 seconds", 90), ("1 minute", 60), ("2 hours", 7200), ("1 day", 86_400), ("5min", 300)],
)
def test_durations_are_read_in_their_units(text: str, seconds: int) -> None:
    config = parse(_cluster("{root: /a}") + f'topics: [{{match: "persistent://*/*/*", message_ttl: {text}}}]', path="g")
    assert config.policies[0].message_ttl_s == seconds


def test_inbound_links_are_those_that_a_cluster_runs() -> None:
    config = parse(HUB, path="geo.yaml")
    assert [link.name for link in config.inbound("eu")] == ["us->eu"]
    assert config.inbound("asia") == ()


def test_nothing_in_the_tree_can_be_changed() -> None:
    config = parse(HUB, path="geo.yaml")
    for mapping in (config.clusters, config.cluster("eu").spark_conf):
        with pytest.raises(TypeError):
            mapping["x"] = "y"  # type: ignore[index]  # what the test is about
    with pytest.raises(AttributeError):
        config.cluster("eu").root = "/elsewhere"  # type: ignore[misc]  # what the test is about


# Asking


def test_an_unknown_cluster_is_a_usage_error_with_a_suggestion() -> None:
    config = parse(HUB, path="geo.yaml")
    for ask in (config.cluster, config.inbound, lambda name: config.link(name, "eu")):
        with pytest.raises(UsageError, match=r"^cluster 'asai' is unknown; clusters: eu, us, asia; .* 'asia'\?$"):
            ask("asai")


def test_a_link_that_is_not_there_is_a_usage_error_which_names_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"no link eu->us; links: asia->us, us->eu$"):
        parse(HUB, path="geo.yaml").link("eu", "us")


def test_hubs_are_the_clusters_on_the_way() -> None:
    chain = dedent("""\
        version: 1
        clusters: {a: {root: /a}, b: {root: /b}, c: {root: /c}, d: {root: /d}}
        links:
          - {source: a, target: b}
          - {source: b, target: c, origins: [a, b]}
          - {source: c, target: d, origins: [a], topics: ["persistent://public/*/*"]}
        """)
    config = parse(chain, path="geo.yaml")
    assert config.hubs("a", "b", FLIGHTS) == ()
    assert config.hubs("a", "c", FLIGHTS) == ("b",)
    assert config.hubs("a", "d", FLIGHTS) == ("b", "c")
    assert config.hubs("b", "c", FLIGHTS) == ()
    assert config.hubs("b", "d", FLIGHTS) is None
    assert config.hubs("c", "d", FLIGHTS) is None
    assert config.hubs("d", "a", FLIGHTS) is None
    assert config.hubs("a", "a", FLIGHTS) == ()
    assert config.hubs("a", "d", Topic("other", "x", "y")) is None
    assert config.hubs("a", "c", Topic("other", "x", "y")) == ("b",)


def test_a_topic_that_the_first_link_does_not_carry_is_not_forwarded_by_the_second() -> None:
    text = HUB.replace("target: us}", 'target: us, topics: ["persistent://public/*/*"]}')
    config = parse(text, path="geo.yaml")
    assert config.hubs("asia", "eu", FLIGHTS) == ("us",)
    assert config.hubs("asia", "eu", Topic("other", "x", "y")) is None


# What is wrong, and where


def test_everything_wrong_is_said_at_once_in_the_order_of_the_lines() -> None:
    findings = _findings(
        dedent("""\
        version: 1
        clusters:
          eu: {rooot: /data/eu}
          US: {root: /data/us}
          asia: {root: /data/asia, spark_conf: {fs.s3a.secret.key: hunter2}}
          africa: {root: /data/asia/inner}
        links:
          - {source: asai, target: africa}
          - {source: asia, target: asia}
          - {source: asia, target: africa, start: late, topics: ["flights*", "persistent://a/b/c"]}
          - {source: asia, target: africa}
        topics:
          - {match: "persistent://*/*/*", message_ttl: 7}
          - {message_ttl: 7 days}
        linkz: []
        """)
    )
    assert [finding.split(": ")[0] for finding in findings] == [
        f"geo.yaml:{line}" for line in (3, 3, 4, 5, 6, 8, 9, 10, 10, 11, 13, 14, 15)
    ]
    for finding, part in zip(
        findings,
        [
            "unknown key 'rooot'; allowed: root, catalog, schema, checkpoints, spark_conf, storage, owner_timeout; did you mean 'root'?",
            "expected either root, or catalog and schema",
            "cluster 'US' has 'U' as character 1",
            "fs.s3a.secret.key looks like a secret",
            "cluster africa shares storage with asia: /data/asia/inner and /data/asia",
            "cluster 'asai' is unknown; clusters: eu, US, asia, africa; did you mean 'asia'?",
            "a cluster needs no link to itself",
            "topic glob 'flights*' is not of the form",
            "start cannot be 'late'; allowed: earliest, latest; did you mean 'latest'?",
            "link asia->africa is there twice",
            "'7' is not a duration; allowed: <int> seconds|minutes|hours|days|weeks, such as 7 days",
            "match is missing",
            "unknown key 'linkz'; allowed: version, clusters, links, topics, snapshots, placement, kafka, publish; did you mean 'links'?",
        ],
        strict=True,
    ):
        assert part in finding


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the file is empty"),
        ("# only a comment\n", 1, "the file is empty"),
        ("- a\n", 1, "the configuration is a list; expected: a mapping"),
        ("clusters: {eu: {root: /a}}", 1, "version is missing"),
        ("version: 1\n", 1, "clusters is missing"),
        ("\nversion: 2\nclusters: 5\n", 2, "version: '2' is unknown; this program reads version 1"),
        ("version: 1\nclusters: {}\n", 2, "clusters is empty; expected: at least one cluster"),
        ("version: 1\nclusters:\n", 2, "clusters is empty; expected: a mapping"),
        ("version: 1\nclusters: [eu]\n", 2, "clusters is a list; expected: a mapping"),
        ("version: 1\nclusters:\n  eu:\n", 3, "cluster 'eu' is empty; expected: a mapping"),
        ("version: 1\nclusters:\n  ? [eu]\n  : {root: /a}\n  us: {root: /b}\n", 3, "a key of clusters is a list"),
        (_cluster("{root: /a}\n  us: {root: /b}\n  eu: {root: /c}"), 5, "clusters has 'eu' twice; first in line 3"),
        (_cluster("{root: /a, root: /b}"), 3, "cluster 'eu' has 'root' twice; first in line 3"),
        (_cluster("{root: /a}\nversion: 1"), 4, "the configuration has 'version' twice; first in line 1"),
        (_cluster("{}"), 3, "expected either root, or catalog and schema"),
        (_cluster("{root: /a, catalog: c, schema: s}"), 3, "expected either root, or catalog and schema"),
        (_cluster("{catalog: c, checkpoints: /cp}"), 3, "catalog and schema belong together"),
        (_cluster("{root: /a, schema: s}"), 3, "catalog and schema belong together"),
        (_cluster("{catalog: c, schema: s}"), 3, "checkpoints (a path or URI) is required with a catalog"),
        (_cluster('{catalog: "c.d", schema: s, checkpoints: /cp}'), 3, "catalog: 'c.d' is no identifier"),
        (_cluster('{catalog: c, schema: "s`", checkpoints: /cp}'), 3, "schema: 's`' is no identifier"),
        (_cluster("{root: 5}"), 3, "root is of type int; expected: text"),
        (_cluster("{root: yes}"), 3, "root is of type bool; expected: text"),
        (_cluster("{root: [/a]}"), 3, "root is a list; expected: text"),
        (_cluster("{root: }"), 3, "root is empty; expected: text"),
        (_cluster('{root: " "}'), 3, "root: an empty location"),
        (_cluster('{root: "/a/*"}'), 3, "root: '*' in a location"),
        (_cluster('{root: "/a`b"}'), 3, "root: '`' in a location"),
        (_cluster('{root: "s3a://b/../c"}'), 3, "root: '..' in a location"),
        (_cluster("{root: /a, checkpoints: /a/system/cp}"), 3, "checkpoints would lie among its tables"),
        (_cluster("{root: /a, checkpoints: topics}").replace("topics", "/a/topics"), 3, "would lie among its tables"),
        (_cluster("{root: /a, single_driver: true}"), 3, "single_driver is gone: any number of processes write an S3 root now"),
        (_cluster("{root: /Volumes/prod/geo/eu}"), 3, "cluster eu: root is in a volume (/Volumes/…)"),
        (_cluster("{root: s3a://b--use1-az4--x-s3/a}"), 3, "cluster eu: root: S3 directory buckets list no names in order"),
        (
            _cluster('{root: "s3a://arn:aws:s3::123456789012:accesspoint/m.mrap/a"}'),
            3,
            "cluster eu: root is a multi-region access point",
        ),
        (_cluster("{root: s3a://b/a, storage: {root_certificate: x}}"), 3, "root_certificate is not taken: a private CA"),
        (
            _cluster("{root: /a, storage: {aws_region: x}}"),
            3,
            "storage says how an S3 root is reached, and this cluster has none; take it out",
        ),
        (_cluster("{root: s3a://b/a, storage: {aws_regoin: x}}"), 3, "no option 'aws_regoin'; did you mean 'aws_region'?"),
        (
            _cluster("{root: s3a://b/a, storage: {aws_session_token: x}}"),
            3,
            "aws_session_token is a secret, its value (not shown)",
        ),
        (_cluster("{root: s3a://b/a, storage: {aws_access_key_id: x}}"), 3, "aws_access_key_id and aws_secret_access_key belong"),
        (
            _cluster("{root: s3a://b/a, storage: {aws_region: x}, spark_conf: {fs.s3a.endpoint.region: x}}"),
            3,
            "storage and spark_conf both say aws_region, how S3 is reached; say it once",
        ),
        (_cluster('{root: s3a://b/a, storage: {aws_endpoint_url: "http://h"}}'), 3, "to allow that say aws_allow_http: true"),
        (_cluster("{root: s3a://b/a, storage: {aws_server_side_encryption: x}}"), 3, "'x'; allowed: AES256, aws:kms"),
        (_cluster("{root: s3a://b/a, spark_conf: {fs.s3a.assumed.role.arn: x}}"), 3, "say it in `storage`"),
        (
            _cluster("{root: s3a://b/a, spark_conf: {fs.s3a.aws.credentials.provider: a.Vault}}"),
            3,
            "'a.Vault' is known to Spark alone",
        ),
        (_cluster("{root: /a, owner_timeout: 5}"), 3, "owner_timeout: '5' is not a duration"),
        (_cluster("{root: /a, owner_timeout: 29 seconds}"), 3, "cluster eu: owner_timeout 29 s; allowed: 30 to "),
        (_cluster("{root: /a, owner_timout: 5 minutes}"), 3, "storage, owner_timeout; did you mean 'owner_timeout'?"),
        (_cluster("{root: /a, spark_conf: [x]}"), 3, "spark_conf is a list; expected: a mapping"),
        (_cluster("{root: /a, spark_conf: {x: [1]}}"), 3, "'x' is a list; expected: text"),
        (_cluster('{root: /a, spark_conf: {"x y": 1}}'), 3, "'x y' is no Spark setting"),
        (_cluster("{root: /a}\nkafka: {b: {sasl_plain_password: x}}"), 4, "is a secret, its value (not shown) stands open"),
        (_cluster("{root: /a}\nkafka: {b: {sasl_mechanisms: PLAIN}}"), 4, "did you mean 'sasl_mechanism'?"),
        (_cluster('{root: /a}\ntopics: [{match: "persistent://*/*/*", replication_clusters: [us]}]'), 4, "us"),
        (_cluster('{root: /a}\ntopics: [{match: "persistent://*/*/*", longest_outage: 5}]'), 4, "longest_outage: '5' is not"),
        (_cluster("{root: /a}\nsnapshots: {max_cached: 2}"), 4, "snapshots: max_cached 2; allowed: 3 to 300"),
        (_cluster("{root: /a}\nsnapshots: {max_cached: 301}"), 4, "snapshots: max_cached 301; allowed: 3 to 300"),
        (
            _cluster("{root: /a}\nsnapshots: {frequency: 2 seconds, timeout: 201 seconds}"),
            4,
            "timeout 201 s; allowed: 1 to 100 times",
        ),
        (_publish("{cluster: us, topic: T, jsonl: in}"), 4, "cluster: cluster 'us' is unknown; clusters: eu"),
        (_publish("{cluster: eu, jsonl: in}"), 4, "publish: topic is missing"),
        (_publish("{cluster: eu, topic: clicks, jsonl: in}"), 4, "topic: topic 'clicks' is not of the form"),
        (
            _publish("{cluster: eu, topic: T, jsonl: in, kafka: b}"),
            4,
            "expected one of jsonl, kafka (with kafka_topic) and delta",
        ),
        (_publish("{cluster: eu, topic: T}"), 4, "expected one of jsonl, kafka (with kafka_topic) and delta"),
        (_publish("{cluster: eu, topic: T, kafka: b}"), 4, "kafka and kafka_topic belong together"),
        (_publish("{cluster: eu, topic: T, jsonl: in, kafka_topic: t}"), 4, "kafka and kafka_topic belong together"),
        (_publish("{cluster: eu, topic: T, kafka: b, kafka_topic: t, kafka_start: now}"), 4, "start cannot be 'now'"),
        (_publish("{cluster: eu, topic: T, delta: t, schema: grew}"), 4, "schema cannot be 'grew'; allowed: fixed, grow"),
        (_publish("{cluster: eu, topic: T, jsonl: in, kafka_start: latest}"), 4, "kafka_start belongs to kafka"),
        (_publish("{cluster: eu, topic: T, jsonl: in, producer: a/b}"), 4, "producer: "),
        (_publish("{cluster: eu, topic: T, jsonl: in, producer: geo-markers}"), 4, "geo-markers is delta-geo itself"),
        (_publish("{cluster: eu, topic: T, jsonl: in, kafka_topics: t}"), 4, "did you mean 'kafka_topic'?"),
        (_publish("{cluster: eu, topic: T/__acks, jsonl: in}"), 4, "is a system topic"),
        (_publish("{cluster: eu, topic: T, jsonl: in}, {cluster: eu, topic: T, jsonl: other}"), 4, "by default is there twice"),
        (_cluster("{root: /a}\nlinks: {source: a}"), 4, "links is a mapping; expected: a list"),
        (_cluster("{root: /a}\nlinks: [5]"), 4, "link is of type int; expected: a mapping"),
        (_cluster("{root: /a}\ntopics: [{match: flights}]"), 4, "match: topic glob 'flights' is not of the form"),
        (MESH + "  - {source: us}", 7, "link: target is missing"),
        (MESH + "  - {source: [us], target: eu}", 7, "source is a list; expected: text"),
        (MESH + "  - {source: us, target: eu, topics: []}", 7, "topics is empty; leave it out for the default"),
        (MESH + "  - {source: us, target: eu, origins: []}", 7, "origins is empty; leave it out for the default"),
        (MESH + "  - source: us\n    target: eu\n    strat: latest", 9, "unknown key 'strat'; allowed: source, target"),
        (MESH + "  - source: us\n    target: eu\n    origins:\n    - us\n    - aisa", 11, "did you mean 'asia'?"),
        (MESH + "  - {source: us, target: eu, origins: [us, us]}", 7, "origins has a cluster twice"),
        (MESH + "  - {source: us, target: eu, origins: [us, eu]}", 7, "origins has the target"),
        (_link("num_fetchers: 0"), 7, "link us->eu: num_fetchers 0; allowed: 1 to 64"),
        (_link("expect_every: daily"), 7, "expect_every: 'daily' is not a duration; allowed: <int> seconds"),
        (_link("num_fetchers: many"), 7, "num_fetchers: 'many' is no whole number; expected: digits only, such as 1000"),
        (_link("dispatch_rate: {messages_per_second: -1}"), 7, "messages_per_second: '-1' is no whole number"),
        (
            _link("dispatch_rate: {bytes_per_second: 0}"),
            7,
            "bytes_per_second 0; expected: 1 or more, or leave it out for any number",
        ),
        (_link("dispatch_rate: {bytes: 1}"), 7, "dispatch_rate: unknown key 'bytes'"),
        (_link("dispatch_rate: 100"), 7, "dispatch_rate is"),
        # An origin arrives by one link only, whatever the topics.
        (HUB + _ASIA, 9, "link asia->eu: origin asia already reaches eu by us->eu"),
        (MESH + _FORWARDS, 8, "link us->eu: origin asia does not reach us, which is to forward it"),
        # A link that cannot be read is not reported a second time as a gap.
        (MESH + _FORWARDS.replace("{source: eu,", "{source: asai,"), 7, "'asai' is unknown"),
        (_cluster("{root: /a}") + "---\nversion: 1\n", 4, "a second document"),
    ],
)
def test_a_fault_is_told_with_its_line(text: str, line: int, message: str) -> None:
    finding = _finding(text)
    assert finding.startswith(f"geo.yaml:{line}: ")
    assert message in finding


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "7days",
        "7  days",
        "-1 days",
        "0 days",
        "07 days",
        "1.5 hours",
        "7 d",
        "7 months",
        "999999999999 weeks",
        "1e3 days",
        f"{MAX_DURATION_S + 1} seconds",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    found = _finding(_cluster("{root: /a}") + f'topics:\n  - match: "persistent://*/*/*"\n    message_ttl: {text}\n')
    assert found.startswith(f"geo.yaml:6: message_ttl: '{text}' is not a duration")


def test_two_hubs_that_only_forward_to_each_other_in_a_ring_do_not_feed_an_origin() -> None:
    ring = MESH + "  - {source: us, target: eu, origins: [asia]}\n  - {source: eu, target: us, origins: [asia]}"
    assert [finding.split(": ")[0] for finding in _findings(ring)] == ["geo.yaml:7", "geo.yaml:8"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{root: /a}", "{root: /a}"),
        ("{root: /a}", "{root: /a/b}"),
        ("{root: /a/b}", "{root: /a}"),
        ("{root: /a}", "{root: /A/}"),
        ("{root: /a}", '{root: "file:///a"}'),
        ("{root: /a}", "{catalog: c, schema: s, checkpoints: /a/cp}"),
        ('{root: "s3://b/x"}', '{root: "s3a://b/x/y"}'),
        ("{catalog: c, schema: s, checkpoints: /1}", "{catalog: C, schema: S, checkpoints: /2}"),
        ("{catalog: c, schema: s, checkpoints: /1}", "{catalog: c, schema: t, checkpoints: /1}"),
    ],
)
def test_two_clusters_with_common_storage_are_refused(one: str, other: str) -> None:
    assert _finding(f"version: 1\nclusters:\n  eu: {one}\n  us: {other}\n").startswith("geo.yaml:4: cluster us ")


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("/a", "/ab"), ("/a", "s3a://a"), ("s3a://a", "s3a://b"), ("s3a://a/b", "s3a://a"), ("gs://a", "s3://a")],
)
def test_locations_that_only_look_alike_are_apart(outer: str, inner: str) -> None:
    assert not contains(outer, inner)


# Hostile files


def test_an_alias_is_refused_before_it_can_grow() -> None:
    bomb = "version: 1\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    found = _findings(bomb)
    assert [finding.split(": ")[0] for finding in found] == ["geo.yaml:3"] * 2 + ["geo.yaml:4"] * 2
    assert "an alias (*a) is not allowed" in found[0]


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [x]", "!!str 5", "!local x", "!!binary aGk="])
def test_a_tag_is_refused(tag: str) -> None:
    assert "geo.yaml:3: a tag (" in _finding(_cluster(f"{{root: {tag}}}"))


@pytest.mark.slow
def test_nesting_without_end_is_refused_and_is_no_traceback() -> None:
    assert _finding("version: 1\nclusters: " + "[" * 50_000).startswith("geo.yaml:2: nested deeper than")


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "geo.yaml"
    with open(file, "wb") as sparse:
        sparse.truncate(1 << 33)
    with pytest.raises(ConfigError, match=f"geo.yaml:1: the file has .* allowed: {MAX_CHARACTERS}"):
        load(file)


def test_what_is_no_yaml_is_told_with_its_line() -> None:
    assert _finding("version: 1\nclusters: {eu: {root: /a}\nlinks: []\n").startswith("geo.yaml:3: not YAML: ")
    assert _finding("version: 1\n\tclusters: {}\n").startswith("geo.yaml:2: not YAML: ")
    assert _finding("version: 1\nclusters: \0\n").startswith("geo.yaml:2: not YAML: ")


def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read: No such file"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"version: 1\n# \xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml:2: not UTF-8"):
        load(tmp_path / "latin.yaml")


def test_a_message_is_of_one_line_whatever_the_file_holds() -> None:
    found = _finding(MESH + '  - {source: "u\\ns\\u202e", target: eu}')
    assert "'u\\ns\\u202e'" in found
    assert found.isprintable()


def test_replication_clusters_leave_out_links_that_lead_elsewhere() -> None:
    policies = (
        TopicPolicy("persistent://*/*/home", replication_clusters=("eu",)),
        TopicPolicy(replication_clusters=("eu", "us")),
    )
    clusters = {name: Cluster(name, root=f"/{name}") for name in ("eu", "us", "ap")}
    links = (Link("eu", "us"), Link("us", "eu"), Link("eu", "ap"))
    config = Config("g", clusters, links, policies)
    assert config.links_of(Topic("t", "n", "x")) == links[:2]
    assert config.links_of(Topic("t", "n", "home")) == ()
    assert config.hubs("eu", "ap", Topic("t", "n", "x")) is None
    with pytest.raises(ConfigError, match="mars"):
        Config("g", clusters, links, (TopicPolicy(replication_clusters=("mars",)),))


def test_a_link_carries_messages_or_acknowledgements_or_both() -> None:
    topic, other = Topic("shop", "web", "clicks"), Topic("shop", "app", "clicks")
    both, messages, acks = (
        Link("us", "eu", ("persistent://shop/web/c*",), carry=carry) for carry in ("both", "messages", "acks")
    )
    assert (both.carries(topic), messages.carries(topic), acks.carries(topic)) == (True, True, False)
    assert (both.carries(topic.acks), messages.carries(topic.acks), acks.carries(topic.acks)) == (True, False, True)
    assert not both.carries(other.acks), "acknowledgements travel with their namespace"
    both_regions = _cluster("{root: /a}") + "  us: {root: /b}"
    links = "\nlinks: [{source: us, target: eu, carry: acks}]"
    assert parse(both_regions + links, path="g").links[0].carry == "acks"
    with pytest.raises(ConfigError, match=r"carry: carry cannot be 'ack'; allowed: messages, acks, both; did you mean 'acks'"):
        parse(both_regions + links.replace("acks", "ack"), path="g")


def test_acknowledgements_expire_only_by_a_policy_that_names_them() -> None:
    topic = Topic("shop", "web", "clicks")
    all_topics = TopicPolicy(message_ttl_s=60)
    named = TopicPolicy("persistent://*/*/__acks", message_ttl_s=600)
    config = Config("g", {"eu": Cluster("eu", root="/eu")}, (), (all_topics,))
    assert (config.policy(topic).message_ttl_s, config.policy(topic.acks).message_ttl_s) == (60, None)
    config = Config("g", {"eu": Cluster("eu", root="/eu")}, (), (all_topics, named))
    assert (config.policy(topic).message_ttl_s, config.policy(topic.acks).message_ttl_s) == (60, 600)


def test_kafka_settings_are_kept_by_bootstrap_servers() -> None:
    text = '\nkafka: {"a:1,b:2": {security_protocol: SASL_SSL, sasl_plain_password: secret://env/X, ssl_keyfile: /k}}'
    config = parse(_cluster("{root: /a}" + text), path="g")
    assert dict(config.kafka["a:1,b:2"]) == {
        "security_protocol": "SASL_SSL",
        "sasl_plain_password": Secret("secret://env/X"),
        "ssl_keyfile": "/k",
    }


def test_what_a_broker_publishes_is_read_with_paths_from_the_folder_of_the_file() -> None:
    entries = (
        "{cluster: eu, topic: T, jsonl: in}, {cluster: eu, topic: T, producer: k, kafka: b, kafka_topic: t, kafka_start: latest}"
    )
    lines, kafka = parse(_publish(entries), path="/conf/g").published_in("eu")
    topic = Topic("a", "b", "c")
    assert lines == Publication("eu", topic, "default", jsonl="/conf/in")
    assert kafka == Publication("eu", topic, "k", kafka="b", kafka_topic="t", kafka_start="latest")
    assert lines.name == "persistent://a/b/c in eu by default"


def test_a_table_that_a_broker_publishes_is_a_path_from_the_folder_of_the_file_or_a_name_of_a_catalog() -> None:
    more = "delta_start: latest, key: id, order_by: [at, id], only_inserts: true, schema: fixed"
    path, name = parse(
        _publish(
            f"{{cluster: eu, topic: T, delta: ./orders, {more}}}, {{cluster: eu, topic: T, producer: n, delta: main.shop.orders}}"
        ),
        path="/conf/g",
    ).published_in("eu")
    topic = Topic("a", "b", "c")
    assert path == Publication(
        "eu",
        topic,
        delta="/conf/orders",
        delta_start="latest",
        key="id",
        order_by=("at", "id"),
        only_inserts=True,
        schema="fixed",
    )
    assert name == Publication("eu", topic, "n", delta="main.shop.orders")


# Secrets


def test_a_secret_is_only_seen_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EU_KEY", "hunter2")
    (tmp_path / "key").write_text("hunter3\n")
    conf = f'{{a.key: "secret://env/EU_KEY", b.key: "secret://file{tmp_path}/key", c: "hunter4"}}'
    config = parse(_cluster(f"{{root: /a, spark_conf: {conf}}}"), path="geo.yaml")
    a, b = config.cluster("eu").spark_conf["a.key"], config.cluster("eu").spark_conf["b.key"]
    assert isinstance(a, Secret)
    assert isinstance(b, Secret)
    assert (a.reveal(), b.reveal()) == ("hunter2", "hunter3")
    for shown in (repr(config), str(config), repr(a), str(b), f"{a}", f"{dict(config.cluster('eu').spark_conf)}"):
        assert "hunter2" not in shown
        assert "hunter3" not in shown
    assert str(a) == repr(a) == "Secret(***)"
    assert "hunter4" not in repr(config)


def test_a_secret_is_read_when_needed_and_what_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EU_KEY", raising=False)
    secret = Secret("secret://env/EU_KEY")
    with pytest.raises(UsageError, match="environment variable EU_KEY is not set"):
        secret.reveal()
    monkeypatch.setenv("EU_KEY", "1")
    assert secret.reveal() == "1"
    monkeypatch.setenv("EU_KEY", "2")
    assert secret.reveal() == "2"
    with pytest.raises(UsageError, match=r"the file of secret://file/absent/key cannot be read: No such file"):
        Secret("secret://file/absent/key").reveal()


@pytest.mark.parametrize(
    "key",
    [
        "fs.s3a.access.key",
        "fs.s3a.secret.key",
        "fs.azure.account.key.acct.dfs.core.windows.net",
        "fs.azure.account.oauth2.client.secret.acct",
        "fs.azure.sas.fixed.token.c.acct",
        "x.sas",
        "apiKey",
        "x.Password",
        "db.passwd",
        "aws.credentials",
        "session.token",
    ],
)
def test_a_setting_that_looks_secret_must_be_a_reference_and_is_not_printed(key: str) -> None:
    found = _finding(_cluster(f"{{root: /a, spark_conf: {{{key}: hunter2}}}}"))
    assert found.startswith(f"geo.yaml:3: cluster 'eu': '{key}': {key} looks like a secret")
    assert "secret://env/NAME or secret://file/ABSOLUTE_PATH" in found
    assert "hunter2" not in found
    with pytest.raises(UsageError, match="looks like a secret") as refused:
        Cluster("eu", root="/a", spark_conf={key: "hunter2"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "key", ["fs.s3a.aws.credentials.provider", "fs.azure.sas.token.provider.type", "fs.s3a.endpoint", "x.disaster"]
)
def test_a_setting_that_names_a_class_or_nothing_secret_may_be_plain(key: str) -> None:
    assert Cluster("eu", root="/a", spark_conf={key: "v"}).spark_conf[key] == "v"


@pytest.mark.parametrize(
    "reference",
    [
        "secret://hunter2",
        "secret://env/",
        "secret://env/hunter-2",
        "secret://file/",
        "secret://vault/hunter2",
        "SECRET://env/A",
    ],
)
def test_a_reference_of_another_form_is_refused_and_not_printed(reference: str) -> None:
    found = _finding(_cluster(f'{{root: /a, spark_conf: {{fs.s3a.secret.key: "{reference}"}}}}'))
    assert "not a reference to a secret (not shown); expected: secret://env/NAME" in found
    assert "hunter" not in found


@pytest.mark.parametrize(
    "root", ["s3a://AKIA:hunter2@bucket/x", "wasbs://c@a.blob.core.windows.net/x?sig=hunter2", "https://u:hunter2@h/x"]
)
def test_a_password_in_a_location_is_refused_and_not_printed(root: str) -> None:
    found = _finding(_cluster(f'{{root: "{root}"}}'))
    assert found.startswith("geo.yaml:3: cluster 'eu': root: ")
    assert "hunter2" not in found


@pytest.mark.parametrize(
    "text",
    [
        _cluster("{root: /a, spark_conf: {fs.s3a.secret.key: [hunter2]}}"),
        _cluster("{root: /a, spark_conf: hunter2}"),
        _cluster("{root: /a, spark_conf: {a.key: hunter2, a.key: hunter2}}"),
        _cluster("{root: /a, spark_conf: {a.key: !x hunter2}}"),
        _cluster("{root: /a, spark_conf: {a.key: 'hunter2}}"),
        _cluster("{root: /a, spark_conf: {a.key: hunter2"),
    ],
)
def test_no_fault_of_any_kind_prints_a_secret(text: str) -> None:
    assert "hunter2" not in "".join(_findings(text))


# How fast links are


def test_the_rate_of_a_topic_goes_before_that_of_its_namespace_and_of_the_link() -> None:
    text = (
        _cluster("{root: /a}\n  us: {root: /b}")
        + """links:
  - {source: us, target: eu, num_fetchers: 2, dispatch_rate: {messages_per_second: 100, bytes_per_second: 1000}}
topics:
  - {match: "persistent://shop/web/clicks", dispatch_rate: {messages_per_second: 1}}
  - {match: "persistent://shop/web/clicks", dispatch_rate: {messages_per_second: 2}}
  - {match: "persistent://shop/web/quiet", message_ttl: 1 days}
  - {match: "persistent://shop/web/*", dispatch_rate: {bytes_per_second: 7}}
"""
    )
    config = parse(text, path="geo.yaml")
    (link,) = config.links
    assert link.num_fetchers == 2

    def rate(name: str) -> DispatchRate:
        return config.dispatch_rate(link, Topic.parse(f"persistent://shop/{name}"))

    assert rate("web/clicks") == DispatchRate(1)
    assert rate("web/quiet") == rate("web/other") == DispatchRate(None, 7), "a policy without a rate says nothing of it"
    assert rate("app/other") == DispatchRate(100, 1000)
    assert rate("web/__acks") == DispatchRate(), "acknowledgements wait for nothing"


@pytest.mark.parametrize(
    ("written", "seconds"), [("1 day", 86_400), ("1d", 86_400), ("90m", 5400), ("30s", 30), ("2w", 1_209_600)]
)
def test_how_often_a_link_is_run_by_a_schedule(written: str, seconds: int) -> None:
    (link,) = parse(_link(f"expect_every: {written}"), path="geo.yaml").links
    assert link.expect_every_s == seconds


# Whether regions share subscriptions


def test_a_subscription_is_shared_unless_the_first_policy_that_says_so_says_otherwise() -> None:
    text = (
        _cluster("{root: /a}\n  us: {root: /b}")
        + """topics:
  - {match: "persistent://shop/web/clicks", message_ttl: 1 days}
  - {match: "persistent://shop/web/orders", replicate_subscription_state: true}
  - {match: "persistent://shop/web/*", replicate_subscription_state: false}
"""
    )
    config = parse(text, path="geo.yaml")
    names = ("web/clicks", "web/orders", "web/x", "app/x", "web/__acks")
    found = {name: config.replicates_subscriptions(Topic.parse(f"persistent://shop/{name}")) for name in names}
    assert found == {"web/clicks": False, "web/orders": True, "web/x": False, "app/x": True, "web/__acks": True}
    for word in ("no", "1", "[true]"):
        assert "replicate_subscription_state" in _finding(text.replace("state: false", f"state: {word}"))


# The tree cannot exist wrong


def test_a_tree_made_by_hand_is_checked_too() -> None:
    eu, us = Cluster("eu", root="/a"), Cluster("us", root="/b")
    for clusters, links, says in (
        ((eu,), (Link("us", "eu"),), "g: link us->eu: cluster 'us' is unknown"),
        ((eu, us), (Link("us", "eu"), Link("us", "eu")), "link us->eu is there twice"),
        ((eu, Cluster("us", root="/a/x")), (), "cluster us shares storage with eu"),
        ((), (), "at least one cluster"),
    ):
        with pytest.raises(ConfigError, match=says):
            Config("g", {one.name: one for one in clusters}, links)
    with pytest.raises(ConfigError, match="stands under the name 'eu'"):
        Config("g", {"eu": us})
    with pytest.raises(UsageError, match="not an absolute path"):
        Cluster("eu", root="data")
    with pytest.raises(UsageError, match="message_ttl_s 0"):
        TopicPolicy("persistent://*/*/*", 0)
    with pytest.raises(UsageError, match="topics is empty"):
        Link("us", "eu", ())
