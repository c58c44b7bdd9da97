"""What asks before it does something, by a terminal that is one."""

from __future__ import annotations

import argparse
import os
import pty
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest

from geo.cli.agreed import require_agreement
from geo.cli.output import Output
from geo.errors import UnsafeError

_ASKED = argparse.Namespace(yes=False)


@contextmanager
def terminal(typed: str) -> Iterator[int]:
    """stdin and stderr are one, at which a person has typed that. Yields what the person reads from."""
    person, theirs = pty.openpty()
    tty.setraw(theirs)  # what is typed is not echoed: what the person reads is what was asked
    os.write(person, f"{typed}\n".encode())
    with ExitStack() as held:
        held.enter_context(mock.patch("sys.stdin", held.enter_context(os.fdopen(os.dup(theirs), "r"))))
        held.enter_context(mock.patch("sys.stderr", held.enter_context(os.fdopen(theirs, "w"))))
        yield person
    os.close(person)


@pytest.mark.parametrize(("answer", "agrees"), [("y", True), ("YES", True), ("n", False), ("", False), ("yesterday", False)])
def test_a_terminal_is_asked_and_only_a_yes_is_one(answer: str, agrees: bool) -> None:
    refused = ""
    with terminal(answer) as person:
        try:
            require_agreement(_ASKED, Output(as_json=False), "this empties all")
        except UnsafeError as error:
            refused = str(error)
        assert b"this empties all. Do it? [y/N]" in os.read(person, 1000)
    assert refused == ("" if agrees else "nothing was changed: the answer was not yes.")


def test_a_program_is_not_asked() -> None:
    with (
        terminal("y"),
        pytest.raises(UnsafeError, match=r"nothing was changed: this empties all\. To do it: the same with --yes"),
    ):
        require_agreement(_ASKED, Output(as_json=True), "this empties all")
    with terminal("n"):
        require_agreement(argparse.Namespace(yes=True), Output(as_json=False), "this empties all")
        require_agreement(argparse.Namespace(yes=False, dry_run=True), Output(as_json=False), "this empties all")


def test_what_is_no_terminal_is_not_asked() -> None:
    with open(os.devnull) as nobody, mock.patch("sys.stdin", nobody), pytest.raises(UnsafeError, match="the same with --yes"):
        require_agreement(_ASKED, Output(as_json=False), "this empties all")
