"""Form of a configuration: YAML nodes with their lines, and the texts of durations and locations.

Generic: what the keys mean is in `reader.py`. Nothing is constructed from a tag and no alias is followed, so a file can neither run code nor grow
in memory. Everything that is wrong is collected. A message names keys and types. It shows a value only where that cannot be one to hide: a location
may hold a password, so it is never shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import TypeVar

import yaml
from yaml.events import AliasEvent, DocumentStartEvent, MappingStartEvent, ScalarEvent, SequenceStartEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from geo.errors import ConfigError, UsageError
from geo.locations import storage_of
from geo.text import show

# A mesh of a hundred clusters with a thousand policies is about 150 KB. PyYAML reads some 100 KB in a second.
MAX_CHARACTERS = 256 * 1024
# Our tree is four deep. PyYAML composes by recursion, so without a bound a row of brackets would end in a traceback.
MAX_DEPTH = 16

_NULL = "tag:yaml.org,2002:null"
_TEXT = "tag:yaml.org,2002:str"

_URI = re.compile(r"([a-z][a-z0-9+.-]*):/")
# Hadoop reads * ? [ ] { } as a pattern and ? # as the end of a path; a backtick would end delta.`path` in SQL.
_NOT_IN_LOCATION = re.compile(r"[\x00-\x1f\x7f*?\[\]{}#`]")
_PASSWORD = re.compile(r"[^/]*:/+[^/]*:[^/]*@")

T = TypeVar("T")


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` when a known word is close, else nothing."""
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {show(close[0])}?" if close else ""


class Reader:
    """Reads nodes of one document by type. What is wrong is added to the findings and read as None or as empty."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._findings: list[tuple[int, str]] = []

    def refuse(self, where: Node | int, message: str) -> None:
        """Add a finding at a node or a line (from 1)."""
        line = where if isinstance(where, int) else line_of(where)
        self._findings.append((line, message))

    @property
    def refused(self) -> int:
        """Number of findings so far."""
        return len(self._findings)

    def finish(self) -> None:
        """Raise ConfigError with all findings as `file:line: message`, by line; or return when there is none."""
        if self._findings:
            in_order = sorted(self._findings, key=lambda finding: finding[0])
            raise ConfigError([f"{self._path}:{line}: {message}" for line, message in in_order])

    def document(self, text: str) -> Node | None:
        """The one document of the text, None when there is none that can be read."""
        if len(text) > MAX_CHARACTERS:
            self.refuse(1, f"the file has {len(text)} characters; allowed: {MAX_CHARACTERS}")
            return None
        try:
            if not self._plain(text):
                return None
            root: Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.reader.ReaderError as error:
            self.refuse(text.count("\n", 0, error.position) + 1, f"not YAML: {error.reason}")
            return None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.refuse(mark.line + 1 if mark else 1, f"not YAML: {error.problem or error.context}")
            return None
        if root is None:
            self.refuse(1, "the file is empty")
        return root

    def _plain(self, text: str) -> bool:
        """True if the text has only what a configuration needs; found from events, before anything is built."""
        depth = documents = 0
        before = self.refused
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = event.start_mark.line + 1 if event.start_mark else 1
            documents += isinstance(event, DocumentStartEvent)
            depth += isinstance(event, (MappingStartEvent, SequenceStartEvent))
            if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                depth -= 1
            elif isinstance(event, AliasEvent):
                self.refuse(line, f"an alias (*{event.anchor}) is not allowed; write the value out")
            elif isinstance(event, (ScalarEvent, MappingStartEvent, SequenceStartEvent)) and event.tag is not None:
                self.refuse(line, f"a tag ({show(event.tag)}) is not allowed; quote the text instead")
            if depth > MAX_DEPTH:
                self.refuse(line, f"nested deeper than {MAX_DEPTH}")
                break
            if documents > 1:
                self.refuse(line, "a second document; one file is one configuration")
                break
        return self.refused == before

    def entries(self, node: Node | None, what: str) -> dict[str, tuple[Node, Node]]:
        """The key and value nodes of a mapping, by key. A key is its text: `no` is a cluster, not a boolean."""
        found: dict[str, tuple[Node, Node]] = {}
        if not isinstance(node, MappingNode):
            self._wrong(node, what, "a mapping")
            return found
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self.refuse(key, f"a key of {what} is {_kind(key)}; expected: text")
            elif key.value in found:
                first = line_of(found[key.value][0])
                self.refuse(key, f"{what} has {show(key.value)} twice; first in line {first}")
            else:
                found[key.value] = (key, value)
        return found

    def fields(
        self,
        node: Node | None,
        what: str,
        required: Iterable[str],
        optional: Iterable[str],
        gone: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Node]:
        """The values of a mapping whose keys are given; an unknown key and a missing required one are findings. `gone`: why a key of earlier
        programs is none, and what to do."""
        required, allowed = list(required), [*required, *optional]
        entries = self.entries(node, what)
        for name, (key, _) in entries.items():
            if name not in allowed:
                known = f"unknown key {show(name)}; allowed: {', '.join(allowed)}{suggestion(name, allowed)}"
                self.refuse(key, f"{what}: {gone.get(name, known)}")
        if isinstance(node, MappingNode):
            for name in required:
                if name not in entries:
                    self.refuse(node, f"{what}: {name} is missing")
        return {name: value for name, (_, value) in entries.items() if name in allowed}

    def items(self, node: Node | None, what: str) -> list[Node]:
        """The items of a list; nothing when the key is not there."""
        if isinstance(node, SequenceNode):
            return list(node.value)
        self._wrong(node, what, "a list")
        return []

    def word(self, node: Node | None, what: str, check: Callable[[str], T]) -> T | None:
        """Returns what `check` makes of a scalar's text as it is written: `no` is "no". Its UsageError becomes a finding."""
        if not isinstance(node, ScalarNode) or node.tag == _NULL:
            self._wrong(node, what, "text")
            return None
        value: str = node.value
        return self.attempt(node, lambda: check(value), f"{what}: ")

    def text(self, node: Node | None, what: str, check: Callable[[str], T]) -> T | None:
        """Reads as `word`, for what must be text to YAML too: a number or `yes` is a finding."""
        if isinstance(node, ScalarNode) and node.tag != _TEXT:
            self._wrong(node, what, "text")
            return None
        return self.word(node, what, check)

    def attempt(self, where: Node | int, make: Callable[[], T], before: str = "") -> T | None:
        """Returns what `make` returns; a UsageError becomes a finding, with `before` in front of its message."""
        try:
            return make()
        except UsageError as error:
            self.refuse(where, f"{before}{error}")
            return None

    def _wrong(self, node: Node | None, what: str, expected: str) -> None:
        if node is not None:
            self.refuse(node, f"{what} is {_kind(node)}; expected: {expected}")


def line_of(node: Node) -> int:
    """The line a node starts on, from 1."""
    line: int = node.start_mark.line
    return line + 1


def _kind(node: Node) -> str:
    if isinstance(node, ScalarNode):
        return "empty" if node.tag == _NULL else f"of type {node.tag.rpartition(':')[2]}"
    return "a list" if isinstance(node, SequenceNode) else "a mapping"


def check_within(what: str, value: int, least: int, most: int, unit: str = "") -> None:
    """Raises UsageError of a number that is less or more."""
    if not least <= value <= most:
        raise UsageError(f"{what} {value}{unit}; allowed: {least} to {most}")


def check_location(location: str) -> str:
    """The location itself, when it is an absolute path or a URI that Spark takes literally. Raises UsageError."""
    if _PASSWORD.match(location):
        raise UsageError("a password in a URI (not shown); give it as a secret in spark_conf")
    if found := _NOT_IN_LOCATION.search(location):
        raise UsageError(f"{show(found[0])} in a location; allowed: all but control characters and * ? [ ] {{ }} # `")
    if not (_URI.match(location) or os.path.isabs(location)):
        raise UsageError("not an absolute path or a URI (scheme://...)")
    if ".." in location.split("/"):
        raise UsageError("'..' in a location; write the folder it leads to")
    return location


def resolve_location(text: str, base: str) -> str:
    """The location that is written as `text` in a file of folder `base`, without a slash at the end. UsageError."""
    if not text.strip():
        raise UsageError("an empty location")
    location = text if _URI.match(text) else os.path.normpath(os.path.join(base, text))
    return check_location(location.rstrip("/") or location)


def contains(outer: str, inner: str) -> bool:
    """True if `inner` is `outer` or lies below it. Case is folded, as some storage does, and s3 is s3a."""
    outer_parts, inner_parts = _segments(outer), _segments(inner)
    return inner_parts[: len(outer_parts)] == outer_parts


def _segments(location: str) -> list[str]:
    scheme, _, rest = location.casefold().partition(":/") if _URI.match(location) else ("", "", location.casefold())
    return [storage_of(f"{scheme}:"), *(part for part in rest.split("/") if part)]
