"""Each verb that changes something tells who asked for what, and what came of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from geo.cli import links
from geo.cli.main import main
from geo.errors import UnsafeError
from geo.journal.cluster import without_spark
from geo.journal.event_rate import Event, EventKind
from geo.journal.events import SETTING, flush_all, read_events
from geo.reasons import Reason
from geo.times import EPOCH
from tests.cli.test_events import TOPIC, Regions


@pytest.fixture
def regions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Regions:
    monkeypatch.delenv(SETTING)
    return Regions(tmp_path)


def _newest(regions: Regions, cluster: str) -> Event:
    flush_all()
    return read_events(without_spark(regions.tables[cluster].cluster), EPOCH)[-1]


_PAUSE = ("--source", "us", "--target", "eu", "--topic", TOPIC)


def test_what_was_asked_is_told_where_it_was_done_and_how_it_ended(regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "load", lambda path: _refuse())
    assert main(["links", "pause", "--config", str(regions.path), *_PAUSE]) == 3
    one = _newest(regions, "eu")
    assert (one.kind, one.subject, one.topic, one.to_state) == (EventKind.VERB, f"us->eu {TOPIC}", TOPIC, "links pause refused")
    assert (one.reason_code, one.reason) == (Reason.MISNAMED, f"geo links pause --source us --target eu --topic {TOPIC}: no")


def _refuse() -> None:
    raise UnsafeError("no", code=Reason.MISNAMED)


def test_what_only_rehearses_or_is_wrongly_asked_for_is_not_told(regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _newest(regions, "eu")
    assert main(["backfill", "--config", str(regions.path), "--source", "us", "--target", "mars", "--topic", TOPIC]) == 2
    monkeypatch.setattr(links, "load", lambda path: _refuse())
    assert main(["reconcile", "--config", str(regions.path), *_PAUSE, "--dry-run"]) == 3
    assert _newest(regions, "eu") == before


def test_a_condition_on_messages_is_not_told_since_it_may_name_a_person(
    regions: Regions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geo.cli.ops.load_for", lambda args: _refuse())
    words = ["erase", "--config", str(regions.path), "--cluster", "eu", "--topic", TOPIC]
    for where in (["--where", "key = 'customer 7'"], ["--where=key = 'customer 7'"]):
        assert main([*words, *where]) == 3
        one = _newest(regions, "eu")
        assert one.kind is EventKind.ERASE
        assert one.reason == f"geo erase --cluster eu --topic {TOPIC} --where=…: no"
    with pytest.raises(SystemExit):  # by a short form it would be told
        main([*words, "--wher=key = 'customer 7'"])
