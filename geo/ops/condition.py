"""A condition in SQL, as far as it can be judged before Spark reads it: names that are no column. Pure: no Spark, clock or I/O."""

from __future__ import annotations

import re
from collections.abc import Collection

from geo.config.yaml_nodes import suggestion
from geo.errors import UsageError
from geo.names import Topic
from geo.text import show

_TOKEN = re.compile(r"\s*('(?:[^'\\]|\\.|'')*'|\d+(?:\.\d+)?|`[^`]*`|[A-Za-z_]\w*|<=>|<>|!=|<=|>=|==|[=<>(),])")
"""Tokens of conditions of the plain kind: names, numbers, texts, comparisons, lists."""

_WORDS = frozenset(["and", "or", "not", "in", "is", "null", "like", "between", "true", "false", "rlike", "ilike", "escape"])


def refuse_unknown_names(where: str, columns: Collection[str], topic: Topic) -> None:
    """Raises UsageError for a condition that is empty, or of the plain kind with a name that is no column, or without an end. Of any other kind
    nothing is said: Spark reads it."""
    tokens, at, text = list[str](), 0, where.strip()
    while at < len(text):
        if (found := _TOKEN.match(text, at)) is None:
            return
        tokens.append(found[1])
        at = found.end()
    known = {column.lower() for column in columns}
    if not tokens:
        raise UsageError("--where is empty. Which messages are meant, such as \"key = 'customer 7'\"?")
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        name = token.strip("`").lower()
        if not re.match(r"[`A-Za-z_]", token) or (name in _WORDS and "`" not in token):
            continue
        if after == "(" or after.startswith("'"):  # a function, or a text with its type: Spark knows which there are
            return
        if name not in known:
            near = suggestion(token.strip("`"), columns) or f"; there are: {', '.join(sorted(columns))}"
            raise UsageError(f"--where {show(where)}: {topic} has no column {show(token.strip('`'))}{near}")
    if re.fullmatch(r"[=<>!]+|[(,]|and|or|not|in|like", tokens[-1].lower()) or tokens.count("(") != tokens.count(")"):
        raise UsageError(f"--where {show(where)} has no end: something is missing behind {show(tokens[-1])}")
