"""What a run that takes long says of itself, in which form, and what is never in it. No Spark but for the last."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from geo.cli import run_log
from geo.cli.logs import FIELDS, PROGRESS, RUN_ID, JsonFormatter, LogHandler, TextFormatter, configure_logging
from geo.cli.main import main
from geo.cli.run_log import RunLog
from geo.cli.running import name_missing_sources, with_disk
from geo.config import load
from geo.config.cluster import Cluster
from geo.progress import elapsed, rates
from geo.streams import timetable
from geo.streams.life import State
from tests.world import TOPIC, World

_CANARY = "Canary7f3a"

CONFIG = """\
version: 1
clusters:
  eu: {root: eu}
  us: {root: us}
links:
  - {source: us, target: eu}
"""


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """The log goes where it went before."""
    root, own = logging.getLogger(), logging.getLogger("geo")
    handlers, levels = root.handlers[:], (root.level, own.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    logging.captureWarnings(capture=False)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "geo.yaml"
    path.write_text(CONFIG)
    return str(path)


def _documents(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert one.keys() <= set(FIELDS)
        assert one.keys() >= {"ts", "level", "event", "run_id", "logger", "message"}
        assert one["run_id"] == RUN_ID
    return found


def _record(message: str, **extra: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "geo.log", "levelno": 20, "levelname": "INFO", "msg": message, "created": 0.5, **extra})


@pytest.mark.parametrize(
    "text", ["a\n2026-11-30 12:00:00Z error   forged", "\x1b[2Jgone", "\x9b2J", "one\rtwo", "\u2028x", '{"ts": 1}\n{"ts": 2}']
)
def test_no_text_moves_the_cursor_or_forges_a_line(text: str) -> None:
    first, *more = TextFormatter().format(_record(text)).split("\n")
    assert first.startswith("1970-01-01 00:00:00Z info    ")
    assert all(line.startswith("    ") for line in more), "only a line of the log begins with a time"
    assert not any(char in "\x1b\x9b\r" for line in (first, *more) for char in line)
    in_json = JsonFormatter().format(_record(text, topic=text))
    assert in_json.isascii()
    assert in_json.isprintable()
    assert json.loads(in_json)["message"] == json.loads(in_json)["topic"] == text


def test_how_long_and_how_fast_is_said_as_people_read_it() -> None:
    assert [elapsed(seconds) for seconds in (0.4, 59.6, 750, 11_524)] == ["0:00", "1:00", "12:30", "3:12:04"]
    assert rates({"published": 1_204, "rejected": 0}, {"published": 4}, 60.0) == (
        "1,204 published (20 a second), 0 rejected (0.0 a second)"
    )
    assert rates({"published": 1_204}, {}, 0.0) == "1,204 published"
    assert rates({}, {}, 1.0) == ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_is_drawn_over_and_a_file_has_them_all() -> None:
    for stream, drawn in ((_Terminal(), True), (io.StringIO(), False)):
        handler = LogHandler(stream, as_json=False)
        for text in ("verify: 1 of 3 topics", "verify: 2 of 3 topics"):
            handler.handle(_record(text, event=PROGRESS))
        handler.handle(_record("something else"))
        handler.draw("")
        assert handler.progress == "verify: 2 of 3 topics"
        lines = stream.getvalue()
        if drawn:
            assert lines.startswith("\r\x1b[2Kverify: 1 of 3 topics\r\x1b[2Kverify: 2 of 3 topics\r\x1b[2K")
            assert lines.endswith("info    something else\n")
            assert lines.count("\n") == 1
        else:
            assert "\x1b" not in lines
            assert lines.count("\n") == 3


def test_a_long_run_says_its_start_each_change_and_its_end_and_a_short_one_nothing(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEO_CONFIG", raising=False)
    short = [["topics", "list", "--config", config], ["broker"], ["broker", "--config", config, "--help"], [], ["--version"],
             ["publish", "--config", config], ["publish", "--config", config, "--trigger", "available-now"],
             ["subscriptions", "list", "--config", config], ["subscriptions", "fold", "--config", config]]  # fmt: skip
    for arguments in short:
        with RunLog(arguments):
            pass
    assert capsys.readouterr().err == ""
    for does in ("fold", "sync"):
        with RunLog(["subscriptions", does, "--config", config, "--cluster", "eu", "--trigger", "1 second", "-o", "json"]) as run:
            run.code = 0
        told = _documents(capsys.readouterr().err)
        assert [(one["event"], one["work"]) for one in told] == [(event, f"subscriptions {does}") for event in ("start", "stop")]
    monkeypatch.setenv("GEO_CONFIG", config)
    with RunLog(["verify"]) as run:
        run.code = 0
    assert f", {config} (GEO_CONFIG, sha256 " in capsys.readouterr().err
    arguments = ["broker", "--config", config, "--cluster", "eu", "-o", "json"]
    with RunLog(arguments) as run:
        published = {"messages published": 0, "replicated": 0}
        run.follow(lambda: published, speaks=False)
        fields = {"link": "us->eu", "topic": "persistent://a/b/c", "replicated": 7, "source_version": 3}
        run.changed("link topic …: RUNNING", "link topic", State.RUNNING, None, fields)
        run.changed("link topic …: FAILED: why", "link topic", State.FAILED, "why", fields)
        published["messages published"] = 1_200
        run.code = 0
    out, err = capsys.readouterr()
    assert out == ""
    start, up, failed, stop = _documents(err)
    assert [one["event"] for one in (start, up, failed, stop)] == ["start", "RUNNING", "FAILED", "stop"]
    assert start["message"].startswith("geo broker started: delta-geo ")
    assert f"process {os.getpid()} on " in start["message"]
    assert f"{config} (sha256 " in start["message"]
    named = {"source": "us", "target": "eu", "topic": "persistent://a/b/c", "work": "link topic", "versions": 3, "messages": 7}
    assert named.items() <= up.items()
    assert (failed["level"], failed["reason"]) == ("WARNING", "why")
    assert (stop["messages"], stop["cluster"]) == (1_200, "eu")
    assert stop["message"].endswith("with exit code 0: 1,200 messages published, 0 replicated")


def test_a_run_goes_on_each_minute_with_what_it_does(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timetable, "STATUS_S", 0.02)
    monkeypatch.setattr(run_log, "FIRST_S", 0.02)
    with RunLog(["verify", "--config", config]) as run:
        run.follow(lambda: {"compared": 12}, lambda: "compares")
        err, deadline = "", time.monotonic() + 30
        while "goes on" not in err and time.monotonic() < deadline:
            time.sleep(0.01)
            err += capsys.readouterr().err
    assert "info    geo verify goes on, 0:00: compares; 12 compared (" in err


def test_an_end_by_an_error_is_said_once_in_the_form_of_the_log(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(config).write_text(CONFIG + "wrong: 1\n")
    assert main(["replicate", "--config", config, "--cluster", "eu", "-o", "json"]) == 2
    start, error, stop = _documents(capsys.readouterr().err)
    assert (start["event"], error["event"], stop["event"]) == ("start", "error", "stop")
    assert "wrong" in error["reason"]
    assert stop["reason"] == error["reason"]
    assert main(["replicate", "--config", config, "--cluster", "eu"]) == 2
    why = capsys.readouterr().err
    assert why.startswith(f"geo: {config}")
    assert why.count("\n") == 1, "a person who is refused at once hears why, and nothing else"


def test_what_other_libraries_log_is_not_heard_twice(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(verbose=False, as_json=False)
    for name in ("kafka.conn", "py4j.clientserver", "pyspark.sql", "root"):
        logging.getLogger(None if name == "root" else name).error("refused")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("of a library", stacklevel=1)
    assert capsys.readouterr().err == ""
    logging.getLogger("geo.log").warning("ours")
    assert capsys.readouterr().err.endswith("warning ours\n")


_STARTS = """
import sys
from geo.cli.run_log import RunLog
with RunLog(["broker", "--config", "geo.yaml", "--cluster", "eu"]) as run:
    run.code = 0
    large = {"pyspark", "pandas", "pyarrow", "delta", "obstore"} & sys.modules.keys()
assert not large, large
"""


def test_a_start_is_said_before_anything_large_is_imported(config: str) -> None:
    done = subprocess.run([sys.executable, "-c", _STARTS], cwd=Path(config).parent, env={**os.environ, "PYTHONPATH": os.getcwd()},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "geo broker started: " in done.stderr


def test_a_source_that_is_not_there_is_named_before_spark_starts(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(verbose=False, as_json=False)
    name_missing_sources(load(config), "eu")
    assert f"warning link us->eu: nothing is at {Path(config).parent}/us" in capsys.readouterr().err
    (Path(config).parent / "us").mkdir()
    name_missing_sources(load(config), "eu")
    name_missing_sources(load(config), "us")
    assert capsys.readouterr().err == ""


def test_a_disk_without_space_is_named_where_what_failed_does_not_say_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = [
        Cluster("eu", root=str(tmp_path), checkpoints=f"{tmp_path}/checkpoints"),
        Cluster("us", root="s3a://us", checkpoints="s3a://us/checkpoints"),
    ]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "scratch"))
    named = with_disk("link: DELAYED: java.io.IOException: No space left on device; free space there", clusters)
    assert re.search(r"As it seems it is /.* \([\d.,]+ of [\d,]+ MiB are left\)$", named)
    for line in ("link: RUNNING", "link: DELAYED: [Errno 28] No space left on device: '/data/us'; free space there"):
        assert with_disk(line, clusters) == line


@pytest.mark.slow
def test_links_of_which_the_source_is_not_there_are_named_and_ctrl_c_ends_what_follows(config: str) -> None:
    """A real process, without Spark: the regions are on this disk."""
    folder = Path(config).parent
    Path(config).write_text(CONFIG.replace("links:", "  ap: {root: ap}\nlinks:\n  - {source: ap, target: eu}"))
    command = [sys.executable, "-m", "geo", "replicate", "--config", config, "--cluster", "eu", "--trigger", "1 second"]
    (folder / "us").write_text("no folder")
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stderr is not None
            began, said = time.monotonic(), list[str]()
            while not ("ap->eu" in "".join(said) and "us->eu" in "".join(said)):
                said.append(process.stderr.readline())
                assert said[-1], said
            assert time.monotonic() - began < 30
            assert "us->eu: DELAYED: " in next(line for line in said if "us->eu" in line).replace(" persistent://*/*/*", "")
            assert any(f"link ap->eu: no topic is registered at {folder}/ap yet" in line for line in said)
            process.send_signal(signal.SIGINT)
            asked = time.monotonic()
            rest = process.stderr.read()
            assert process.wait(30) in (0, 1, 130)
            assert time.monotonic() - asked < 3.5  # as the rule is, and half a second for a busy machine
            assert "geo replicate ended after" in rest
        finally:
            with suppress(ProcessLookupError):
                process.kill()


@pytest.mark.spark
def test_no_key_and_no_payload_is_in_a_log_that_says_all(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that are taken and lines that are refused, published and replicated, with all that is logged (`-v`)."""
    good = [json.dumps({"key": f"{_CANARY}{number}", "payload": f"{_CANARY}{number}"}) for number in range(3)]
    bad = [
        f"{_CANARY} is no JSON",
        f'{{"key": "{_CANARY}", "payload": 7}}',
        f'{{"key": "k", "payload": "p", "event_time": "{_CANARY}"}}',
    ]
    (world.folder / "in.jsonl").write_text("\n".join([*good, *bad]) + "\n")
    config = ["--config", str(world.path), "-v", "-o", "json"]
    of_topic = ["--cluster", "us", "--topic", str(TOPIC)]
    assert main(["publish", *config, *of_topic, "--jsonl", str(world.folder / "in.jsonl")]) == 1
    assert main(["replicate", *config, "--cluster", "eu"]) == 0
    err = capsys.readouterr().err
    assert world.count("eu") == len(good)
    assert {one["event"] for one in _documents(err)} >= {"start", "stop", "STOPPED", "log"}
    assert _CANARY not in err
