"""Which configuration is taken when nobody names one. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from geo.config.found import FoundConfig, find
from geo.errors import ConfigError


def test_one_that_is_given_goes_before_the_environment_and_that_before_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEO_CONFIG", "")
    with pytest.raises(
        ConfigError, match=r"--config is not given, GEO_CONFIG is not set, and there is no geo\.yaml in .*geo init"
    ):
        find()
    Path("geo.yaml").touch()
    assert find() == FoundConfig("geo.yaml", f"found in {tmp_path}")
    other = tmp_path / "other.yaml"
    monkeypatch.setenv("GEO_CONFIG", str(other))
    with pytest.raises(ConfigError, match=r"GEO_CONFIG names the configuration .*other\.yaml, and nothing is there"):
        find()  # not the folder's: that would be about other clusters
    other.touch()
    assert find() == FoundConfig(str(other), "GEO_CONFIG")
    assert find("given.yaml") == FoundConfig("given.yaml", "--config")
