"""Names and texts as they stand in Spark's SQL. Pure.

Expressions that every batch needs are made as SQL: made of functions, each is a call or a dozen into the JVM, 0.1 to 0.3 ms each.
"""

from __future__ import annotations


def literal(text: str) -> str:
    """A text as a literal. Spark would put a variable's value where `${` begins its name."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{") + "'"


def identifier(name: str) -> str:
    """A name as an identifier, one part of it."""
    return "`" + name.replace("`", "``") + "`"
