"""A set-up at rest: two regions whose brokers run, as processes, and into which no message comes. Who asks twice a minute is told of no finding, also
once a message comes after all."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from tests.broken.place import TOPIC, Place
from tests.broken.screens import SCREENS
from tests.waiting import until

LOOK_S = 30.0
LOOKS = ("status", "doctor")
AFTER = 4
"""So many looks follow the message, the first at once."""
ENDS_S = 60.0


@contextmanager
def broker(place: Place, cluster: str, said: IO[str]) -> Iterator[subprocess.Popen[str]]:
    """`geo broker` of a cluster, without Spark, once it owns that; it is ended as a service manager ends it."""
    command = [sys.executable, "-m", "tests.broken.place", "broker", "--cluster", cluster, "--config", str(place.path)]
    process = subprocess.Popen(command, stdout=said, stderr=said, text=True, start_new_session=True)
    try:
        yield process
        process.terminate()
        assert process.wait(ENDS_S) == 0, f"the broker of {cluster} did not end well"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def at_rest(place: Place, minutes: float) -> int:
    """Returns how often each screen was asked. Raises AssertionError with the first finding."""
    place.publish(10)
    place.replicate()
    asked, began = 0, time.monotonic()

    def ask() -> None:
        nonlocal asked
        asked += 1
        for process in running:
            assert process.poll() is None, said.read_text()
        for verb in LOOKS:
            screen = SCREENS[verb](place)
            at_s = time.monotonic() - began
            assert (screen.code, screen.found) == (0, ()), f"{verb} after {at_s:.0f} s at rest: {screen.text}"

    said = place.path.with_name("brokers.log")
    with said.open("w") as log, ExitStack() as stack:
        running = [stack.enter_context(broker(place, name, log)) for name in place.roots]
        until(lambda: said.read_text().count(" runs ") == len(running), said.read_text, goes_on=lambda: running[0].poll() is None)
        while time.monotonic() - began < 60.0 * minutes:
            ask()
            time.sleep(LOOK_S)
        place.publish(11)
        for _ in range(AFTER):
            ask()
            time.sleep(LOOK_S / AFTER)
        until(lambda: len(place.far.messages("eu", TOPIC)) == 11, said.read_text)
    return asked
