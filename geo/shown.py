"""Reports for a notebook: a line where one is printed, tables where it is shown, pandas where it is worked on. Pure; pandas is
imported by who asks for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from geo.errors import SetupError
from geo.text import printable

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")

Sections = Mapping[str, Sequence[Mapping[str, object]]]
"""Tables by name, the one that counts first: of each its rows, by column."""


class Shown(ABC):
    """A report."""

    __slots__ = ()

    @abstractmethod
    def sections(self) -> Sections:
        """The tables of the report, by name."""

    def to_pandas(self, section: str | None = None) -> pandas.DataFrame:
        """The rows of one section, by default of the first. Raises KeyError for one that is not there, SetupError without pandas."""
        try:
            import pandas
        except ImportError:
            raise SetupError("to_pandas() needs pandas: pip install pandas") from None
        sections = self.sections()
        return pandas.DataFrame(list(sections[next(iter(sections)) if section is None else section]))

    def _repr_html_(self) -> str:
        line = f"<p><b>{_text(repr(self).strip('<>'))}</b></p>"
        return line + "".join(_table(name, rows) for name, rows in self.sections().items() if rows)


class Rows(tuple[T, ...], Shown):
    """Some dataclasses of one kind, as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self):,} {type(self[0]).__name__ if self else 'rows'}>"

    def sections(self) -> Sections:
        return {"": [row_of(one) for one in self]}


def row_of(one: Any) -> dict[str, object]:
    """The fields of a dataclass, by name."""
    return {field.name: getattr(one, field.name) for field in fields(one)}


def _table(name: str, rows: Sequence[Mapping[str, object]]) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in rows[0])
    lines = "".join(f"<tr>{''.join(_cell(value) for value in row.values())}</tr>" for row in rows)
    title = f"<caption>{_text(name)}</caption>" if name else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return "<td>?</td>"
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td style="text-align:right">{value:,}</td>'
    return f"<td>{_text(_words(value))}</td>"


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {one}" for key, one in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return str(value)


def _text(text: str) -> str:
    return escape(printable(text))
