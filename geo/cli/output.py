"""Output of the command line: text for people or JSON with stable keys, data on stdout, the log on stderr."""

from __future__ import annotations

import base64
import codecs
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from io import TextIOWrapper
from math import isfinite, isnan
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from geo.cli.logs import clear_line
from geo.cli.verbs import typed
from geo.errors import GeoError
from geo.text import printable, printable_json
from geo.times import from_us

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class UnprintedError(GeoError):
    """A result cannot be written where stdout leads: a disk is full. An error of this package, so that no message is to blame
    for it.
    """


class NobodyReadsError(UnprintedError):
    """The one who read what is shown has ended, as `head` does once it has enough. Nothing is said of it."""

    exit_code = 141  # as shells have it


def ready_streams() -> None:
    """Lets stdout escape what its encoding has not. Those of stdin, stdout and stderr that are closed lead nowhere: each gets
    its own number, which is the first that is free.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as this process
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _has_all_characters() -> bool:
    """Tells whether stdout can show any text."""
    return codecs.lookup(sys.stdout.encoding or "utf-8").name.startswith("utf")


def to_json(value: Any) -> Any:
    """`value` as JSON has it: times ISO 8601, in UTC; those without a zone (TIMESTAMP_NTZ) without one. Bytes in base64, decimals as text, and NaN,
    Infinity and -Infinity, which JSON's numbers are not. Keys are text, as the value would be. A dataclass as `said`."""
    if is_dataclass(value) and not isinstance(value, type):
        return to_json(said(value))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {_key(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _key(key: Any) -> str:
    told = to_json(key)
    return told if isinstance(told, str) else json.dumps(told) if isinstance(key, (bool, int, float)) else str(key)


def as_text(value: Any) -> str:
    """`value` on a line for people: as JSON has it, a text as it is."""
    told = to_json(value)
    return told if isinstance(told, str) else json.dumps(told, ensure_ascii=False, allow_nan=False)


def said(value: DataclassInstance) -> dict[str, Any]:
    """The fields of a dataclass under the names that all screens have for them (docs/health.md, *As JSON*). Times are times, and durations are in
    seconds, to the millisecond."""
    return dict(_member(each.name, getattr(value, each.name)) for each in fields(value))


def _member(name: str, value: Any) -> tuple[str, Any]:
    if name.endswith("_us"):
        at = name.removesuffix("_us")
        return at if at.endswith(_TIMES) else f"{at}_at", None if value is None else from_us(value)
    if name.endswith("_per_s"):
        return f"{name}econd", value
    name = f"{name}econds" if name.endswith("_s") else name
    return name, round(value, 3) if name.endswith("seconds") and isinstance(value, float) else value


_TIMES = ("at", "since")
"""Ends of the names of times."""


class Colour(Enum):
    """Colour on a terminal."""

    BAD, WARNS, GOOD, HEAD = 31, 33, 32, 1


class Line(NamedTuple):
    """A line for people. Of those into which it is wrapped the first has its colour, and the others begin at column `indent`. None: a little
    further than it does.
    """

    text: str
    colour: Colour | None = None
    indent: int | None = None


_FURTHER = 2
"""Columns by which the further lines of a wrapped line are indented."""

_CLEAR = "\x1b[H\x1b[2J"
"""To a terminal: all is empty, and what comes begins at the top."""


class Output:
    """Prints results. `text` takes lines, `table` rows with a head; with `as_json` both are left to `data`. In both, verbs are as they are typed
    for `config`, the configuration of who reads it. In `lines` all is as it is, as what is in messages has to be."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json, self.config = as_json, ""
        self._is_watched = False

    @property
    def width(self) -> int | None:
        """Columns of the terminal. None: there is none, and lines are as long as what they say."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def watch(self, every_s: float | None, show: Callable[[], int]) -> int:
        """Show it, and again and again every so many seconds until a signal ends the process; None: once. Returns what `show` did last."""
        self._is_watched = every_s is not None
        while True:
            if every_s is not None and not self.as_json and sys.stdout.isatty():
                print(_CLEAR, end="")
            code = show()
            if every_s is None:
                return code
            time.sleep(every_s)

    def data(self, value: Any) -> None:
        """The result as one JSON document, on a line if it is one of many that are watched; nothing in text mode."""
        if self.as_json:
            self._document(value, indent=None if self._is_watched else 2)

    def line(self, value: Any) -> None:
        """One of many results as a JSON document on a line; nothing in text mode."""
        if self.as_json:
            self._document(value)

    def text(self, *lines: str) -> None:
        """Lines for people, each wrapped where a terminal is narrower; nothing in JSON mode."""
        self.lines(Line(self.typed(line)) for line in lines)

    def typed(self, text: str) -> str:
        """The text, verbs in it as they are typed for the configuration, where there is one."""
        return typed(text, self.config) if self.config else text

    def lines(self, lines: Iterable[Line]) -> None:
        """Prints as `text`, in colours, and verbs as they are. All that is for people is printed here, so that no text moves a
        cursor, sets a colour or begins a line.
        """
        if not self.as_json:
            for line, colour in fitted(lines, self.width):
                _print(self._painted(line, colour))

    def _painted(self, value: str, colour: Colour | None) -> str:
        """In a colour on a terminal, unless the environment asks for none (NO_COLOR). None: as it is."""
        has_colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return f"\x1b[{colour.value}m{value}\x1b[0m" if has_colours and colour is not None else value

    def _document(self, value: Any, indent: int | None = None) -> None:
        _print(printable_json(json.dumps(to_json(value), ensure_ascii=not _has_all_characters(), allow_nan=False, indent=indent)))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows in columns as wide as they need to be; where a terminal is narrower, each row as lines of its own."""
        typed_rows = [[self.typed(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
        self.lines(table_lines(head, typed_rows, self.width))


def _colour_of(cells: Sequence[str]) -> Colour | None:
    """Colour of a row in which something has stopped, or waits to be tried again."""
    return Colour.BAD if "FAILED" in cells else Colour.WARNS if "DELAYED" in cells else None


def table_lines(head: Sequence[str], rows: Sequence[Sequence[object]], width: int | None) -> list[Line]:
    """A table as lines. If it is wider than `width` each row is its first cell, and below it the others with their names. None: any width
    is right."""
    cells = [[printable(str("" if cell is None else cell)) for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(head)]
    if width is None or sum(widths) + 2 * (len(widths) - 1) <= width:
        every = [
            "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in ([*head], *cells)
        ]
        return [Line(every[0], Colour.HEAD), *map(Line, every[1:], map(_colour_of, cells))]
    lines = []
    for row in cells:
        said = ", ".join(f"{name} {cell}" for name, cell in zip(head[1:], row[1:], strict=True) if cell)
        lines += [Line(f"{head[0]} {row[0]}", _colour_of(row)), Line(f"  {said}", indent=2)]
    return lines


def fitted(lines: Iterable[Line], width: int | None) -> Iterator[tuple[str, Colour | None]]:
    """Fits lines into `width` columns (None: any width is right), each as several lines. A longer word stays whole, so that a
    name or a path can be copied. Characters that are none to read are left out.
    """
    for text, colour, indent in lines:
        said = printable(text)
        if width is None or len(said) <= width:
            yield said, colour
            continue
        start = len(said) - len(said.lstrip())
        further = start + _FURTHER if indent is None else indent
        parts = wrap(said.lstrip(), max(width, further + 20), initial_indent=" " * start, subsequent_indent=" " * further,
                     break_long_words=False, break_on_hyphens=False)  # fmt: skip
        yield from zip(parts, (colour, *(None for _ in parts[1:])), strict=True)


def _print(text: str) -> None:
    clear_line()
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be written, too
        if isinstance(error, BrokenPipeError):
            raise NobodyReadsError from error
        raise UnprintedError(f"what it says cannot be written where stdout leads: {error.strerror}") from error
