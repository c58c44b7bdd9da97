"""Columns of a Delta table: which it can have, how their names are compared, and how they stand in SQL. Beside them what becomes of a table's columns
as others come. No clock and no I/O.

Delta keeps a name as it was given and takes two that differ in case only for one. Without column mapping, which tables of this program do not have,
some characters cannot be in a name (Parquet's readers of old). With the change feed on, three names are the feed's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geo.delta.definition import nullable
from geo.delta.protocol import is_wider
from geo.late import spark_types
from geo.sql_text import identifier
from geo.text import show

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

NO_NAME = " ,;{}()\n\t="
"""Characters that Delta takes in no name of a column, also within a struct."""

OF_FEED = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""Names of the change feed, which no column beside them may have; one within a struct may."""


def folded(name: str) -> str:
    """Folds a name so that two are equal that are one to Delta. These differ in case only, character by character, as Java compares them."""
    return "".join((one.upper() if len(one.upper()) == 1 else one).lower()[0] for one in name)


def sql_type(kind: DataType) -> str:
    """A type as SQL has it, the names within it quoted."""
    match kind:
        case spark_types.StructType():
            return f"STRUCT<{', '.join(f'{identifier(one.name)}: {sql_type(one.dataType)}' for one in kind)}>"
        case spark_types.ArrayType():
            return f"ARRAY<{sql_type(kind.elementType)}>"
        case spark_types.MapType():
            return f"MAP<{sql_type(kind.keyType)}, {sql_type(kind.valueType)}>"
    return kind.simpleString()


def why_not(columns: Iterable[StructField], beside: Iterable[str] = ()) -> list[str]:
    """Tells why a table with the change feed on cannot have these columns of a user's `beside` others, one sentence for each of them. None: it can."""
    columns, there, found = list(columns), list(beside), list[str]()
    for column, twin in zip(columns, twins([*there, *(one.name for one in columns)])[len(there) :], strict=True):
        why = _why_not_name(column.name) or _why_not_type(column.dataType)
        if why is None and folded(column.name) in OF_FEED:
            why = "has a name of Delta's change feed; rename it"
        if why is None and twin is not None:
            why = f"and {show(twin)} are one name to Delta, which does not tell case apart; rename one of them"
        if why is not None:
            found.append(f"column {show(column.name)} {why}")
    return found


def twins(names: Sequence[str]) -> list[str | None]:
    """For each name the one before it that is the same to Delta."""
    first = dict[str, int]()
    met = [first.setdefault(folded(name), at) for at, name in enumerate(names)]
    return [None if there == at else names[there] for at, there in enumerate(met)]


def _why_not_name(name: str) -> str | None:
    if not name:
        return "has no name; give it one"
    if bad := sorted(set(name) & set(NO_NAME)):
        return f"has {' and '.join(map(_told, bad))} in its name, which Delta takes in none; rename it"
    return None


def _told(character: str) -> str:
    return {" ": "a space", "\n": "a line end", "\t": "a tab"}.get(character, character)


def _why_not_type(kind: DataType) -> str | None:
    match kind:
        case spark_types.StructType():
            return _why_not_fields(kind.fields)
        case spark_types.ArrayType():
            return _why_not_type(kind.elementType)
        case spark_types.MapType():
            return _why_not_type(kind.keyType) or _why_not_type(kind.valueType)
        case spark_types.NullType():
            return "has no type (all of it is NULL); cast it to the type that it shall have"
        case spark_types.StringType() if kind != spark_types.StringType():
            return f"is {kind.simpleString()}, and Delta keeps no collation; cast it to STRING"
    return None if isinstance(kind, _atoms()) else f"is {kind.simpleString()}, a type that Delta does not have; cast it"


def _why_not_fields(fields: Sequence[StructField]) -> str | None:
    if not fields:
        return "has a struct without fields; leave it out"
    for field, twin in zip(fields, twins([one.name for one in fields]), strict=True):
        if (why := _why_not_name(field.name) or _why_not_type(field.dataType)) is not None:
            return f"has a field {show(field.name)}, which {why}"
        if twin is not None:
            return (
                f"has fields {show(twin)} and {show(field.name)}, one name to Delta, which does not tell case apart; rename one"
            )
    return None


def _atoms() -> tuple[type[DataType], ...]:
    """Types that Delta has, beside those that hold others."""
    return (
        spark_types.BinaryType, spark_types.BooleanType, spark_types.CharType, spark_types.DateType, spark_types.NumericType,
        spark_types.StringType, spark_types.TimestampNTZType, spark_types.TimestampType, spark_types.VarcharType, spark_types.VariantType,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Clash:
    """A column that is `given` and does not go with the one that is `there`. Its type is another one, or its name differs in case only."""

    given: StructField
    there: StructField

    @property
    def is_of_case(self) -> bool:
        """Their names are not the same."""
        return self.given.name != self.there.name

    @property
    def may_be_accepted(self) -> bool:
        """Some values of the one that is given may be exactly such as are there."""
        kinds = (self.given.dataType, self.there.dataType)
        return goes_with(*kinds) or may_be_equal(kinds)

    def told(self, where_given: str, where_there: str) -> str:
        """Words for what is not alike. The places are such as "in us"."""
        if self.is_of_case:
            pair = f"{show(self.given.name)} {where_given} and {show(self.there.name)} {where_there}"
            return f"the columns {pair} differ in case only, and to Delta are one"
        kinds = f"{self.given.dataType.simpleString()} {where_given} and {self.there.dataType.simpleString()} {where_there}"
        return f"column {show(self.given.name)} is {kinds}"


@dataclass(frozen=True, slots=True)
class Growth:
    """Changes that a table's columns need so that rows with others can be appended. It gets columns behind its own, and columns of its own become a
    wider type, with which they are given. `clashes` stand in the way.
    """

    added: tuple[StructField, ...]
    widened: tuple[StructField, ...]
    clashes: tuple[Clash, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)

    @property
    def told(self) -> str:
        """Words for what is new, as `--add-columns` takes it; a name that cannot be printed is shown."""
        return ", ".join(
            f"{identifier(one.name) if one.name.isprintable() else show(one.name)} {sql_type(one.dataType)}"
            for one in (*self.added, *self.widened)
        )


def growth(there: StructType, given: Iterable[StructField]) -> Growth:
    """Derives what columns that are `there` need for these. A column whose type is narrower than the table's goes with it. Of two that are given with
    one name, in whatever case, the second has to go with the first.
    """
    own = {folded(one.name): one for one in there}
    added: list[StructField] = []
    widened: list[StructField] = []
    clashes: list[Clash] = []
    for column in given:
        same = own.get(folded(column.name))
        if same is None:
            own[folded(column.name)] = column
            added.append(column)
        elif same.name != column.name or not goes_with(column.dataType, same.dataType):
            if same.name == column.name and same not in added and _widens(same.dataType, column.dataType):
                widened.append(column)
            else:
                clashes.append(Clash(column, same))
    return Growth(tuple(added), tuple(widened), tuple(clashes))


def why_not_grown(there: StructType, needed: Growth, where: str) -> str:
    """Tells why a table with columns that are `there` cannot get what is `needed`; empty: it can. `where` is such as "in us"."""
    return "; ".join([*(one.told("as asked for", where) for one in needed.clashes), *why_not(needed.added, there.names)])


def goes_with(kind: DataType, wanted: DataType) -> bool:
    """Tells whether all values of a type are values of another one as well: it is the same, or narrower."""
    return is_same(kind, wanted) or _widens(kind, wanted)


def may_be_equal(kinds: Iterable[DataType]) -> bool:
    """Tells whether a value of one of these types may be exactly one of each other. They are types of numbers, of times, or BOOLEAN, or texts with
    one of these. Never of types that hold others, since Spark casts a struct's fields by their place; nor BINARY, since what is no UTF-8 is no
    text.
    """
    others = [kind for kind in kinds if not isinstance(kind, spark_types.StringType)]
    times = (spark_types.DateType, spark_types.TimestampType, spark_types.TimestampNTZType)
    groups = ((spark_types.NumericType,), times, (spark_types.BooleanType,))
    return any(all(isinstance(kind, group) for kind in others) for group in groups)


def is_same(kind: DataType, other: DataType) -> bool:
    """Tells whether types are the same, whatever is said of values in them that are required and of comments."""
    return nullable(kind) == nullable(other)


def _widens(kind: DataType, wider: DataType) -> bool:
    """Tells whether Delta makes a column of a type one of another type that way."""
    before, after = kind.jsonValue(), wider.jsonValue()
    return isinstance(before, str) and isinstance(after, str) and is_wider(before, after)
