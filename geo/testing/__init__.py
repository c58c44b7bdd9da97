"""For tests of your own jobs: a world of regions on a folder, and deaths at named points (docs/testing.md).

Depends on no test framework, and starts Spark only when something asks for it.
"""

from geo.crash import CrashPoint
from geo.testing.crashes import Killed, crash_points, dies_at, kill_at
from geo.testing.world import TOPIC, World, config_text

__all__ = ["TOPIC", "CrashPoint", "Killed", "World", "config_text", "crash_points", "dies_at", "kill_at"]
