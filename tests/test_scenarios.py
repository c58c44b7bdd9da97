"""The scenarios of tests/scenarios: prose, commands as a user types them, and what they print. Each file is one world, empty at
its beginning.

Below a command stands what it prints, as a terminal shows it, and an exit code other than 0 in brackets; the form is that of
`scenario_text.py`. Beside verbs and what a shell has there is `found`, for what topics' controllers find out:

    found CLUSTER start SUBSCRIPTION TARGET VERSION [SENDER]    a version subscription may go on in TARGET at VERSION
    found CLUSTER waits [FOR WHY]                               no snapshots are taken, because of the cluster FOR
    found CLUSTER refused COUNT WHY                             so many markers of the topic changed nothing

and `kafka`, for a Kafka broker, which $KAFKA names from its first use on:

    kafka create TOPIC PARTITIONS
    kafka produce TOPIC FIRST LAST         records with these numbers as keys and values, to partition after partition
    kafka commit TOPIC GROUP OFFSET …      a consumer group stands there, partition by partition

A *story* begins without a configuration: `geo init` is among its commands, of which it takes at most twelve of geo to the failover drill.
"""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from geo.cli.main import main
from tests.kafka_broker import Broker
from tests.processes import OF_RUN
from tests.scenario_text import REWRITES, differs, rewritten, steps
from tests.version_starts import found
from tests.world import World

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
STORIES = [path for path in SCENARIOS if "  $ geo init\n" in path.read_text()]


def _kafka(broker: Broker, what: str, topic: str, *args: str) -> None:
    os.environ["KAFKA"] = broker.bootstrap
    if what == "create":
        broker.create(topic, int(args[0]))
    elif what == "produce":
        first, last = map(int, args)
        count = broker.partitions(topic)
        broker.produce(topic, [(n % count, str(n).encode(), str(n).encode(), []) for n in range(first, last + 1)])
    else:
        broker.commit(topic, args[0], dict(enumerate(map(int, args[1:]))))


def _run(command: str, world: World, broker: Callable[[], Broker]) -> tuple[int, str]:
    """Exit code, and what was printed to stdout and stderr, in its order. A verb runs in this process."""
    if command.startswith("kafka "):
        _kafka(broker(), *shlex.split(command)[1:])
        return 0, ""
    command = os.path.expandvars(command) if "$KAFKA" in command else command
    if command.startswith("found "):
        found(world, *shlex.split(command)[1:])
        return 0, ""
    if not command.startswith("geo "):
        done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        return main(shlex.split(command)[1:]), OF_RUN.sub("", out.getvalue())


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Verbs that run on take SIGTERM and SIGINT."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.spark
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_scenario_goes_as_written(
    path: Path, world: World, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(world.folder)
    if path in STORIES:
        world.path.unlink()
    monkeypatch.setenv("KAFKA", "")
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    all_printed = {}
    for step in steps(path.read_text()):
        code, text = _run(step.command, world, lambda: request.getfixturevalue("broker"))
        printed = all_printed[step.line] = text.splitlines() + ([f"[{code}]"] if code else [])
        assert REWRITES or not differs(step.expected, printed), f"{path.name}:{step.line}: {step.command}\n" + "\n".join(printed)
    if REWRITES:
        path.write_text(rewritten(path.read_text(), all_printed))


def test_scenarios_are_there_and_what_is_printed_must_be_as_written() -> None:
    assert [path.stem for path in STORIES] == ["a-delta-table", "json-lines", "kafka-topics"]
    for story in STORIES:
        typed = [step.command for step in steps(story.read_text()) if step.command.startswith("geo ")]
        assert len(typed) <= 12
        assert any(one.startswith("geo failover") for one in typed)
    assert all(steps(path.read_text()) for path in SCENARIOS)
    (step,) = steps("Some prose.\n\n  $ geo topics \\\n  > --topic x\n  TOPIC…\n  x  eu\n  [1]\n")
    assert (step.line, step.command, step.expected) == (3, "geo topics \n--topic x", ["TOPIC…", "x  eu", "[1]"])
    assert not differs(step.expected, ["TOPIC  CLUSTER", "x  eu", "[1]"])
    assert differs(step.expected, ["TOPIC  CLUSTER", "x  us", "[1]"])
    assert differs(step.expected, ["TOPIC  CLUSTER", "x  eu", "[1]", "more"])
    assert differs([], ["anything"])


def test_a_scenario_is_rewritten_with_what_is_printed_and_keeps_what_is_as_written() -> None:
    text = "Prose.\n\n  $ geo a \\\n  > b\n  x…y\n  old\nMore.\n  $ geo c\n"
    now = rewritten(text, {3: ["x1y", "at 2026-11-25 01:02:03.5 eu:123456789012:0"], 8: ["[3]"]})
    assert now == "Prose.\n\n  $ geo a \\\n  > b\n  x…y\n  at … eu:…:0\nMore.\n  $ geo c\n  [3]\n"
