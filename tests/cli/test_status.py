"""`geo status`: what facts come to and how it is printed, as written in a scenario; names and texts of any kind; and two regions on an S3 API, of
which it reads little and writes nothing, without Spark and pandas."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.cli.main import main
from geo.cli.output import fitted, to_json
from geo.cli.status import as_json, screen
from geo.coordination.claiming import claim
from geo.coordination.claims import OWNED, Liveness, Owner
from geo.coordination.holder import Holder
from geo.coordination.runners import broker_runner
from geo.names import Topic
from geo.ops.backlog import Backlog
from geo.ops.health import Finding, Health
from geo.ops.region_process import RegionProcess
from geo.ops.status import (
    ClusterFacts,
    OfVersions,
    Status,
    StatusFacts,
    SubscriptionFacts,
    TopicOfLink,
    Verified,
    status_of,
)
from geo.reasons import Reason, Wrong
from geo.times import from_us, in_us
from tests.far import TOPIC, Far
from tests.object_store import ObjectStore as S3
from tests.scenario_text import replay

SCENARIO = Path(__file__).parent.parent / "scenarios" / "screens" / "status.txt"

NOW_US = in_us(datetime.fromisoformat("2026-11-28T03:12:04+00:00"))


def _us(ago: str) -> int | None:
    """When it was so many minutes ago, as `25m`; None: `?`."""
    return None if ago == "?" else NOW_US - int(ago.removesuffix("m")) * 60 * 1_000_000


def _backlog(text: str) -> Backlog:
    """`310/4s`, `>310/4s` of what is a lower bound, or `?`."""
    if text == "?":
        return Backlog(None, None, complete=False)
    messages, _, seconds = text.lstrip(">").partition("/")
    return Backlog(int(messages), float(seconds.removesuffix("s") or 0), complete=not text.startswith(">"))


def _broker(name: str, silent_s: float, works: int, liveness: str) -> RegionProcess:
    """`name`: host and process id."""
    host, _, pid = name.partition(":")
    last_us = NOW_US - round(silent_s * 1e6)
    claim = Owner("broker", 1, "t", name, OWNED, False, from_us(last_us))
    holder = Holder(
        claim, f"process {pid} on {host}", Liveness(liveness), last_us, silent_s, (1,) if liveness == "HALTED" else ()
    )
    return RegionProcess(name, "broker", holder, NOW_US, works)


@dataclass(slots=True)
class Told:
    """What is said before a screen is asked for."""

    facts: StatusFacts = field(default_factory=lambda: StatusFacts(NOW_US, [], []))

    def run(self, command: str) -> list[str]:
        facts, words = self.facts, command.split()
        match words:
            case ["links", *links]:
                self.facts = StatusFacts(NOW_US, [], [(one.split("->")[0], one.split("->")[1]) for one in links])
            case ["cluster", name, published, *topics]:
                all_of, own = (
                    tuple(Topic.parse(f"persistent://{topic.lstrip('~')}") for topic in topics if is_shown(topic))
                    for is_shown in (bool, lambda topic: not topic.startswith("~"))
                )
                rate = None if published == "?" else float(published)
                one = ClusterFacts(name, published=rate, topics=all_of, own=own)
                self.facts = replace(facts, clusters=[*facts.clusters, one])
            case ["away", name, code, *why]:
                what, _, do = " ".join(why).partition(" | ")
                one = ClusterFacts(name, Wrong(Reason(code), what, do))
                self.facts = replace(facts, clusters=[*facts.clusters, one])
            case ["broker", name, process, silent, works, *dead]:
                broker = _broker(process, float(silent), int(works), " ".join(dead) or "LIVES")
                self._change(name, lambda one: replace(one, brokers=(*one.brokers, broker)))
            case ["verified", name, ago, *what]:
                told = Verified(_us(ago) or 0, what == ["clean"], " ".join(what))
                self._change(name, lambda one: replace(one, verified=told))
            case [count, "topics", link, state, health, since, now, before, *why] if count.isdigit():
                code, _, rest = " ".join(why).partition(": ")
                reason, _, do = rest.partition(" | ")
                for number in range(int(count)):
                    topic = f"persistent://shop/web/{'orders' if number == 0 else f'orders-{number}'}"
                    finding = Finding(
                        topic, link, topic, Health(health), _us(since), Reason(code) if code else None, reason, do or None
                    )
                    self._topic(link, topic, state, finding, now, before)
            case ["topic", link, name, state, now, before]:
                topic = f"persistent://{name}"
                self._topic(link, topic, state, Finding(topic, link, topic, Health.OK, None, None, "", None), now, before)
            case ["subscription", topic, name, region, backlog, *ways]:
                found = [re.fullmatch(r"(\w+)->(\w+)=(\d+)/(\d+|\?)", way) for way in ways]
                repeats = {(one[1], one[2]): int(one[3]) for one in found if one}
                skips = {(one[1], one[2]): int(one[4]) for one in found if one and one[4] != "?"}
                waits = None if backlog == "?" else int(backlog)
                told_of = SubscriptionFacts(Topic.parse(f"persistent://{topic}"), name, region, waits, repeats, skips)
                self.facts = replace(facts, subscriptions=[*facts.subscriptions, told_of])
            case ["of-versions", topic, name, region, backlog]:
                told_of_versions = OfVersions(
                    Topic.parse(f"persistent://{topic}"), name, region, None if backlog == "?" else int(backlog)
                )
                clusters = [
                    replace(of, of_versions=(*of.of_versions, told_of_versions)) if of.cluster == region else of
                    for of in facts.clusters
                ]
                self.facts = replace(facts, clusters=clusters)
            case ["status", *more]:
                given = dict(one.split("=") for one in more)
                status = status_of(facts, float(given["max-lag"]) if "max-lag" in given else None)
                return [*_shown(status, int(given["width"]) if "width" in given else None), f"[{int(status.fails('warn'))}]"]
            case _:
                raise AssertionError(command)
        return []

    def _change(self, name: str, change: object) -> None:
        assert callable(change)
        self.facts = replace(self.facts, clusters=[change(one) if one.cluster == name else one for one in self.facts.clusters])

    def _topic(self, link: str, topic: str, state: str, finding: Finding, now: str, before: str) -> None:
        source, target = link.split("->")
        earlier = None if before == "?" else _backlog(before)
        one = TopicOfLink(source, target, Topic.parse(topic), state, finding, _backlog(now), earlier)
        self.facts = replace(self.facts, topics=[*self.facts.topics, one])


def _shown(status: Status, width: int | None) -> list[str]:
    return [line for line, _ in fitted(screen(status, "0.2.0", width, "geo.yaml"), width)]


def test_the_screen_is_as_written() -> None:
    replay(SCENARIO, Told().run)


_ANY = st.text(max_size=40)


@given(
    st.sampled_from(Health),
    _ANY,
    _ANY,
    st.none() | _ANY,
    st.none() | st.integers(-(10**15), 4 * 10**15),
    _ANY,
    st.none() | st.integers(20, 200),
)
def test_any_text_is_shown_on_lines_of_its_own_and_moves_no_cursor(
    health: Health, subject: str, reason: str, do: str | None, since_us: int | None, name: str, width: int | None
) -> None:
    finding = Finding(subject, name, subject, health, since_us, Reason.OTHER, reason, do)
    one = TopicOfLink("us", "eu", TOPIC, "RUNNING", finding, Backlog(3, 4.0), None)
    away = ClusterFacts(name, unreadable=Wrong(Reason.NO_ANSWER, reason, do or ""))
    dead = ClusterFacts("us", brokers=(_broker(name, 900.0, 2, "DEAD"),), verified=Verified(0, False, reason), topics=(TOPIC,))
    status = status_of(StatusFacts(NOW_US, [away, dead], [("us", "eu"), (name, "us")], [one]))
    lines = _shown(status, width)
    assert not [line for line in lines if re.search(r"[\x00-\x1f\x7f-\x9f]", line)]
    json.dumps(to_json(as_json(status, "geo.yaml")), allow_nan=False)
    assert status.fails("warn") >= (health not in (Health.OK, Health.CATCHING_UP))


@pytest.mark.slow
def test_two_regions_on_a_store_are_read_by_few_requests_and_nothing_is_written_or_imported_that_it_does_not_need(
    s3: S3, tmp_path: Path
) -> None:
    far = Far.made(s3, tmp_path)
    far.publish(10)
    far.replicate()
    ran = (
        "import sys; from geo.cli.main import main; code = main(); "
        "print(code, *sorted({m.split('.')[0] for m in sys.modules} & {'pyspark', 'py4j', 'pandas'}))"
    )
    before = s3.counts()
    done = subprocess.run(
        [sys.executable, "-c", ran, "status", "--config", str(far.path), "--engine", "native"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    asked = s3.counts() - before
    assert done.stdout.splitlines()[-1] == "0", done.stdout + done.stderr
    assert "us->eu  1" in done.stdout
    assert set(asked) <= {"GET", "HEAD", "LIST"}
    assert asked.total() <= 36  # 26 where nothing else runs


@pytest.mark.slow
def test_who_runs_a_cluster_that_no_brokers_share_is_told(s3: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    far = Far.made(s3, tmp_path)
    far.publish(10)

    def brokers() -> tuple[int, str]:
        code = main(["brokers", "--cluster", "us", "--config", str(far.path), "--engine", "native"])
        return code, capsys.readouterr().out

    assert brokers() == (0, f"nobody runs us now: geo broker --config {far.path} --cluster us\n")
    elsewhere = far.on_host("vm3").tables("us")
    (owned,) = claim(elsewhere, [[broker_runner(elsewhere)]])
    try:
        code, text = brokers()
        assert (code, len(text.splitlines())) == (0, 2)
        assert re.match(r"vm3:\d+ +broker +\d{4}-\d\d-\d\d [\d:]{8}Z +\d+\.\d s ago +0$", text.splitlines()[1])
        metrics = tmp_path / "geo.prom"
        status = main(["status", "--config", str(far.path), "--engine", "native", "--metrics-file", str(metrics)])
        shown = capsys.readouterr().out
        assert 'geo_broker_up{geo_cluster="us"} 1\n' in metrics.read_text()
        assert [one.name for one in tmp_path.glob("*prom*")] == ["geo.prom"]
        assert (status, "us       vm3:" in shown) == (0, True), shown
    finally:
        owned.abandon()
    nowhere = main(["status", "--config", str(far.path), "--engine", "native", "--topic", "persistent://shop/web/click"])
    assert (nowhere, f"did you mean {TOPIC}?" in capsys.readouterr().err) == (2, True)
