"""Finds the configuration that a process takes when nobody names one: by the environment, else of the folder in which it is run."""

from __future__ import annotations

import os
from typing import NamedTuple

from geo.errors import ConfigError

VARIABLE = "GEO_CONFIG"
HERE = "geo.yaml"


class FoundConfig(NamedTuple):
    """A configuration's file, and by what it was found."""

    path: str
    by: str


def find(given: str | None = None) -> FoundConfig:
    """The file that was given, else the one that GEO_CONFIG names, else ./geo.yaml. One that was given is not looked at. Raises ConfigError where
    there is none."""
    if given is not None:
        return FoundConfig(given, "--config")
    if named := os.environ.get(VARIABLE):
        if not os.path.exists(named):
            raise ConfigError(
                [f"{VARIABLE} names the configuration {named}, and nothing is there. Set it to a file, or give --config FILE."]
            )
        return FoundConfig(named, VARIABLE)
    if os.path.exists(HERE):
        return FoundConfig(HERE, f"found in {os.getcwd()}")
    raise ConfigError(
        [
            f"no configuration: --config is not given, {VARIABLE} is not set, and there is no {HERE} in {os.getcwd()}. `geo init` writes one."
        ]
    )
