"""Why a topic is or is not replicated: the decision is the one by which links go, and the screen is as written. No Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from geo.cli.broker import _fields
from geo.cli.explain import event_lines, lines
from geo.cli.findings import finding_as_json
from geo.cli.output import Output
from geo.config.cluster import Cluster
from geo.config.model import Config, Link, TopicPolicy
from geo.config.reader import parse
from geo.delta.actions import Actions, Effect
from geo.delta.commits import Commit
from geo.fleet.work_reports import BrokerReport, WorkKind
from geo.journal.event_rate import Event, EventKind
from geo.log.kept_policies import kept
from geo.log.ledgers import Batch, LedgerKey, Span
from geo.log.topics import Registered
from geo.names import Topic
from geo.ops.explain import Addressed, DecidedBy, addressed, decide
from geo.ops.explain_facts import CommitAt, CursorAt, Explained, Then
from geo.ops.health import Finding, Health
from geo.reasons import Reason
from geo.replication.carried import replicates
from geo.replication.lag import Lag
from geo.replication.link_status import LinkStatus
from geo.replication.rule import Rule
from geo.streams.life import State
from geo.times import EPOCH, in_us
from tests.scenario_text import REWRITES, differs, rewritten, steps

SCENARIO = Path(__file__).parent.parent / "scenarios" / "screens" / "explain.txt"

ORDERS = Topic.parse("persistent://shop/web/orders")
AT = datetime(2026, 11, 28, 3, 12, 4, tzinfo=timezone.utc)
NOW_US = in_us(AT)


@dataclass(slots=True)
class Facts:
    """What is said before a screen is asked for."""

    config: Config | None = None
    topic: Topic = ORDERS
    found: dict[str, Registered] = field(default_factory=dict)
    told: dict[str, str | None] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)
    messages: Addressed = field(default_factory=Addressed)
    row: list[str] = field(default_factory=list)

    def run(self, command: str) -> list[str]:
        word, _, text = command.replace("\n", " \n", 1).partition(" ")
        match word, text.split():
            case "config", _:
                self.config = parse(text, path="geo.yaml")
            case "topic", [name]:
                self.topic, self.found, self.told, self.away = Topic.parse(name), {}, {}, {}
                self.messages, self.row = Addressed(), []
            case "messages", [to_target, to_others]:
                self.messages = Addressed(int(to_target), int(to_others), 0)
            case "row", words:
                self.row = words
            case "explain", [source, target]:
                return lines(self.explained(source, target), NOW_US, "geo.yaml")
            case cluster, ["registered", *clusters]:
                self.found[cluster] = _registered(self.topic, clusters[0] if clusters else None)
            case cluster, ["log", clusters]:
                self.told[cluster] = kept({"replication_clusters": clusters})
            case cluster, ["deleted"]:
                self.found[cluster] = _registered(self.topic, None, deleted=True)
            case cluster, ["away", *why]:
                self.away[cluster] = " ".join(why)
            case other:
                raise AssertionError(other)
        return []

    def explained(self, source: str, target: str) -> Explained:
        assert self.config is not None
        deleted = target in self.found and self.found[target].is_deleted
        decision = decide(
            self.config, source, target, self.topic, self.found.get(source), unread=self.away.get(source),
            deleted_in_target=deleted, told=self.told.get(source), messages=self.messages,
        )  # fmt: skip
        if not self.row:
            return Explained(source, target, decision, self.messages)
        state, at, newest, behind, *why = self.row
        link = self.config.link(source, target)
        status = LinkStatus(
            link, self.topic, State(state), " ".join(why) or None, int(at), int(newest), Lag(1, int(behind), 10, 4.2)
        )
        brought = CommitAt(17, "c-17", f"link {link.name}", AT)
        cursor = CursorAt(int(at), None, brought, "process 7 on vm3 runs it")
        minute, lag = 60_000_000, Lag(1, int(behind), 10, 4.2)
        then = [Then(60, None), Then(30, Lag(1, 3, 10, 2.0, complete=False)), Then(0, lag)]
        code, health = (Reason.SOURCE_RECREATED, Health.FAILED) if state == "FAILED" else (None, Health.CATCHING_UP)
        do = f"geo links resolve --source us --target eu --topic {self.topic} --dry-run" if code else None
        name, since_us = str(self.topic), NOW_US - 25 * minute
        finding = Finding(name, link.name, name, health, since_us, code, " ".join(why), do)
        return Explained(source, target, decision, self.messages, status, finding, cursor, then, NOW_US - 40 * minute)


def _registered(topic: Topic, clusters: str | None, *, deleted: bool = False) -> Registered:
    policies = {**({"replication_clusters": clusters} if clusters else {}), **({"deleted": "2026"} if deleted else {})}
    return Registered(topic, EPOCH, False, policies or None, 1)


def test_each_level_is_said_as_written() -> None:
    facts, printed = Facts(), {}
    for step in steps(SCENARIO.read_text()):
        printed[step.line] = facts.run(step.command)
        assert REWRITES or not differs(step.expected, printed[step.line]), f"{step.line}: {step.command}\n" + "\n".join(
            printed[step.line]
        )
    if REWRITES:
        SCENARIO.write_text(rewritten(SCENARIO.read_text(), printed))


CLUSTERS = ("us", "eu", "ap")
some = st.none() | st.lists(st.sampled_from(CLUSTERS), min_size=1, unique=True).map(tuple)
globs = st.sampled_from(
    ["persistent://*/*/*", "persistent://shop/*/*", "persistent://shop/web/*", str(ORDERS), "persistent://a/*/*"]
)


@given(globs, st.sampled_from(["both", "messages", "acks"]), st.lists(st.tuples(globs, some), max_size=3), some, st.booleans())
def test_the_decision_is_the_one_by_which_links_go(
    glob: str, carry: str, policies: list[tuple[str, tuple[str, ...] | None]], local: tuple[str, ...] | None, deleted: bool
) -> None:
    clusters = {name: Cluster(name, f"/data/{name}") for name in CLUSTERS}
    links = (Link("us", "eu", (glob,), carry=carry),)  # type: ignore[arg-type]  # one of Carry
    of = tuple(TopicPolicy(match, replication_clusters=among) for match, among in policies)
    config = Config("geo.yaml", clusters, links, of)
    found = _registered(ORDERS, ",".join(local) if local else None, deleted=deleted)
    decision = decide(config, "us", "eu", ORDERS, found)
    assert decision.replicated == replicates(config, links[0], found)
    assert decision.level is not None
    if decision.replicated and local is not None:
        assert decision.level is DecidedBy.TOPIC


def test_for_whom_messages_are_is_counted_by_the_records_of_commits() -> None:
    def commit(version: int, *spans: tuple[tuple[str, ...] | None, int]) -> Commit:
        batch = Batch("p", 1_000 - version, tuple(Span(LedgerKey("", to), 7, 0, count - 1) for to, count in spans), {})
        return Commit(version, f"c{version}", "WRITE", {}, {}, batch.encode(), 0, None, Actions(Effect.ADDED))

    rule = Rule("us", "eu", frozenset({"us"}))
    found = addressed([commit(1, (None, 3), (("ap",), 4)), commit(2, (("eu", "ap"), 5)), commit(3, ((), 6))], rule)
    assert found == Addressed(8, 10, 997)
    assert addressed([], rule) == Addressed()


def test_events_are_a_line_each() -> None:
    event = Event("1", AT, "eu", EventKind.LINK, f"us->eu {ORDERS}", str(ORDERS), "RUNNING", "FAILED", Reason.SOURCE_RECREATED,
                  "why. Do: geo links restart --source us", "ops@vm3: geo broker", 3)  # fmt: skip
    told = "RUNNING -> FAILED (3 times)  SOURCE_RECREATED: why. Do: geo links restart --config geo.yaml --source us  ops@vm3: geo broker"
    assert event_lines([event], "geo.yaml") == [f"  2026-11-28T03:12:04Z  eu  LINK  us->eu {ORDERS}  {told}"]


def test_a_reason_names_verbs_to_programs_as_they_are_typed() -> None:
    reason = "it was dropped. Then: geo links resolve --source us --target eu"
    typed = "it was dropped. Then: geo links resolve --config /etc/geo.yaml --source us --target eu"
    failed = Finding(str(ORDERS), "us->eu", str(ORDERS), Health.FAILED, None, Reason.SOURCE_RECREATED, reason, None)
    assert finding_as_json(failed, NOW_US, "/etc/geo.yaml")["reason"] == typed
    report = BrokerReport(WorkKind.LINK, "us->eu", State.FAILED, reason, 0, {})
    output = Output(as_json=True)
    output.config = "/etc/geo.yaml"
    assert _fields(report, output)["reason"] == typed
