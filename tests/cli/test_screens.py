"""Screens about topics, links and subscriptions, and what is refused by name, in two regions on an S3 API. Spark is never started."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.cli import completion
from geo.cli.completion import NameOf
from geo.cli.main import main
from geo.delta.arrow_rows import rows_table
from geo.ids import LedgerId
from geo.journal.event_rate import EventKind
from geo.journal.events import Events
from geo.log.ledger_parts import ledger_parts
from geo.log.ledger_writer import LedgerWriter
from geo.log.ledgers import Batch, RowsOfKey
from geo.log.topics import Registered, ensure_topic
from geo.names import Topic
from geo.now import now_us, utc_now
from geo.reasons import Reason
from geo.schemas import TOPIC_LOG, TOPICS
from geo.subscription.acks.ack_state import AckState, Base
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import encode, key_of
from geo.times import from_us
from tests.examples import examples
from tests.far import ALL, TOPIC, Far
from tests.object_store import ObjectStore as S3
from tests.scenario_text import REWRITES, differs, rewritten, steps

pytestmark = pytest.mark.slow

SCENARIO = Path(__file__).parent.parent / "scenarios" / "screens" / "two-regions.txt"


@dataclass(slots=True)
class Regions:
    """Two regions, and what is done in them."""

    far: Far

    def run(self, command: str) -> tuple[int, str]:
        """Exit code, and what is printed."""
        word, *words = command.split()
        if word == "geo":
            return self.geo(words)
        topic = Topic.parse(words[0])
        if word == "publish":
            self.far.publish(int(words[1]), topic)
        elif word == "replicate":
            self.far.replicate(topic)
        else:
            assert word == "acknowledge"
            self.acknowledge(topic, words[1], words[2:])
        return 0, ""

    def geo(self, words: Sequence[str], config: Path | None = None) -> tuple[int, str]:
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            code = main([*words, "--config", str(config or self.far.path), "--engine", "native"])
        return code, out.getvalue()

    def acknowledge(self, topic: Topic, subscription: str, ranges: Sequence[str]) -> None:
        """As a consumer in us does, of the one ledger of the topic's log; without ranges the subscription begins."""
        tables, log = self.far.tables("us"), self.far.log("us", topic)
        (ledger,) = ledger_parts(log, log.latest_version())
        ensure_topic(tables, topic.acks)
        told = MessageSet(
            {LedgerId(*ledger): tuple((int(first), int(last)) for first, last in (one.split("-") for one in ranges))}
        )
        payload = encode(AckState(base=Base(), acked=told if ranges else MessageSet()))
        acks = tables.log(topic.acks)
        writer = LedgerWriter(tables, self.far.config, topic.acks, f"c-{topic.name}", acks, clock=now_us, take_over=False)

        def entry(batch: Batch) -> pa.Table:
            (span,), at = batch.spans, from_us(batch.publish_time_us)
            of = {
                "origin": "us",
                "ledger_id": span.ledger_id,
                "entry_id": span.first,
                "publish_time": at,
                "publish_date": at.date(),
            }
            return rows_table(TOPIC_LOG.types, [{**of, "producer": "c", "key": key_of(topic, subscription), "payload": payload}])

        writer.append([RowsOfKey(ALL, 1, 0)], {"": json.dumps(["1"])}, entry)
        writer.close()


@pytest.fixture(scope="module")
def regions(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Regions:
    """As the scenario leaves them."""
    made = Regions(Far.made(s3, tmp_path_factory.mktemp("screens")))
    printed = {}
    for step in steps(SCENARIO.read_text()):
        code, text = made.run(step.command)
        text = text.replace(str(made.far.path), "geo.yaml")
        lines = printed[step.line] = text.splitlines() + ([f"[{code}]"] if code else [])
        assert REWRITES or not differs(step.expected, lines), f"{SCENARIO.name}:{step.line}: {step.command}\n" + "\n".join(lines)
    if REWRITES:
        SCENARIO.write_text(rewritten(SCENARIO.read_text(), printed))
    return made


def test_the_screens_are_as_written(regions: Regions) -> None:
    assert [one for one in steps(SCENARIO.read_text()) if one.command.startswith("geo ")]


def test_nothing_is_said_to_be_nowhere_while_a_region_cannot_be_read(regions: Regions, tmp_path: Path) -> None:
    away = tmp_path / "geo.yaml"
    away.write_text(regions.far.path.read_text().replace("s3a://eu-", "s3a://not-there-"))
    for words, said in (
        (["topics", "--topic", "persistent://a/b/c"], "eu: cannot be read:"),
        (["topics", "stats", "--topic", "persistent://a/b/c"], "eu: cannot be read:"),
        (["explain", "persistent://a/b/c"], "eu cannot be read:"),
        (["explain", str(TOPIC)], "eu cannot be read:"),
        (["subscriptions", "status", "--topic", str(TOPIC), "--subscription", "billing"], "eu: cannot be read:"),
        (["subscriptions", "status", "--topic", str(TOPIC), "--subscription", "nobodys"], "eu: cannot be read:"),
    ):
        code, text = regions.geo(words, away)
        assert (code, said in text) == (1, True), (words, text)


def test_a_log_that_is_gone_is_not_shown_as_empty(regions: Regions) -> None:
    lost = Topic.parse("persistent://lost/web/views")
    regions.far.tables("us").journal(TOPICS).append([Registered(lost, utc_now(), False, None, 1)])
    for words in (
        ["topics", "stats", "--topic", str(lost)],
        ["topics", "describe", str(lost)],
        ["subscriptions", "status", "--topic", str(lost), "--subscription", "billing"],
        ["explain", str(lost)],
    ):
        code, text = regions.geo(words)
        assert (code, "is not there" in text) == (1, True), (words, text)


def test_the_shell_is_told_topics_and_subscriptions_that_were_noted(
    regions: Regions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = str(regions.far.path)
    completion.note(config)
    topics = completion.names(NameOf.TOPIC, ["peek", "--config", config, "--topic"])
    assert {"persistent://shop/web/clicks", "persistent://shop/web/views", "persistent://shop/web/views-partition-1"} <= {*topics}
    assert not [one for one in topics if "__" in one]
    of = ["groups", "describe", "--config", config, "--topic"]
    assert completion.names(NameOf.SUBSCRIPTION, [*of, "persistent://shop/web/views", "--subscription"]) == ["billing"]
    assert completion.names(NameOf.SUBSCRIPTION, [*of, "persistent://shop/web/views-partition-1", "--subscription"]) == []
    assert completion.names(NameOf.SUBSCRIPTION, [*of, "persistent://no/such/topic", "--subscription"]) == ["billing"]


def test_keys_of_before_are_still_there_and_rows_are_added(regions: Regions) -> None:
    def told(*words: str) -> list[dict[str, Any]]:
        code, text = regions.geo([*words, "-o", "json"])
        assert code == 0, text
        found: list[dict[str, Any]] = json.loads(text)
        return found

    listed = {"topic", "subscription", "cluster", "deleted", "epoch", "acknowledged", "runs", "replicated", "mode"}
    assert listed <= told("subscriptions")[0].keys()
    us, eu = told("subscriptions", "status", "--topic", str(TOPIC), "--subscription", "billing")
    standing = {"cluster", "epoch", "deleted", "backlog", "acknowledged", "mark_delete", "ranges_beyond", "runs", "moved", "peers",
                "refused", "unreadable", "consumer", "lacking_shares", "replicated"}  # fmt: skip
    assert standing <= us.keys()
    assert (us["backlog"], us["acknowledged_per_second"], us["drained_in_seconds"]) == (10, 7 / 300, None)
    assert us["failover"] == [{"target": "eu", "repeated": 0, "skipped": 0, "missing": 0, "reason": None}]
    assert us["oldest_seconds"] >= eu["oldest_seconds"] - 60 > -60


SCREENS = (
    ["status"], ["links", "list"], ["links", "status"], ["topics", "list"], ["topics", "stats"], ["subscriptions", "list"],
    ["subscriptions", "status", "--topic", str(TOPIC), "--subscription", "billing"], ["explain", str(TOPIC)], ["events"], ["doctor"],
    ["brokers", "list", "--cluster", "us"],
)  # fmt: skip

_OLDER = {"age_s", "newest_here"}
"""Keys that stay though they are not as the rule says."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT")


def _members(value: Any) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Each key with its value and where it stands, of all that a document holds."""
    if isinstance(value, dict):
        yield from ((key, member, value) for key, member in value.items())
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _members(member)


def test_all_screens_have_one_form_as_json(regions: Regions) -> None:
    """Of topics that lack something and whose link nobody runs, of which each screen says something: docs/health.md, *As JSON*."""
    noted = Events(regions.far.tables("eu"))
    noted.note(
        EventKind.LINK, f"us->eu {TOPIC}", "FAILED", topic=str(TOPIC), code=Reason.SOURCE_RECREATED, reason="it was dropped"
    )
    assert noted.flush()
    there = set[str]()
    for words in SCREENS:
        more = ["--max-lag", "1s"] if words in (["status"], ["links", "status"]) else []
        code, text = regions.geo([*words, *more, "-o", "json"])
        assert code in (0, 1), text
        for key, value, among in _members(json.loads(text)):
            is_time = key in ("at", "since") or key.endswith(("_at", "_since"))
            says_time = isinstance(value, str) and _MOMENT.match(value) is not None
            where = f"{words}: {key}: {value!r}"
            if key not in _OLDER:
                assert says_time == (is_time and value is not None), where
                assert not key.endswith(("_s", "_us", "_ms", "_code", "_health", "_since_us")), where
            assert not says_time or value.endswith("Z"), where
            if key.endswith("seconds") and value is not None:
                assert value == round(value, 3), where
            if key.removeprefix("lag_") in ("messages", "bytes", "versions", "seconds"):
                assert value is None or type(value) in (int, float), where
            if key == "health" and words != ["doctor"]:
                assert list(among)[:6] == ["health", "level", "since", "code", "reason", "do"], where
            if key == "code":
                assert value is None or value in Reason.__members__, where
                assert value is None or among.get("level") != "error" or Reason(value).level == "error", where
            if key == "level":
                assert value in ("ok", "warn", "error"), where
            there.add(key)
    assert there >= {"health", "level", "since", "code", "reason", "do", "at", "lag_messages", "lag_seconds", "oldest_at"}


PARTS = (
    "persistent://",
    "shop",
    "web",
    "clicks",
    "views",
    "/",
    "*",
    "?",
    "-partition-0",
    "__acks",
    "..",
    "\n",
    "\x00",
    "ä",
    " ",
    "-",
    "%",
)
names = st.lists(st.sampled_from(PARTS), max_size=7).map("".join) | st.text(max_size=20)


@given(names, names, st.sampled_from(["us", "eu", "ue", ""]))
@settings(max_examples=examples(0.1))
def test_no_name_ends_in_a_trace_or_writes_anything(s3: S3, regions: Regions, topic: str, name: str, cluster: str) -> None:
    before = s3.counts()
    for words in (
        ["explain", topic],
        ["topics", "stats", "--topic", topic],
        ["topics", "list", "--topic", topic],
        ["subscriptions", "list", "--topic", topic],
        ["subscriptions", "status", "--topic", topic, "--subscription", name],
        ["peek", "--topic", topic, "--cluster", cluster],
    ):
        try:
            code, text = regions.geo(words)
        except SystemExit as error:  # what begins as an option does
            code, text = int(str(error.code)), ""
        assert code in (0, 2), (words, text)
        assert "Traceback" not in text
    assert {method for method, count in (s3.counts() - before).items() if count} <= {"GET", "HEAD", "LIST"}
