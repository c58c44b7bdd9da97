"""Names and texts as they stand in Spark's SQL. Pure.

Expressions that every batch needs are made as SQL. Made of functions, each is a call or a dozen into the JVM, 0.1 to 0.3 ms each.
"""

from __future__ import annotations

import re
from typing import Any


def literal(text: str) -> str:
    """A text as a literal. Spark would put a variable's value where `${` begins its name."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{") + "'"


def identifier(name: str) -> str:
    """A name as an identifier, one part of it."""
    return "`" + name.replace("`", "``") + "`"


_KINDS = {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}
"""Types whose names in Delta's log are not those of SQL."""


def type_of(told: Any) -> str:
    """A column's type in SQL's words, as Delta's log tells it: a name, or an object of what has structure."""
    if isinstance(told, str):
        return _KINDS.get(told, told.upper())
    if told["type"] == "array":
        return f"ARRAY<{type_of(told['elementType'])}>"
    if told["type"] == "map":
        return f"MAP<{type_of(told['keyType'])}, {type_of(told['valueType'])}>"
    if told["type"] == "struct":
        fields = (f"{_bare(field['name'])}: {type_of(field['type'])}" for field in told["fields"])
        return f"STRUCT<{', '.join(fields)}>"
    return str(told["type"]).upper()


def _bare(name: str) -> str:
    """A name, quoted only where it has to be."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else identifier(name)
