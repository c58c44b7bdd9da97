"""What nobody reads counts against no message."""

from __future__ import annotations

import os
import sys

import pytest

from geo.cli.main import main
from geo.names import Topic
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("topics", [str(TOPIC), "persistent://shop/*/*"])
def test_what_nobody_reads_ends_a_consumer_in_silence_and_gives_up_no_message(
    world: World, topics: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.write("us", 0, 1)  # that comes alone, and is to blame for an error of a function
    verb = ["consume", "--cluster", "us", "--config", str(world.path), "--topic", topics, "--subscription", "s",
            "--max-redeliveries", "1", "--trigger", "available-now", "-o", "json"]  # fmt: skip
    for _ in range(3):
        read, write = os.pipe()
        os.close(read)
        with pytest.MonkeyPatch.context() as patched, open(write, "w", encoding="utf-8") as stream:
            patched.setattr(sys, "stdout", stream)
            assert main(verb) == 141
    capsys.readouterr()
    assert main(verb) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert not world.log("us", Topic.parse(f"{TOPIC}-s-DLQ")).exists()
