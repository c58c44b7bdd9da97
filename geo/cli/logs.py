"""The log of a process, on stderr: lines for people, or JSON with fixed fields. What is logged names topics, places and reasons, and never holds a
message's payload or key, nor a secret."""

from __future__ import annotations

import json
import logging
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TextIO

from geo.text import printable

if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler  # in Python 3.10 it takes no type

RUN_ID = uuid.uuid4().hex[:12]
"""Id of this process: the same in each line of its log."""

SAID = ("cluster", "source", "target", "topic", "work", "versions", "messages", "seconds", "reason")
"""Fields that a line may have beside its text. Who logs gives them as `extra`, with the `event`."""

FIELDS = ("ts", "level", "event", *SAID, "run_id", "logger", "message")
"""All fields of a line in JSON; those that say nothing are left out."""

PROGRESS = "progress"
"""The event of a line that the next one of its kind makes old."""

_OTHERS = ("py4j", "pyspark", "kafka", "py.warnings")
"""Libraries that log what they also raise, or what nobody can act on: what matters of it is said by this program, once."""


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, timezone.utc)


class JsonFormatter(logging.Formatter):
    """A document a line, in ASCII: nothing in it moves a cursor or begins another line."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {"ts": f"{_time(record):%Y-%m-%dT%H:%M:%S.%f}Z", "level": record.levelname}
        said["event"] = getattr(record, "event", "log")
        said |= {name: value for name in SAID if (value := getattr(record, name, None)) is not None}
        return json.dumps({**said, "run_id": RUN_ID, "logger": record.name, "message": record.getMessage()}, default=str)


class TextFormatter(logging.Formatter):
    """A line that begins with its time, in UTC; further ones of the same text are indented, so that none can be taken for another's."""

    def format(self, record: logging.LogRecord) -> str:
        first, *more = map(printable, record.getMessage().splitlines() or [""])
        return "\n    ".join([f"{_time(record):%Y-%m-%d %H:%M:%SZ} {record.levelname.lower():7} {first}", *more])


class LogHandler(_StreamHandler):
    """Writes the log. On a terminal progress is one line that is drawn over."""

    def __init__(self, stream: TextIO, *, as_json: bool) -> None:
        super().__init__(stream)
        self.setFormatter(JsonFormatter() if as_json else TextFormatter())
        self.addFilter(lambda record: record.name != "root")  # py4j says there what Ctrl-C interrupted
        self.draws = not as_json and stream.isatty()
        """True if the stream is a terminal that a person reads."""
        self.progress = ""
        """The last line of progress."""
        self.first: Callable[[], None] | None = None
        """Says what comes before all else."""
        self._is_drawn = False

    def emit(self, record: logging.LogRecord) -> None:
        if self.first is not None and getattr(record, "event", None) not in ("start", "error"):
            self.first()
        if is_progress := getattr(record, "event", None) == PROGRESS:
            self.progress = record.getMessage()
        if is_progress and self.draws:
            self.draw(self.progress)
        else:
            self.draw("")
            super().emit(record)

    def draw(self, text: str) -> None:
        """Draw a line in the place of the one that was drawn last; an empty one only takes that away."""
        self.acquire()
        try:
            if self.draws and (text or self._is_drawn):
                self._is_drawn = bool(text)
                width = get_terminal_size().columns - 1  # a longer one would not be drawn over
                self.stream.write(f"\r\x1b[2K{printable(text)[:width]}")
                self.stream.flush()
        except (OSError, ValueError):  # nobody reads it any more
            self.draws = False
        finally:
            self.release()


def configure_logging(*, verbose: bool, as_json: bool) -> LogHandler:
    """The log of this package to stderr; of the libraries below it only what is serious and is not said by this program."""
    handler = LogHandler(sys.stderr, as_json=as_json)
    logging.basicConfig(handlers=[handler], level=logging.ERROR, force=True)
    logging.getLogger("geo").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.captureWarnings(capture=not verbose)
    for name in _OTHERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return handler


def _handlers() -> list[LogHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LogHandler)]


def clear_line() -> None:
    """Before something else is written to the terminal: take the line away that is drawn there."""
    for handler in _handlers():
        handler.draw("")


@contextmanager
def redirected_log(stream: TextIO) -> Iterator[None]:
    """While stderr itself leads elsewhere the log goes to this stream."""
    before = [(handler, handler.setStream(stream)) for handler in _handlers()]
    try:
        yield
    finally:
        for handler, its in before:
            handler.setStream(its or stream)
