"""How the command line prints: text for people or JSON with stable keys, data on stdout, the log on stderr."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from math import isfinite, isnan
from typing import Any

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


class Output:
    """Prints results. `text` takes lines, `table` rows with a head; with `as_json` both are left to `data`."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def data(self, value: Any) -> None:
        """The result as one JSON document; nothing in text mode."""
        if self.as_json:
            print(json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, indent=2), flush=True)

    def line(self, value: Any) -> None:
        """One of many results as a JSON document on a line; nothing in text mode."""
        if self.as_json:
            print(json.dumps(to_json(value), ensure_ascii=False, allow_nan=False), flush=True)

    def text(self, *lines: str) -> None:
        """Lines for people; nothing in JSON mode."""
        if not self.as_json:
            for line in lines:
                print(line, flush=True)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows in columns as wide as they need to be."""
        cells = [[printable(str("" if cell is None else cell)) for cell in row] for row in rows]
        widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(head)]
        for row in [list(head), *cells]:
            self.text("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc)
        fields = {"ts": to_json(time), "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        return json.dumps(fields, ensure_ascii=False)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc)
        return f"{time:%H:%M:%S} {record.levelname.lower():7} {printable_lines(record.getMessage())}"


def configure_logging(*, verbose: bool, as_json: bool) -> None:
    """The log of this package to stderr; of the libraries below it only what is serious."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.ERROR, force=True)
    logging.getLogger("geo").setLevel(logging.DEBUG if verbose else logging.INFO)
    for name in ("py4j", "pyspark"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
