"""Secrets that a configuration refers to and does not hold. Only `Secret.reveal` reads anything."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

from geo.errors import UsageError
from geo.reasons import Reason

SECRET_FORMS = "secret://env/NAME or secret://file/ABSOLUTE_PATH"
_SECRET = re.compile(r"secret://(?:env/[A-Za-z_][A-Za-z0-9_]*|file/{1,2}[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]*)")


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """The place where a secret is. The secret itself is read by `reveal` and kept nowhere, so it is in no repr, log or pickle."""

    reference: str

    def __post_init__(self) -> None:
        if not _SECRET.fullmatch(self.reference):
            raise UsageError(f"not a reference to a secret (not shown); expected: {SECRET_FORMS}")

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def reveal(self) -> str:
        """The secret, read now. A newline at the end of a file is not part of it. UsageError when it is not there."""
        kind, _, place = self.reference.removeprefix("secret://").partition("/")
        if kind == "env":
            if place in os.environ:
                return os.environ[place]
            raise UsageError(
                f"the environment variable {place} is not set, which {self.reference} refers to", code=Reason.KEYS_REFUSED
            )
        try:
            return Path("/", place).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise UsageError(f"the file of {self.reference} cannot be read: {reason}", code=Reason.KEYS_REFUSED) from None


def keep_silent(library: str, below: int = logging.INFO) -> None:
    """To be called before a library is given secrets that logs at DEBUG what it is given, or sends, as botocore, py4j and kafka do. Where all of a
    process's loggers are to say so much, its own do not, nor what is `below` a level. Whoever sets a level of its own gets what that says."""
    if (its := logging.getLogger(library)).level == logging.NOTSET:
        its.setLevel(below)
