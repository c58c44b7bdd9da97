"""`geo events`: what changed, as people and programs read it, without Spark."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.cli import running
from geo.cli.events import HEAD, Followed, cells_of, fields_of
from geo.cli.main import main
from geo.cli.output import Line, Output, fitted
from geo.config.cluster import Cluster
from geo.errors import RetryableError
from geo.journal.event_rate import Event, EventKind, EventRate
from geo.journal.events import SETTING, Events
from geo.now import utc_now
from geo.reasons import Reason
from geo.schemas import EVENTS
from geo.text import printable
from geo.times import EPOCH
from tests.examples import examples
from tests.journal.test_events import region
from tests.processes import environment
from tests.scenario_text import replay

TOPIC = "persistent://shop/web/clicks"


class Regions:
    def __init__(self, folder: Path) -> None:
        self.tables = {name: region(Cluster(name, root=str(folder / name))) for name in ("eu", "us")}
        self.path = folder / "geo.yaml"
        clusters = {name: {"root": tables.place} for name, tables in self.tables.items()}
        self.path.write_text(yaml.safe_dump({"version": 1, "clusters": clusters, "links": []}))
        noted = Events(self.tables["eu"])
        noted.note(EventKind.VERB, "us->eu *", "pause", at=utc_now() - timedelta(hours=3))
        noted.note(
            EventKind.LINK, f"us->eu {TOPIC}", "FAILED", topic=TOPIC, from_state="RUNNING",
            code=Reason.SOURCE_RECREATED, reason="versions 0-7 are of another table", at=utc_now() - timedelta(minutes=3),
        )  # fmt: skip
        assert noted.flush()
        of_us = Events(self.tables["us"])
        of_us.note(EventKind.OWNER, "broker of us", "RUNNING")
        assert of_us.flush()

    def run(self, *words: str) -> int:
        return main(["events", "--config", str(self.path), *words])


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Regions:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(SETTING)
        return Regions(tmp_path_factory.mktemp("events"))


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "start_spark", lambda *args: pytest.fail("Spark is started"))


def test_the_newest_comes_last_with_when_what_why_and_who(regions: Regions, capsys: pytest.CaptureFixture[str]) -> None:
    assert regions.run() == 0
    head, link, owner = capsys.readouterr().out.splitlines()
    assert head.split() == ["TIME", "CLUSTER", "KIND", "SUBJECT", "CHANGE", "REASON", "BY"]
    assert f"Z  eu       LINK   us->eu {TOPIC}  RUNNING -> FAILED  SOURCE_RECREATED: versions 0-7 are of another table" in link
    assert "Z  us       OWNER  broker of us" in owner


@pytest.mark.parametrize(
    ("words", "subjects"),
    [
        (["--since", "4h"], ["us->eu *", f"us->eu {TOPIC}", "broker of us"]),
        (["--since", "36525d"], ["us->eu *", f"us->eu {TOPIC}", "broker of us"]),
        (["--since", "1999-01-01"], ["us->eu *", f"us->eu {TOPIC}", "broker of us"]),
        (["--since", "1m"], ["broker of us"]),
        (["--cluster", "us"], ["broker of us"]),
        (["--kind", "link,VERB", "--since", "1 day"], ["us->eu *", f"us->eu {TOPIC}"]),
        (["--topic", "persistent://shop/*/clicks"], [f"us->eu {TOPIC}"]),
        (["--topic", "persistent://shop/*/views"], []),
    ],
)  # fmt: skip
def test_what_is_asked_for_is_shown(
    regions: Regions, capsys: pytest.CaptureFixture[str], words: list[str], subjects: list[str]
) -> None:
    assert regions.run("-o", "json", *words) == 0
    assert [one["subject"] for one in json.loads(capsys.readouterr().out)] == subjects


def test_a_kind_that_is_not_there_is_refused_with_those_that_are(regions: Regions, capsys: pytest.CaptureFixture[str]) -> None:
    assert regions.run("--kind", "LINK,LNIK") == 2
    assert "there is no kind 'LNIK' of events; there are: LINK, WORK, OWNER" in capsys.readouterr().err
    assert regions.run("--cluster", "mars") == 2


@settings(max_examples=examples(0.5))
@given(st.text(max_size=12))
def test_any_beginning_is_taken_or_refused(regions: Regions, text: str) -> None:
    try:
        code = regions.run(f"--since={text}", "-o", "json")
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code in (0, 2)


_TEXTS = st.text(max_size=30)


@given(_TEXTS, _TEXTS, _TEXTS, st.one_of(st.none(), _TEXTS))
def test_no_text_moves_a_cursor_or_begins_a_line(subject: str, state: str, by: str, reason: str | None) -> None:
    one = Event("1", EPOCH, "eu", EventKind.LINK, subject, None, None, state, None, reason, by, 3)
    lines = Lines()
    lines.table(HEAD, [cells_of(one, "geo.yaml")])
    assert len(lines.said) == 2
    assert all(printable(line) == line for line in lines.said)
    assert json.loads(json.dumps({**fields_of(one, "geo.yaml"), "at": None}))["subject"] == subject


SCENARIO = Path(__file__).parent.parent / "scenarios" / "screens" / "events.txt"


class Lines(Output):
    """What is said, line by line."""

    def __init__(self) -> None:
        super().__init__(as_json=False)
        self.said: list[str] = []

    def lines(self, lines: Iterable[Line]) -> None:
        self.said += [line for line, _ in fitted(lines, None)]


class Told:
    """What is noted before it is shown."""

    def __init__(self) -> None:
        self.rate = EventRate("w")

    def run(self, command: str) -> list[str]:
        match [word.encode().decode("unicode_escape") for word in shlex.split(command)]:
            case ["note", time, cluster, kind, subject, change, *why]:
                before, _, now = change.rpartition(">")
                self._note(time, cluster, kind, subject, before or None, now, *why)
            case ["flap", times, time, cluster, kind, subject, state, other, code, reason]:
                for number in range(int(times)):
                    last, now, known = (state, other, [code, reason]) if number % 2 == 0 else (other, state, [])
                    self._note(time, cluster, kind, subject, last, now, *known)
            case ["events"]:
                rows, said = sorted(self.rate.due, key=lambda one: one.at), Lines()
                said.table(HEAD, [cells_of(one, "geo.yaml") for one in rows])
                self.rate = EventRate("w")
                return said.said
            case _:
                raise ValueError(command)
        return []

    def _note(
        self, time: str, cluster: str, kind: str, subject: str, before: str | None, now: str, code: str = "", reason: str = ""
    ) -> None:
        at = datetime.fromisoformat(f"2026-11-28T{time}+00:00")
        why = Reason(code) if code else None
        self.rate.note(Event("", at, cluster, EventKind(kind), subject, None, before, now, why, reason or None, "ops@vm3 19008"))


def test_the_screen_is_as_written() -> None:
    replay(SCENARIO, Told().run)


def test_what_is_followed_is_remembered_for_some_hours_and_told_once_also_when_the_region_was_away(tmp_path: Path) -> None:
    tables = region(Cluster("eu", root=str(tmp_path / "eu")))
    now, rate = utc_now(), EventRate("w")

    def note(subject: str, hours_ago: float) -> None:
        at = now - timedelta(hours=hours_ago)
        rate.note(Event("", at, "eu", EventKind.VERB, subject, None, None, "pause", None, None, "ops"))
        tables.journal(EVENTS).append(rate.due)
        rate.written(rate.due)

    followed = Followed(tables, now - timedelta(days=3), [])

    def told() -> list[tuple[str, int]]:
        return [(one.subject, one.count) for one in followed.fresh(followed.look())]

    note("old", 60)
    note("newer", 10)
    assert told() == [("old", 1), ("newer", 1)]
    assert told() == []
    note("newer", 10)
    note("late", 11)
    assert told() == [("late", 1), ("newer", 2)]
    assert {one.subject for one in followed._told.values()} == {"newer", "late"}, "what can come no more is forgotten"
    (tmp_path / "eu").rename(tmp_path / "away")
    with pytest.raises(RetryableError, match="there is no table now"):
        told()
    (tmp_path / "away").rename(tmp_path / "eu")
    note("back", 5)
    assert told() == [("back", 1)]
    assert {one.subject for one in followed._told.values()} == {"back"}


@pytest.mark.slow
def test_what_comes_is_followed_until_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING)
    regions = Regions(tmp_path)
    words = [sys.executable, "-m", "geo", "events", "--config", str(regions.path), "--follow", "--cluster", "eu"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        assert "SOURCE_RECREATED" in process.stdout.readline()
        noted = Events(regions.tables["eu"])
        noted.note(EventKind.VERB, "us->eu *", "resume")
        assert noted.flush()
        assert "VERB  us->eu *  resume" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
