"""When a configuration that has changed is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from geo.errors import ConfigError
from geo.fleet.config_file import ConfigFile
from geo.streams import timetable
from geo.testing import config_text

TWO, THREE = config_text(("eu", "us"), []), config_text(("eu", "us", "ap"), [])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every look reads it."""
    monkeypatch.setattr(timetable, "CONFIG_LOOK_S", 0.0)
    path = tmp_path / "geo.yaml"
    path.write_text(TWO)
    return path


def test_a_change_counts_once_two_looks_have_found_the_same(path: Path) -> None:
    file = ConfigFile(str(path))
    assert not file.has_changed()
    path.write_text(THREE[:-10])
    assert not file.has_changed(), "somebody may still be writing it"
    path.write_text(THREE)
    assert [file.has_changed() for _ in range(2)] == [False, True]
    assert set(file.config.clusters) == {"eu", "us", "ap"}
    file.take()
    assert [file.has_changed() for _ in range(2)] == [False, False]


def test_what_was_refused_is_left_alone_until_it_changes_or_somebody_asks(path: Path) -> None:
    file = ConfigFile(str(path))
    path.write_text("version: none")
    assert [file.has_changed() for _ in range(2)] == [False, True]
    with pytest.raises(ConfigError):
        _ = file.config
    file.refuse()
    assert [file.has_changed() for _ in range(2)] == [False, False]
    file.hurry()
    assert [file.has_changed() for _ in range(2)] == [True, False]
    path.write_text(TWO)
    assert [file.has_changed() for _ in range(2)] == [False, False], "it is what runs"
    path.write_text(THREE)
    assert [file.has_changed() for _ in range(2)] == [False, True]


def test_who_hurries_has_it_taken_at_the_first_look_and_a_file_that_is_gone_is_a_change(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timetable, "CONFIG_LOOK_S", 3600.0)
    file = ConfigFile(str(path))
    path.write_text(THREE)
    assert not file.has_changed(), "it is not read all the time"
    file.hurry()
    assert file.has_changed()
    file.take()
    path.unlink()
    file.hurry()
    assert file.has_changed()
    with pytest.raises(ConfigError):
        _ = file.config
