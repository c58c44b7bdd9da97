"""Everything of a cluster in one application: what it runs, and what becomes of it when the configuration changes."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
import yaml

from geo.config.model import DispatchRate
from geo.errors import AlreadyOwnedError, FencedError, SourceChangedError
from geo.fleet import work_groups
from geo.fleet.broker import Broker
from geo.fleet.turns import LinkTurns
from geo.fleet.work_reports import BrokerReport, WorkKind
from geo.log.partitioned import create_single
from geo.log.publish import publish_json_lines
from geo.log.topics import registered_topics
from geo.names import Topic
from geo.ops.delete_topic import delete_topics
from geo.replication.link_topics import LinkTopics
from geo.schemas import OWNERS
from geo.streams import timetable
from geo.streams.life import State
from geo.streams.trigger import AVAILABLE_NOW
from geo.subscription.versions.version_subscriptions import create
from tests.running import TRIGGER
from tests.subscription.consuming import consume
from tests.waiting import InThread
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

OTHER = Topic.parse("persistent://shop/web/orders")


class Running(InThread[list[BrokerReport]]):
    """A broker, and what it said."""

    def __init__(self, world: World, cluster: str, *, take_over: bool = False) -> None:
        self.events: list[BrokerReport] = []
        self.said: list[str] = []
        self.broker = Broker(
            world.spark, str(world.path), cluster, trigger=TRIGGER, take_over=take_over, on_event=self.events.append,
            say=self.said.append,
        )  # fmt: skip
        super().__init__(self.broker.run, self.broker.stop, lambda: (self.events, self.said))

    def state(self, name: str) -> State | None:
        return next((event.state for event in reversed(self.events) if event.name == name), None)


@pytest.fixture(autouse=True)
def _soon() -> Iterator[None]:
    """Intervals only: so that nobody waits ten seconds for nothing."""
    with (
        mock.patch.object(timetable, "DISCOVERY_S", 0.5),
        mock.patch.object(timetable, "RECORD_S", 0.5),
        mock.patch.object(timetable, "SOURCE_LOOK_S", 0.5),
        mock.patch.object(timetable, "CONFIG_LOOK_S", 0.2),
        mock.patch.object(timetable, "OWNED_LOOK_S", 0.5),
        mock.patch.object(work_groups, "FOLD_TRIGGER", TRIGGER),
    ):
        yield


def _publishes(world: World, *entries: str) -> None:
    """The world's configuration with a section `publish`, put in place at once."""
    text = world.path.read_text().split("publish:")[0]
    world.put(text + "publish:\n" + "".join(f"  - {entry}\n" for entry in entries))


def _entry(topic: Topic, folder: str, producer: str = "default") -> str:
    return f'{{cluster: eu, topic: "{topic}", jsonl: {folder}, producer: {producer}}}'


def test_one_pass_publishes_replicates_and_folds_what_there_is(linked: World) -> None:
    consume(linked, "us")
    linked.lines("in", 0, 5)
    _publishes(linked, _entry(OTHER, "in"))
    linked.reload()
    said: list[str] = []
    reports = Broker(linked.spark, str(linked.path), "eu", trigger=AVAILABLE_NOW, say=said.append).run()
    assert [(r.kind, r.name, r.state) for r in reports] == [
        (WorkKind.PUBLISHER, f"{OTHER} in eu by default", State.STOPPED),
        (WorkKind.LINK, f"us->eu {TOPIC.acks}", State.STOPPED),
        (WorkKind.LINK, f"us->eu {TOPIC}", State.STOPPED),
    ]
    published, acks, messages = (r.count for r in reports)
    assert (published, messages) == (5, 0)
    assert acks > 0
    (again, *_) = Broker(linked.spark, str(linked.path), "eu", trigger=AVAILABLE_NOW).run()
    assert (again.state, again.count) == (State.STOPPED, 0)
    # What the first pass brought of acknowledgements is folded by the next.
    create(linked.tables("us"), TOPIC, "reports")
    broker = Broker(linked.spark, str(linked.path), "eu", trigger=AVAILABLE_NOW)
    others = [(r.kind, r.name, r.state) for r in broker.run() if r.kind in (WorkKind.FOLD, WorkKind.VERSIONS)]
    assert others == [(WorkKind.FOLD, str(TOPIC.acks), State.STOPPED), (WorkKind.VERSIONS, "version sync of eu", State.STOPPED)]
    assert "version syncs 1 STOPPED" in broker.status()
    assert broker.status().endswith("replicated, 0 markers written")


def test_a_changed_configuration_counts_without_a_restart_and_disturbs_nothing_else(
    linked: World, caplog: pytest.LogCaptureFixture
) -> None:
    linked.lines("clicks", 100, 105)
    _publishes(linked, _entry(TOPIC, "clicks"))
    linked.reload()
    clicks, link = f"{TOPIC} in eu by default", f"us->eu {TOPIC}"
    with Running(linked, "eu") as running:
        running.until(lambda: running.state(clicks) is State.RUNNING and running.state(link) is State.RUNNING)
        assert "runs 1 publisher and 1 link by" in running.said[0], "the log of a broker is never empty"
        owned = {row["runner"]: row["generation"] for row in linked.tables("eu").journal(OWNERS).newest()}
        generation = owned[f"origin us of {TOPIC} into eu"]
        linked.lines("orders", 0, 5)
        _publishes(linked, _entry(TOPIC, "clicks"), _entry(OTHER, "orders"))
        running.until(lambda: linked.count("eu", OTHER) == 5)
        linked.write("us", 0, 3, topic=OTHER)  # a new topic of a source
        running.until(lambda: linked.count("eu", OTHER) == 8)
        for wrong in ("{cluster: eu}", _entry(TOPIC, "clicks") + "\n  - " + _entry(TOPIC, "clicks")):
            caplog.clear()
            _publishes(linked, wrong)
            running.until(lambda: "is refused, what runs goes on" in caplog.text)
        _publishes(linked, _entry(OTHER, "orders"))
        running.until(lambda: running.state(clicks) is State.STOPPED)
        linked.lines("orders", 5, 7)
        linked.write("us", 20, 22)
        running.until(lambda: linked.count("eu", OTHER) == 10 and linked.count("eu") == 47)
        owners = {row["runner"]: row for row in linked.tables("eu").journal(OWNERS).newest()}
        assert owners[f"producer default of {TOPIC} in eu"]["state"] == "released"
    assert {(r.kind, r.state) for r in running.ended} == {(WorkKind.PUBLISHER, State.STOPPED), (WorkKind.LINK, State.STOPPED)}
    now = {row["runner"]: row["generation"] for row in linked.tables("eu").journal(OWNERS).newest()}
    assert now[f"origin us of {TOPIC} into eu"] == generation, "the link was not begun anew"
    assert {str(one.topic) for one in registered_topics(linked.tables("eu"))} >= {str(TOPIC), str(OTHER)}
    linked.reload()
    linked.replicate("us")
    linked.assert_clean(TOPIC, OTHER)


def test_fetchers_and_rates_change_while_their_link_runs_and_brings_everything_once(linked: World) -> None:
    """Two fetchers, five, three, while four topics are written."""
    topics = [TOPIC, *(Topic.parse(f"persistent://shop/web/t{number}") for number in range(3))]
    for topic in topics[1:]:
        linked.write("us", 0, 20, topic=topic)

    def paced(text: str) -> None:
        linked.rewrite(("eu", "us"), [{"source": "us", "target": "eu", **yaml.safe_load(text)}, ("eu", "us")])

    def owned() -> dict[str, int]:
        rows = linked.tables("eu").journal(OWNERS).newest()
        return {row["runner"]: row["generation"] for row in rows if row["runner"].startswith("origin us of")}

    paced("{num_fetchers: 2}")
    written = 20
    with Running(linked, "eu") as running:
        running.until(lambda: all(running.state(f"us->eu {topic}") is State.RUNNING for topic in topics))
        generations = owned()
        for pace in ("{num_fetchers: 5}", "{num_fetchers: 3, dispatch_rate: {messages_per_second: 100000}}"):
            said = len(running.said)
            paced(pace)
            while len(running.said) == said:  # under load
                for topic in topics:
                    linked.write("us", written, written + 5, topic=topic)
                written += 5
                running.until(lambda: True)  # it lives
        (turns,) = [group.turns for _, group in running.broker._parts if isinstance(group, LinkTopics)]
        assert isinstance(turns, LinkTurns)
        assert turns._fetchers.num_fetchers == 3
        assert turns._allowance(TOPIC).rate == DispatchRate(100_000)
        running.until(lambda: all(linked.count("eu", topic) >= written for topic in topics))
        assert {event.state for event in running.events} == {State.RUNNING}
        assert owned() == generations, "nothing was begun anew"
    linked.replicate("us")
    linked.assert_clean(*topics)


def test_a_second_broker_is_refused_and_one_that_takes_over_ends_the_first(linked: World) -> None:
    with Running(linked, "eu") as first:
        first.until(lambda: first.state(f"us->eu {TOPIC}") is State.RUNNING)
        with pytest.raises(AlreadyOwnedError, match="broker of eu: already run by"):
            Broker(linked.spark, str(linked.path), "eu", trigger=TRIGGER).run()
        with Running(linked, "eu", take_over=True) as second:
            first.join()
            with pytest.raises(FencedError):
                _ = first.ended
            second.until(lambda: second.state(f"us->eu {TOPIC}") is State.RUNNING)
            linked.write("us", 20, 25)
            second.until(lambda: linked.count("eu") == 45)
    linked.replicate("us")
    linked.assert_clean()


def test_works_that_fail_stop_no_other(linked: World) -> None:
    _publishes(linked, _entry(OTHER, "nowhere"), _entry(TOPIC, "clicks"))
    linked.lines("clicks", 100, 105)
    linked.reload()
    with Running(linked, "eu") as running:
        running.until(lambda: running.state(f"{OTHER} in eu by default") is State.FAILED)
        linked.log("us").delta().restoreToVersion(0)
        running.until(lambda: running.state(f"us->eu {TOPIC}") is State.FAILED)
        linked.lines("clicks", 105, 109)
        running.until(lambda: linked.count("eu") == 49)
        assert "publishers 1 RUNNING, 1 FAILED; link topics 1 FAILED" in running.broker.status()
    assert {r.state for r in running.ended if r.name == f"us->eu {TOPIC}"} == {State.FAILED}
    assert "geo reconcile" in next(r.reason or "" for r in running.ended if r.name == f"us->eu {TOPIC}")


def test_a_publisher_that_needs_a_person_can_be_had_and_goes_on_once_that_is_done(
    linked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timetable, "FAILED_AGAIN_S", 1.0)
    file = linked.lines("clicks", 100, 105) / "000100.jsonl"
    _publishes(linked, _entry(OTHER, "clicks"))
    linked.reload()
    whole, name = file.read_text(), f"{OTHER} in eu by default"
    with Running(linked, "eu") as running:
        running.until(lambda: linked.count("eu", OTHER) == 5)
        file.write_text(whole.replace("k100", "k999") + '{"key": "more"}\n')
        running.until(lambda: running.state(name) is State.FAILED)
        with pytest.raises(SourceChangedError):  # it is owned by nobody, and as wrong for anybody else
            publish_json_lines(linked.spark, str(file.parent), OTHER, linked.config, "eu").await_termination()
        file.write_text(whole)
        linked.lines("clicks", 105, 108)
        running.until(lambda: linked.count("eu", OTHER) == 8)


def test_a_publication_of_the_configuration_does_not_bring_back_a_topic_that_was_deleted(linked: World) -> None:
    linked.lines("clicks", 100, 105)
    _publishes(linked, _entry(OTHER, "clicks"))
    linked.reload()
    name = f"{OTHER} in eu by default"

    def passes() -> BrokerReport:
        reports = Broker(linked.spark, str(linked.path), "eu", trigger=AVAILABLE_NOW).run()
        return next(report for report in reports if report.name == name)

    assert passes().count == 5
    (gone,) = delete_topics(linked.spark, linked.config, "eu", str(OTHER), lose=True)
    assert gone.facts.publications == (name,)
    report = passes()
    assert report.state is State.FAILED
    assert f"{OTHER} was deleted in eu. Nothing was published." in (report.reason or "")
    assert not linked.log("eu", OTHER).exists()
    create_single(linked.tables("eu"), OTHER)
    assert passes().count == 5, "a person has asked for it"


def test_a_publisher_learns_of_a_cluster_that_joins(linked: World) -> None:
    folder = linked.lines("clicks", 100, 102)
    _publishes(linked, _entry(OTHER, "clicks"))
    linked.reload()
    with Running(linked, "eu") as running:
        running.until(lambda: linked.count("eu", OTHER) == 2)
        linked.rewrite(("eu", "us", "asia"))
        _publishes(linked, _entry(OTHER, "clicks"))
        running.broker.reload()
        running.until(lambda: any("configuration reloaded" in line for line in running.said))
        (folder / "aimed.jsonl").write_text('{"key": "a", "replicate_to": ["asia"]}\n')
        running.until(lambda: linked.count("eu", OTHER) == 3)
