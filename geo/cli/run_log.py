"""Log of a run that takes long: that it began, before anything large is imported; each minute how it goes; how it ended."""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from geo.cli.logs import LogHandler, configure_logging
from geo.config.found import FoundConfig, find
from geo.errors import ConfigError
from geo.progress import Counts, elapsed, rates, step
from geo.streams import timetable
from geo.streams.life import State
from geo.version import program_version

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)

_IF_NEEDED, _STARTS, _GIVEN = "Spark if it is needed", "with Spark", "in the Spark that is there"

_LONG = {
    "broker": _STARTS, "replicate": _IF_NEEDED, "publish": _STARTS, "consume": _STARTS, "verify": _STARTS, "backfill": _STARTS,
    "reconcile": _STARTS, "maintain": _STARTS, "rebuild": _STARTS, "subscriptions fold": _STARTS, "subscriptions sync": _STARTS,
}  # fmt: skip
"""Verbs that take long, and what each says of Spark."""

_FOLLOWS = ("publish", "consume", "subscriptions fold", "subscriptions sync")
"""Verbs of which only what does not end by itself is logged."""

_GIVEN_BY = "PYSPARK_GATEWAY_PORT"

DRAWN_S = 1.0
"""Between two looks of a terminal's line."""


FIRST_S = 0.8
"""Seconds after which a run tells people that it has started, or before anything else is said. Who is refused sooner reads why,
and nothing else.
"""


class RunLog:
    """Log of one call of the command line; a short call logs nothing. As a context: logs its end, with `code` and `reason`."""

    def __init__(self, arguments: Sequence[str]) -> None:
        asked = _asked(arguments)
        self.verb, self.is_long = asked.verb, _is_long(asked, arguments)
        self.code: int | None = None
        self.reason: str | None = None
        self._about = {name: getattr(asked, name) for name in ("cluster", "source", "target", "topic") if getattr(asked, name)}
        self._began = time.monotonic()
        self._handler: LogHandler | None = None
        self._ended = threading.Event()
        self._counts: Callable[[], Counts] = dict
        self._status: Callable[[], str] | None = None
        self._speaks = True
        self._first: str | None = None
        """The first line, until it is logged."""
        if self.is_long:
            self._first = f"geo {self.verb} started: {_what_runs(asked, arguments)}"
            self.configure(verbose=asked.verbose, as_json=asked.output == "json")
            if asked.output == "json":  # of which programs read every run
                self._begin()
            threading.Thread(target=self._go_on, name="geo-heartbeat", daemon=True).start()

    def configure(self, *, verbose: bool, as_json: bool) -> None:
        """The log of this process. To be called again once all arguments are known."""
        if self._handler is not None:
            self._handler.draw("")
        self._handler = configure_logging(verbose=verbose, as_json=as_json)
        self._handler.first = self._begin

    def follow(self, counts: Callable[[], Counts], status: Callable[[], str] | None = None, *, speaks: bool = True) -> None:
        """Sets where the counts since the start are, for heartbeats and the end. `status`: what else a heartbeat says. Not
        `speaks`: the run says each minute itself how it goes.
        """
        self._counts, self._status, self._speaks = counts, status, speaks

    def say(self, line: str) -> None:
        """Logs a line of the run about itself."""
        self._say("status", line)

    def changed(self, line: str, work: str, state: State, reason: str | None, fields: Mapping[str, object]) -> None:
        """A work has changed its state, as a `line` says; the event is the state. `fields`: what a report tells programs."""
        source, _, target = str(fields.get("link", "")).partition("->")
        extra = {
            "event": state.value, "work": work, "reason": reason, "topic": fields.get("topic"), "source": source or None,
            "target": target or None, "cluster": fields.get("cluster", self._about.get("cluster")),
            "versions": fields.get("source_version"), "messages": fields.get("published", fields.get("replicated")),
        }  # fmt: skip
        log.log(logging.WARNING if state in (State.FAILED, State.DELAYED) else logging.INFO, "%s", line, extra=extra)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SystemExit) and isinstance(error.code, int):  # of the parser
            self.ended(error.code)
        self.ended(self.code, "" if error is None else f"by {type(error).__name__}")

    def ended(self, code: int | None, by: str = "") -> None:
        """Say that it ends; once."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._handler is not None:
            self._handler.draw("")
        if not self.is_long or (code and self._first is not None):
            return
        self._begin()
        done = rates(self._done(), {}, 0.0)
        text = f"geo {self.verb} ended after {elapsed(self._seconds)} {by or f'with exit code {code}'}"
        self._say("stop", text + (f": {done}" if done else ""), level=logging.INFO if code == 0 else logging.WARNING)

    def _begin(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            self._say("start", first)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _go_on(self) -> None:
        before: Counts = {}
        told_at, handler = self._began, self._handler
        if not self._ended.wait(FIRST_S):
            self._begin()
        while not self._ended.wait(DRAWN_S if handler is not None and handler.draws else timetable.STATUS_S):
            handler = self._handler
            if handler is not None and handler.draws:
                handler.draw(f"geo {self.verb}, {elapsed(self._seconds)}: {self._goes(before, time.monotonic() - told_at)}")
            elif self._speaks:
                now = time.monotonic()
                self._say("heartbeat", f"geo {self.verb} goes on, {elapsed(self._seconds)}: {self._goes(before, now - told_at)}")
                before, told_at = self._done(), now

    def _done(self) -> Counts:
        """Asks the counts of `follow`. A fault of theirs ends nothing that runs."""
        with suppress(Exception):
            return self._counts()
        return {}

    def _goes(self, before: Counts, seconds: float) -> str:
        progress = "" if self._handler is None else self._handler.progress
        status = ""
        with suppress(Exception):
            status = "" if self._status is None else self._status()
        parts = (status, rates(self._done(), before, seconds), progress or step())
        return "; ".join(part for part in parts if part) or "it begins"

    def _say(self, event: str, text: str, *, level: int = logging.INFO) -> None:
        messages = next(iter(self._done().values()), None)  # what comes first is what it is for
        more: Mapping[str, object] = {"messages": messages, "seconds": round(self._seconds, 3), "reason": self.reason}
        log.log(level, "%s", text, extra={"event": event, "work": self.verb, **self._about, **more})


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads those of the arguments that a start line says, without the parser of the verb, whose module is large."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("verb", nargs="?", default="")
    parser.add_argument("does", nargs="?", default="")
    for name in ("config", "cluster", "source", "target", "topic", "trigger"):
        parser.add_argument(f"--{name}")
    parser.add_argument("-o", "--output")
    parser.add_argument("-v", "--verbose", action="store_true")
    try:
        asked = parser.parse_known_args(arguments)[0]
    except argparse.ArgumentError:  # the parser of the verb says so
        return parser.parse_args([])
    if (whole := f"{asked.verb} {asked.does}") in _LONG:
        asked.verb = whole
    return asked


def _is_long(asked: argparse.Namespace, arguments: Sequence[str]) -> bool:
    if asked.verb not in _LONG or _found(asked.config) is None or {"-h", "--help"} & {*arguments}:
        return False
    if asked.verb in _FOLLOWS:
        return asked.trigger != "available-now" and (asked.verb == "consume" or asked.trigger is not None)
    return True


def _what_runs(asked: argparse.Namespace, arguments: Sequence[str]) -> str:
    version = program_version() or "from a zip"
    spark = _GIVEN if _GIVEN_BY in os.environ else _IF_NEEDED if "--quick" in arguments else _LONG[asked.verb]
    return f"delta-geo {version}, process {os.getpid()} on {socket.gethostname()}, {_configured(asked.config)}, {spark}"


def _found(given: str | None) -> FoundConfig | None:
    """The configuration, and by what it was found. None: there is none, which is what the run ends with."""
    try:
        return find(given)
    except ConfigError:
        return None


def _configured(given: str | None) -> str:
    """Names the configuration: by what it was found, and by what two are told apart."""
    path, by = _found(given) or (given, None)
    found = "" if path == given else f"{by}, "
    try:
        return f"{path} ({found}sha256 {hashlib.sha256(Path(str(path)).read_bytes()).hexdigest()[:12]})"
    except OSError as error:
        return f"{path} ({found}cannot be read: {error.strerror})"
