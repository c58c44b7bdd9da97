"""How the names of a table's columns are compared. No clock and no I/O.

Delta keeps a name as it was given and takes two that differ in case only for one: readers refuse a log in which both are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from geo.errors import UsageError
from geo.text import show

NO_NAME = " ,;{}()\n\t="
"""Characters that Delta takes in no name of a column."""


def folded(name: str) -> str:
    """What two names have in common that are one to Delta: those that differ in case only, character by character, as Java compares them."""
    return "".join((one.upper() if len(one.upper()) == 1 else one).lower()[0] for one in name)


def twins(names: Sequence[str]) -> list[str | None]:
    """For each name the one before it that is the same to Delta."""
    first = dict[str, int]()
    met = [first.setdefault(folded(name), at) for at, name in enumerate(names)]
    return [None if there == at else names[there] for at, there in enumerate(met)]


def refuse_twins(what: object, names: Iterable[str]) -> None:
    """Raises UsageError for names of columns that a table cannot have together."""
    names = list(names)
    pairs = [f"{show(twin)} and {show(name)}" for name, twin in zip(names, twins(names), strict=True) if twin is not None]
    if pairs:
        raise UsageError(
            f"{what}: cannot have the columns {', '.join(pairs)}, one name each to Delta, which does not tell case apart. Nothing was "
            "written. Rename one of them."
        )
