"""How the command line prints: text for people or JSON with stable keys, data on stdout, the log on stderr."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from math import isfinite, isnan
from textwrap import wrap
from typing import Any, TypeAlias

from geo.cli.logs import clear_line
from geo.text import printable, printable_lines
from geo.times import utc


def to_json(value: Any) -> Any:
    """`value` as JSON has it: times ISO 8601 in UTC (without a zone: of this process, as Spark collects them), bytes in
    base64, NaN, Infinity and -Infinity as text: JSON has no such numbers."""
    if isinstance(value, datetime):
        return utc(value).isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


class Colour(Enum):
    """Of what is shown on a terminal."""

    BAD, WARNS, GOOD, HEAD = 31, 33, 32, 1


Line: TypeAlias = tuple[str, Colour | None]

_PAINT = re.compile(rf"(\x1b\[(?:0|{'|'.join(str(one.value) for one in Colour)})m)")

_CLEAR = "\x1b[H\x1b[2J"
"""To a terminal: all is empty, and what comes begins at the top."""


class Output:
    """Prints results. `text` takes lines, `table` rows with a head; with `as_json` both are left to `data`."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    @property
    def width(self) -> int | None:
        """Columns of the terminal. None: there is none, and lines are as long as what they say."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def painted(self, value: str, colour: Colour | None) -> str:
        """In a colour on a terminal, unless the environment asks for none (NO_COLOR). None: as it is."""
        has_colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return f"\x1b[{colour.value}m{value}\x1b[0m" if has_colours and colour is not None else value

    def watch(self, every_s: float | None, show: Callable[[], int]) -> int:
        """Show it, and again and again every so many seconds until a signal ends the process; None: once. Returns what `show` did last."""
        while True:
            if every_s is not None and not self.as_json and sys.stdout.isatty():
                print(_CLEAR, end="")
            code = show()
            if every_s is None:
                return code
            time.sleep(every_s)

    def data(self, value: Any) -> None:
        """The result as one JSON document; nothing in text mode."""
        if self.as_json:
            _print(json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, indent=2))

    def line(self, value: Any) -> None:
        """One of many results as a JSON document on a line; nothing in text mode."""
        if self.as_json:
            _print(json.dumps(to_json(value), ensure_ascii=False, allow_nan=False))

    def text(self, *lines: str) -> None:
        """Lines for people; nothing in JSON mode. Of what moves a cursor they have only colours."""
        if not self.as_json:
            for line in lines:
                _print("".join(part if _PAINT.fullmatch(part) else printable_lines(part) for part in _PAINT.split(line)))

    def painted_text(self, lines: Iterable[Line]) -> None:
        """As `text`, each line in its colour."""
        self.text(*(self.painted(line, colour) for line, colour in lines))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows in columns as wide as they need to be; where a terminal is narrower, each row as lines of its own."""
        self.text(*table_lines(head, rows, self.width))


def table_lines(head: Sequence[str], rows: Sequence[Sequence[object]], width: int | None) -> list[str]:
    """A table as lines no wider than that, unless a word is: if it is too wide each row is its first cell, and below it the others with
    their names. None: as wide as it is."""
    cells = [[printable(str("" if cell is None else cell)) for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(head)]
    if width is None or sum(widths) + 2 * (len(widths) - 1) <= width:
        every = [list(head), *cells]
        return ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in every]
    lines = []
    for row in cells:
        lines.append(f"{head[0]} {row[0]}")
        said = ", ".join(f"{name} {cell}" for name, cell in zip(head[1:], row[1:], strict=True) if cell)
        lines += wrapped(f"  {said}", width, indent=2)
    return lines


def wrapped(line: str, width: int | None, *, indent: int) -> list[str]:
    """A line as several that are no wider, unless a word is, so that a name or a path can be copied whole; those after the first are
    indented. None: as it is."""
    if width is None or len(line) <= width:
        return [line]
    start = len(line) - len(line.lstrip())
    return wrap(line.lstrip(), max(width, indent + 20), initial_indent=" " * start, subsequent_indent=" " * indent,
                break_long_words=False, break_on_hyphens=False)  # fmt: skip


def _print(text: str) -> None:
    clear_line()
    print(text, flush=True)
