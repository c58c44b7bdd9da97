"""Texts that may be shown: on one line, without characters that move a cursor or forge a log line. Pure."""

from __future__ import annotations

import re

from geo.remedies import OF_STORE, remedy_of

_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Characters that move a cursor, colour what follows, begin another line, turn around what is read, are not seen, or are none."""


def printable(text: str) -> str:
    """`text` on one line, without characters that make it look as something else (CWE-117)."""
    return _UNSHOWN.sub("\N{REPLACEMENT CHARACTER}", text)


def printable_lines(text: str) -> str:
    """`text` as `printable`, its line ends kept."""
    return "\n".join(printable(line) for line in text.split("\n"))


def printable_json(document: str) -> str:
    """A document in JSON that says the same, in which these characters are escaped; its line ends are kept."""
    return _UNSHOWN.sub(lambda found: "\n" if found[0] == "\n" else f"\\u{ord(found[0]):04x}", document)


def show(value: object) -> str:
    """A value as it may stand in a message or a log line: quoted, ASCII, on one line, bounded."""
    quoted = ascii(value)
    return quoted if len(quoted) <= 120 else f"{quoted[:117]}..."


def counted(number: int, noun: str) -> str:
    """A number and what is counted: `1 message`, `2,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


_UNITS = ((86_400.0, "days"), (3600.0, "h"), (60.0, "min"))


def lasting(seconds: float) -> str:
    """A duration as people say it: `4.2 s`, `25 min`, `22 h`, `3 days`; of each unit two at least, so that the number tells."""
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds // size:,.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def per_second(rate: float) -> str:
    """A rate as people read it: `1,204`, `4.2`, `0.023`; a little is not shown as nothing."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}" if rate >= 1 else f"{rate:.2g}"


_CALLING, _CAUSE = "An error occurred while calling ", "Caused by: "
"""Beginnings of an error of Java's in which only the call is named, and of a line that says what was behind it."""

_FROM_TASK, _OF_JAVA = "An exception was thrown from the Python worker", "JVM stacktrace"
"""Beginning of an error that Python raised in a task of Spark's, whose trace follows, and of what comes behind that."""

_TRACE = "Traceback (most recent call last):"
"""The place where Python's trace begins, also in an error of Java's."""


def first_line(error: BaseException) -> str:
    """The words of an error without the traces that Spark's carry after it; its type if it says nothing. Of one that Py4J
    passes on, what it was caused by; of one that a task of Spark's raised in Python, what that was. Of a storage's, also what
    to do about it.
    """
    first, remedy = line_and_remedy(error)
    return first if remedy is None or first.endswith(remedy) else f"{first}; {remedy}"


def line_and_remedy(error: BaseException) -> tuple[str, str | None]:
    """The words as `first_line` has them, and apart from them what to do about a storage's error; None: that is not known."""
    first, *rest = str(error).splitlines() or [type(error).__name__]
    if first.startswith(_CALLING):
        causes = [line.removeprefix(_CAUSE) for line in rest if line.startswith(_CAUSE)]
        first = (causes or [line.removeprefix(": ") for line in rest[:1]] or [first])[-1]
    if first.startswith(_FROM_TASK) or first.endswith(_TRACE):
        first = _raised(str(error)) or first
    return first, remedy_of(first)


def _raised(text: str) -> str | None:
    """Finds what the last trace of Python's in a text says that was raised: the line behind those of the trace. None: there is
    no trace.
    """
    lines = [line for line in text.partition(_OF_JAVA)[0].rpartition(_TRACE)[2].splitlines() if line.strip()]
    traced = [number for number, line in enumerate(lines) if line.startswith("  ")]
    behind = lines[traced[-1] + 1 :] if traced else []
    last = next((line for line in behind or lines[-1:] if not line.startswith("\t")), None)
    said = (last or "").partition(": ")[2]
    return said if said.startswith(OF_STORE) else last
