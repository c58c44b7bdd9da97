"""Names: the grammar refuses what it must, and no two topics share a path or a table."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from geo.errors import InvalidNameError
from geo.names import (
    ALL_TOPICS,
    MARKERS_PRODUCER,
    MAX_LABEL,
    MAX_PART,
    MAX_TABLE_NAME,
    Topic,
    check_cluster,
    check_namespace,
    check_producer,
    check_topic_glob,
    check_user_producer,
    glob_of,
    glob_takes,
    topic_glob_matches,
)
from geo.text import show


def _topic(parts: list[str]) -> Topic:
    try:
        return Topic(*parts)
    except InvalidNameError:  # a device name, a `..`: rare enough to leave out
        assume(False)
        raise


PART = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:=-]{0,20}", fullmatch=True)
# From few characters, so that two topics differ in little: the pairs an encoding would confuse, if any.
NEAR = st.from_regex(r"[aA0_][aA0_.:=-]{0,4}", fullmatch=True)
TOPICS = st.lists(PART, min_size=3, max_size=3).map(_topic)
NEAR_TOPICS = st.lists(NEAR, min_size=3, max_size=3).map(_topic)


@given(TOPICS)
def test_a_topic_is_what_its_text_and_its_path_say(topic: Topic) -> None:
    assert Topic.parse(str(topic)) == topic
    assert Topic.from_path(topic.path) == topic


@given(NEAR_TOPICS, NEAR_TOPICS)
def test_two_topics_share_no_path_and_no_table_even_where_case_is_folded(one: Topic, other: Topic) -> None:
    assume(one != other)
    assert one.path.casefold() != other.path.casefold()
    assert one.table_name.casefold() != other.table_name.casefold()


@given(TOPICS)
def test_a_path_is_safe_on_every_file_system_and_a_table_name_in_every_catalog(topic: Topic) -> None:
    parts = topic.path.split("/")
    assert len(parts) == 3
    for part in parts:
        assert re.fullmatch("[a-z0-9_][a-z0-9_.-]*", part)
        assert not part.endswith(".")
        assert ".." not in part
    assert re.fullmatch("[a-z0-9_]+", topic.table_name)
    assert topic.table_name.count("__") >= 2
    assert len(topic.path) <= len(topic.table_name) <= MAX_TABLE_NAME


@given(st.text(alphabet="aA05_-./", max_size=12))
def test_only_what_was_encoded_is_decoded(text: str) -> None:
    try:
        topic = Topic.from_path(text)
    except InvalidNameError:
        return
    assert topic.path == text


@pytest.mark.parametrize(
    ("text", "path", "table_name"),
    [
        ("persistent://shop/eu/order_events", "shop/eu/order_events", "shop__eu__order_events"),
        ("persistent://shop/eu/order_events.v1", "shop/eu/order_events.v1", "shop__eu__order_events_2v1"),
        ("persistent://shop/eu/Orders", "shop/eu/_5orders", "shop__eu___5orders"),
        ("persistent://shop/eu/__acks", "shop/eu/_0_acks", "shop__eu___0_acks"),
        ("persistent://shop/eu/o-partition-10", "shop/eu/o-partition-10", "shop__eu__o_1partition_110"),
        ("persistent://a:b/c=d/e.", "a_3b/c_4d/e_2", "a_3b__c_4d__e_2"),
        ("persistent://a_/_b/c_1", "a_0/_0b/c_01", "a_0___0b__c_01"),
    ],
)
def test_the_encoding_is_frozen_because_tables_exist_under_it(text: str, path: str, table_name: str) -> None:
    topic = Topic.parse(text)
    assert (topic.path, topic.table_name) == (path, table_name)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("", "is empty"),
        (".", "has '.' as character 1"),
        ("..", "has '.' as character 1"),
        (".hidden", "has '.' as character 1"),
        ("-rf", "has '-' as character 1"),
        ("a..b", "has '..'"),
        ("a b", "has ' ' as character 2"),
        ("a%2e", "has '%' as character 2"),
        ("a`b", "has '`' as character 2"),
        ("a\\b", "has '\\\\' as character 2"),
        ("a*", "has '*' as character 2"),
        ("a\0", "has '\\x00' as character 2"),
        ("a\n", "has '\\n' as character 2"),
        ("\u0430", "has '\\u0430' as character 1"),
        ("\uff41", "has '\\uff41' as character 1"),
        ("a\u0301", "has '\\u0301' as character 2"),
        ("\u0661", "has '\\u0661' as character 1"),
        ("con", "is a device name of Windows"),
        ("nul.txt", "is a device name of Windows"),
        ("com1", "is a device name of Windows"),
        ("a" * (MAX_PART + 1), f"has {MAX_PART + 1} characters"),
    ],
)
@pytest.mark.parametrize("place", ["tenant", "namespace", "name"])
def test_a_bad_part_is_refused_with_its_place_a_reason_and_what_is_allowed(part: str, reason: str, place: str) -> None:
    parts = {"tenant": "t", "namespace": "n", "name": "x"} | {place: part}
    with pytest.raises(InvalidNameError) as refused:
        Topic(**parts)
    message = str(refused.value)
    assert f"its {place} {show(part)} {reason}" in message
    assert "allowed: ASCII letters, digits and _ - . : =" in message
    assert message.isascii()
    assert message.isprintable()


@pytest.mark.parametrize("name", ["console", "connect", "com10", "nullable", "a", "A", "0", "a" * MAX_PART])
def test_a_name_at_the_edge_of_the_grammar_is_taken(name: str) -> None:
    assert Topic("t", "n", name).name == name


def test_a_topic_whose_table_name_no_catalog_takes_is_refused() -> None:
    assert len(Topic("t", "n" * 20, "A" * 76).table_name) == 253
    with pytest.raises(InvalidNameError, match="its table name would have 256 characters; allowed: 255"):
        Topic("t", "n" * 20, "A" * 77)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "flights",
        "public/default/flights",
        "persistent://public/flights",
        "persistent://public/default/a/b",
        "persistent:/public/default/a",
        "PERSISTENT://public/default/a",
        "non-persistent://public/default/a",
        " persistent://public/default/a",
        "persistent://public/default/a\n",
        "persistent://public/../a",
    ],
)
def test_text_that_is_no_topic_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError):
        Topic.parse(text)


@pytest.mark.parametrize(
    "path", ["", "a/b", "a/b/c/d", "/a/b/c", "a/b/", "a//c", "a/b/C", "a/b/../c", "../b/c", "a/b/_c", "a/b/x_9", "a/b/_2"]
)
def test_a_path_that_no_topic_has_is_refused(path: str) -> None:
    with pytest.raises(InvalidNameError):
        Topic.from_path(path)


def test_every_error_about_a_long_name_stays_short() -> None:
    with pytest.raises(InvalidNameError) as refused:
        Topic.parse("persistent://a/b/" + "x" * 100_000)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-partition-0", 0),
        ("orders-partition-12", 12),
        ("orders-partition-1-partition-2", 2),
        ("orders-partition-01", None),
        ("orders-partition-", None),
        ("orders-partition-1x", None),
        ("orders-partition-1234567890", None),
        ("partition-1", None),
        ("orders", None),
    ],
)
def test_the_partition_is_read_from_the_name(name: str, partition: int | None) -> None:
    assert Topic("t", "n", name).partition == partition


def test_a_topic_is_of_the_system_when_its_name_starts_with_two_underscores() -> None:
    assert Topic("t", "n", "__acks").is_system
    assert not Topic("__t", "__n", "_acks").is_system


@pytest.mark.parametrize("name", ["shop", "shop/web/x", "/web", "shop/", "shop/we b", "shop/..", "con/web"])
def test_a_namespace_has_a_tenant_and_a_name_inside_the_grammar(name: str) -> None:
    assert check_namespace("shop/web.v1") == "shop/web.v1"
    with pytest.raises(InvalidNameError, match=f"namespace {re.escape(show(name))}"):
        check_namespace(name)


@pytest.mark.parametrize("check", [check_cluster, check_producer])
@pytest.mark.parametrize("name", ["eu", "us-east-1", "0", "a_b", "a" * MAX_LABEL])
def test_a_cluster_or_producer_in_the_grammar_is_handed_back(check: type[str], name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize(
    "name", ["", "EU", "e u", "eu:1", "a.b", "a/b", "..", "-a", "_a", "con", "\u0435u", "a" * (MAX_LABEL + 1)]
)
def test_a_cluster_or_producer_outside_the_grammar_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match=r"^cluster .*; allowed: lower-case ASCII letters"):
        check_cluster(name)
    with pytest.raises(InvalidNameError, match=r"^producer .*; allowed: lower-case ASCII letters"):
        check_producer(name)


def test_a_user_publishes_under_any_name_but_that_of_markers() -> None:
    assert check_user_producer("geo-marker") == "geo-marker"
    assert check_producer(MARKERS_PRODUCER) == MARKERS_PRODUCER
    with pytest.raises(InvalidNameError, match="geo-markers is delta-geo itself"):
        check_user_producer(MARKERS_PRODUCER)


@pytest.mark.parametrize(
    ("glob", "text", "matches"),
    [
        (ALL_TOPICS, "persistent://a/b/c", True),
        (ALL_TOPICS, "persistent://a/b/__acks", True),
        ("persistent://a/b/c", "persistent://a/b/c", True),
        ("persistent://a/b/c", "persistent://a/b/cc", False),
        ("persistent://a/b/c", "persistent://a/b/C", False),
        ("persistent://a/*/f*s", "persistent://a/x/flights", True),
        ("persistent://a/*/f*s", "persistent://a/x/flight", False),
        ("persistent://a/*/f*s", "persistent://b/x/flights", False),
        ("persistent://a/b/f?", "persistent://a/b/f1", True),
        ("persistent://a/b/f?", "persistent://a/b/f", False),
        ("persistent://a/b/f?", "persistent://a/b/f12", False),
        ("persistent://a/b/a.c", "persistent://a/b/abc", False),
        ("persistent://a/b/*b*", "persistent://a/b/abc", True),
    ],
)
def test_a_glob_stands_for_whole_topics_part_by_part(glob: str, text: str, matches: bool) -> None:
    assert check_topic_glob(glob) == glob
    assert topic_glob_matches(glob, Topic.parse(text)) is matches


@pytest.mark.parametrize(
    ("glob", "name", "takes"),
    [
        ("*", "clicks", True),
        ("*", "__acks", False),
        ("__*", "__acks", False),
        ("*", "clicks-billing-DLQ", False),
        ("clicks-*", "clicks-billing-DLQ", False),
        ("*", "clicks-DLQ-notes", True),
        ("*-DLQ", "clicks-billing-DLQ", True),
        ("*-DLQ", "clicks-billing-DLQ-mail-DLQ", False),
        ("*-DLQ-*-DLQ", "clicks-billing-DLQ-mail-DLQ", True),
    ],
)
def test_a_consumer_of_a_glob_reads_dead_letters_only_if_it_names_them(glob: str, name: str, takes: bool) -> None:
    assert glob_takes(f"persistent://shop/web/{glob}", Topic("shop", "web", name)) is takes


@given(TOPICS)
def test_a_topic_is_a_glob_of_itself_and_of_all(topic: Topic) -> None:
    assert topic_glob_matches(str(topic), topic)
    assert topic_glob_matches(ALL_TOPICS, topic)


@pytest.mark.parametrize(
    "glob",
    [
        "",
        "*",
        "flights*",
        "persistent://*",
        "persistent://*/*",
        "persistent://**/*/*/*",
        "persistent://a/b/[ab]",
        "persistent://a/b/{a,b}",
        "persistent://a/b/!a",
        "persistent://a//c",
        "persistent://a/b/a|b",
        "persistent://a/b/" + "*" * (MAX_PART + 1),
    ],
)
def test_a_glob_outside_the_grammar_is_refused(glob: str) -> None:
    with pytest.raises(InvalidNameError, match="topic glob"):
        check_topic_glob(glob)
    with pytest.raises(InvalidNameError, match="topic glob"):
        topic_glob_matches(glob, Topic("a", "b", "a"))


def test_the_name_of_a_topic_that_is_known_in_partitions_alone_stands_for_these() -> None:
    whole, other = Topic("shop", "web", "parts"), Topic("shop", "web", "part")
    parts = [whole.with_partition(0), whole.with_partition(1)]
    assert glob_of(str(whole), parts) == f"{whole}-partition-*"
    assert glob_of(str(whole), [whole, *parts]) == str(whole), "a topic itself goes before partitions"
    assert glob_of(str(parts[0]), parts) == str(parts[0])
    assert (glob_of(str(other), parts), glob_of(ALL_TOPICS, parts)) == (str(other), ALL_TOPICS)
    with pytest.raises(InvalidNameError):
        glob_of("parts", parts)


def test_no_glob_takes_long() -> None:
    hostile = "persistent://a/b/" + "*a" * (MAX_PART // 2)
    began = time.process_time()
    assert not topic_glob_matches(hostile, Topic("a", "b", "a" * (MAX_PART // 2 + 20) + "b"))
    assert time.process_time() - began < 1  # tried out with backtracking, it would not end in this century
