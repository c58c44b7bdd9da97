"""Arguments that several verbs take, and what they are parsed to."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NoReturn

from geo.cli.output import Output
from geo.cli.verbs import ALIASES
from geo.config.found import HERE, VARIABLE
from geo.config.yaml_nodes import suggestion
from geo.errors import UsageError
from geo.ids import MessageId
from geo.names import ALL_TOPICS
from geo.now import utc_now
from geo.streams.trigger import AVAILABLE_NOW
from geo.text import printable, show
from geo.times import duration_s, from_words, shown_time

EPILOG = "exit codes: 0 ok, 1 failure, 2 usage or configuration, also what is named and not there, 3 refused as unsafe"

TOPIC_FORM = "persistent://tenant/namespace/name"

Run = Callable[[argparse.Namespace, Output], int]
"""Runs a verb: gets the parsed arguments, returns the exit code."""


class _Once(argparse._StoreAction):
    """Stores an option that has one value. If it is given twice nobody knows which one was meant."""

    was_given = False

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if self.was_given and self.option_strings:
            raise argparse.ArgumentError(self, "is given twice, and takes one value")
        self.was_given = True
        super().__call__(parser, namespace, values, option_string)


class Parser(argparse.ArgumentParser):
    """Parser of `geo`, and so of each verb. It names an unknown word on one line that moves no cursor."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)
        self._negative_number_matcher = re.compile(r"-\d+[a-z]*")  # a time ago (`-1d`) is a value, as a number below 0 is

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.prog = getattr(found, "called", self.prog)
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found

    def error(self, message: str) -> NoReturn:
        more = "" if "--help" in message else f"{'' if message.endswith('?') else '.'} What there is: {self.prog} --help"
        self.exit(2, f"geo: {printable(message)}{more}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        what, more = "invalid choice", f" (choose from {', '.join(choices)})"
        if isinstance(action, argparse._SubParsersAction):
            of = self.prog.split()[1:]
            choices += {words[len(of)] for words in map(str.split, ALIASES) if words[: len(of)] == of}
            what, more = "no verb", f"; {self.prog} --help lists them"
        raise argparse.ArgumentError(action, f"{what} {show(str(value))}{suggestion(str(value), choices) or more}")


class Verbs:
    """The verbs of `geo`, or of one of its nouns."""

    def __init__(self, parser: argparse.ArgumentParser, title: str = "verbs") -> None:
        self._parsers = parser.add_subparsers(title=title, metavar="VERB", required=True)

    def mention(self, name: str, does: str) -> None:
        """A verb that was not chosen: the help lists it, its module is not imported."""
        self._parsers.add_parser(name, help=does)

    def add(self, name: str, does: str, run: Run, *, config: bool = True) -> argparse.ArgumentParser:
        """A verb, with the arguments that every verb has."""
        parser: argparse.ArgumentParser = self._parsers.add_parser(
            name, help=does, description=does, epilog=EPILOG, allow_abbrev=False
        )
        parser.set_defaults(verb=run, called=parser.prog, was_stopped=False, noted=None, tells_itself=False)
        parser.add_argument(
            "-o", "--output", choices=("text", "json"), default="text", help="text for people, or JSON with stable keys"
        )
        parser.add_argument("-v", "--verbose", action="store_true", help="log more, show where an error came from")
        if config:
            parser.add_argument("--config", metavar="FILE", help=f"the YAML configuration (default: ${VARIABLE}, else ./{HERE})")
        return parser

    def add_noun(self, name: str, does: str) -> Verbs:
        """A noun that has verbs of its own."""
        return Verbs(self._parsers.add_parser(name, help=does, description=does, epilog=EPILOG))


def add_glob(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", default=ALL_TOPICS, metavar="GLOB", help="only these topics (default: %(default)s)")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """`--engine` of a verb that only looks."""
    does = (
        "auto: tables on a local disk, or on S3, are read without Spark, which starts if something needs it; native: Spark never starts; "
        "spark: it reads the rows of logs (default: %(default)s)"
    )
    parser.add_argument("--engine", choices=("auto", "native", "spark"), default="auto", help=does)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """`--max-lag` and `--fail-on` of what judges links."""
    does = "exit code 1 also if something has been lacking for longer, or nobody knows, such as 60s"
    parser.add_argument("--max-lag", type=duration, metavar="DURATION", help=does)
    add_fail_on(parser, "warn", "%(default)s")


def add_fail_on(parser: argparse.ArgumentParser, default: str | None, by_default: str) -> None:
    """`--fail-on` of what looks for what is not well."""
    does = f"the least that makes the exit code 1: warn, also what goes on by itself, or can wait; error, what does not (default: {by_default})"
    parser.add_argument("--fail-on", choices=("warn", "error"), default=default, help=does)


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch", type=watched_seconds, metavar="SECONDS", help="show it again every so many seconds, until Ctrl-C"
    )


def add_dry_run(parser: argparse.ArgumentParser, does: str = "count, write nothing") -> None:
    parser.add_argument("--dry-run", action="store_true", help=does)


def add_take_over(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--take-over", action="store_true", help="replace a runner that seems to live; it is fenced and stops")


def add_running(parser: argparse.ArgumentParser, default: str = AVAILABLE_NOW, also: str = "or an interval: '1 second'") -> None:
    """`--trigger` and `--take-over` of what runs on."""
    add_trigger(parser, default, also)
    add_take_over(parser)


def was_cut_short(args: argparse.Namespace) -> bool:
    """Tells whether a signal ended a run that was to end by itself, so that there may be more to do."""
    return bool(args.was_stopped) and getattr(args, "trigger", None) == AVAILABLE_NOW


def add_trigger(parser: argparse.ArgumentParser, default: str, also: str) -> None:
    parser.add_argument("--trigger", default=default, help=f"default: {default}; {also}")


def from_1_to(limit: int, what: str) -> Callable[[str], int]:
    """The type of an argument that is a number from 1 to `limit`, described by `what`."""

    def parse(text: str) -> int:
        if not text.isdigit() or not 0 < int(text) <= limit:
            raise argparse.ArgumentTypeError(what)
        return int(text)

    return parse


def from_0(text: str) -> int:
    """The type of an argument that is a number, 0 or more."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError("a number, 0 or more")
    return int(text)


def flag(text: str) -> bool:
    """The type of an argument that is true or false."""
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError("true or false")
    return text == "true"


def key_range(text: str) -> tuple[int, int]:
    """The type of `I/N`, one of N shares of the keys."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not int(found[1]) < int(found[2]):
        raise argparse.ArgumentTypeError("I/N, of N shares the one numbered I, from 0")
    return int(found[1]), int(found[2])


def up_to(limit: float, what: str) -> Callable[[str], float]:
    """The type of an argument that is a number from 0 to `limit`, also a broken one, described by `what`."""

    def parse(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not 0 <= found <= limit:
            raise argparse.ArgumentTypeError(what)
        return found

    return parse


def watched_seconds(text: str) -> float:
    """The type of `--watch`: a second is the least, since each look reads what all regions say."""
    found = up_to(86_400, "a number of seconds, 1 or more")(text)
    if found < 1:
        raise argparse.ArgumentTypeError("a number of seconds, 1 or more")
    return found


seconds = up_to(10**9, "a number of seconds")


def start_position(text: str) -> Any:
    """The type of a start position in a topic: as `start`, or a MessageId."""
    try:
        return MessageId.parse(text)
    except UsageError:
        return start(text)


A_TIME = "2026-11-21T12:00:00Z, -90m, -1d, today or yesterday"
"""Forms of a time, for a help."""


def start(text: str) -> Any:
    """The type of a beginning: earliest, latest or a datetime."""
    return text if text in ("earliest", "latest") else _moment(text, f"earliest, latest or a time such as {A_TIME}")


def shown_start(start: object) -> str:
    """A start position as people read it."""
    return shown_time(start) if isinstance(start, datetime) else str(start)


def moment(text: str) -> datetime:
    """The type of a time, as `from_words`."""
    return _moment(text, f"a time such as {A_TIME}")


def _moment(text: str, expected: str) -> datetime:
    try:
        return from_words(text, utc_now())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{show(text)} is not {expected}") from None


def duration(text: str) -> int:
    """The type of a duration, in seconds, as the configuration has it: `60s`, `5m`, `2h`, `7 days`."""
    try:
        return duration_s(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def ago_or_moment(text: str) -> timedelta | datetime:
    """The type of a beginning in the past: a duration before now, or a time."""
    try:
        return timedelta(seconds=duration_s(text))
    except UsageError:
        return _moment(text, f"a duration such as 30m, 2h or 7d, or a time such as {A_TIME}")
