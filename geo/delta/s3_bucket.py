"""Asks one bucket of S3, or of what speaks its API, by obstore, with the keys of one cluster.

Only what must not be asked twice in silence is never asked again by the library (`once`). After an answer that was lost a put if absent would say
that another one was there. All else is tried again for RETRIES_S.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from geo.config.secret import keep_silent
from geo.config.storage_options import PROFILE, REQUEST_TIMEOUT, SECRETS
from geo.errors import GeoError
from geo.text import first_line

if TYPE_CHECKING:
    from obstore.store import S3Store

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRIES, RETRIES_S = 6, 60
_BACKOFF = {"init_backoff": timedelta(seconds=0.5), "max_backoff": timedelta(seconds=8), "base": 2}
"""A store that is busy is asked again, and one that does not answer, for some 15 seconds. Whoever runs long tries again by itself then."""

_COPY_TIMEOUT = "10m"
"""Timeout as REQUEST_TIMEOUT, for what a store copies by itself, up to five gigabytes."""

_lock = threading.Lock()

_REQUEST = re.compile(r"Error performing ([A-Z]+) (\S+) ")
_STATUS = re.compile(r"status code: (\d{3} [A-Z][A-Za-z ]*)")
_OF_KEYS = re.compile(r"status code: 40[13]|ExpiredToken|InvalidAccessKeyId|InvalidToken|status code: 400 Bad Request: $")
"""An answer (to HEAD without a code) after which other keys may do."""
_NO_ANSWERS = {
    "no trust": re.compile(r"InvalidCertificate"),
    "no keys": re.compile(r"169\.254\.|[Cc]redential|Invalid encryption header"),
}
"""Patterns that tell why a request was not answered: the store's certificate is not trusted here. What is asked for keys where none are given, or
says that there are none.
"""
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NOT_DELETED = re.compile(r"DeleteObjects request failed for key (.*?): .*\(code: (\w+)\)")
"""Pattern of the words about one of the names that a request was to delete; the request itself was taken."""
NO_END = re.compile(r"status code: 416|non-partial response")
"""Pattern of a store's answer to who asks for the last bytes of an empty file."""
REFUSED = re.compile(r"status code: 4(?!09|12)\d\d")
"""An answer that says that nothing was done."""


def _of_profile() -> Any:
    from obstore.auth.boto3 import Boto3CredentialProvider

    keep_silent("botocore")
    return Boto3CredentialProvider()


@dataclass(eq=False)
class S3Bucket:
    """One bucket, with the keys of one cluster. Raises OSError for whatever the store says: one line, without keys."""

    bucket: str
    said: Mapping[str, str] = field(repr=False)
    """Options as object_store and `deltalake` name them. `timeout` among them is of a request, and PROFILE says that keys are those of the files
    that Amazon's programs have on this machine.
    """
    find_options: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)
    """Finds them again, when a key is refused: it may have been rotated. A task asks it on its own host."""

    @property
    def options(self) -> Mapping[str, str]:
        found = {name: value for name, value in self.said.items() if name not in ("timeout", PROFILE)}
        if PROFILE in self.said:
            keys = _of_profile()()
            found |= {f"aws_{name}": keys[name] for name in ("access_key_id", "secret_access_key")}
            found |= {"aws_session_token": keys["token"]} if keys.get("token") else {}
        return found

    @property
    def given(self) -> tuple[str, Mapping[str, str], Callable[[], Mapping[str, str]] | None]:
        """Arguments that make it again elsewhere, as in a task of Spark's: with the keys that there are now."""
        said = self.said
        if self.find_options is not None:
            with suppress(GeoError):  # they are not there now; those that were found last may still do
                said = self.find_options()
        return self.bucket, dict(said), self.find_options

    @property
    def store(self) -> S3Store:
        return self._with_keys(RETRIES)

    @property
    def once(self) -> S3Store:
        """Asks once: for what must not be asked twice in silence."""
        return self._with_keys(0)

    def into_this(self, bucket: str) -> S3Store:
        """Copies from that bucket into this one. The library names the bucket that it was given as that of the source, and asks where the end
        point says, which is this one's."""
        is_whole = self.said.get("aws_virtual_hosted_style_request") == "true" and self.endpoint is not None
        endpoint = (self.endpoint or f"https://s3.{self.region}.amazonaws.com").rstrip("/")
        at = {
            "aws_endpoint_url": endpoint if is_whole else f"{endpoint}/{self.bucket}",
            "aws_virtual_hosted_style_request": "true",
        }
        return self._with_keys(RETRIES, bucket, at)

    def _with_keys(self, retries: int, bucket: str | None = None, at: dict[str, str] | None = None) -> S3Store:
        """The library's store, with the keys that were found last; `bucket` and `at` of one that copies."""
        with _lock:
            if (made := self._stores.get((retries, bucket))) is None or made[0] is not self.said:
                made = self._stores[retries, bucket] = self.said, self._made(retries, bucket, at or {})
            return made[1]

    @cached_property
    def _stores(self) -> dict[tuple[int, str | None], tuple[Mapping[str, str], S3Store]]:
        return {}

    def _made(self, retries: int, bucket: str | None, at: dict[str, str]) -> S3Store:
        from obstore.store import S3Store

        return S3Store(
            bucket or self.bucket,
            config={name: value for name, value in self.said.items() if name not in ("timeout", PROFILE)} | at,  # type: ignore[arg-type]  # names of settings
            credential_provider=_of_profile() if PROFILE in self.said else None,
            client_options={"timeout": self.said.get("timeout", REQUEST_TIMEOUT) if bucket is None else _COPY_TIMEOUT},
            retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=RETRIES_S), "backoff": _BACKOFF},  # type: ignore[arg-type]  # as it is
        )

    @property
    def region(self) -> str:
        """Region as it is given, or as the environment has it."""
        return self.said.get("aws_region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"

    @property
    def endpoint(self) -> str | None:
        """None: Amazon's, by the region."""
        return self.said.get("aws_endpoint_url")

    def told_us(self) -> int | None:
        """Time of its server, to the second, in microseconds since 1970; None: it does not tell. One request, which needs no keys."""
        if "proxy_url" in self.options:
            return None
        from geo.delta.server_time import server_time_us  # who writes needs none of it

        return server_time_us(self.endpoint or f"https://s3.{self.region}.amazonaws.com")

    def ask(self, question: Callable[[Any], T]) -> T:
        """The answer, with obstore's errors as OSError."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            return self.by_keys(lambda: question(obstore))
        except (FileNotFoundError, BaseError) as error:
            raise self.as_os_error(error) from None

    def by_keys(self, ask: Callable[[], T]) -> T:
        """The answer; once more, if the keys were refused and there are others."""
        from obstore.exceptions import BaseError

        used = self.said
        try:
            return ask()
        except BaseError as error:
            if not (_OF_KEYS.search(str(error)) and self._found_keys(used)):
                raise
        return ask()

    def _found_keys(self, used: Mapping[str, str]) -> bool:
        """Tells whether there are, or may be, other keys than those `used`, which were refused. The library never asks for keys again by itself then."""
        with _lock:
            if self.said is not used:  # somebody else has found them
                return True
            try:
                found = self.said if self.find_options is None else self.find_options()
            except GeoError as error:  # they are not there now; what was asked was refused
                log.info("S3 bucket %s: %s", self.bucket, first_line(error))
                return False
            if found == self.said and PROFILE not in found:
                return False
            self.said = dict(found)
            return True

    def as_os_error(self, error: Exception) -> OSError:
        """In one line, without what the library holds, keys among it. A bucket that is not there is no file that is not there."""
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        text = str(error)
        request, status, code = _REQUEST.search(text), _STATUS.search(text), _CODE.search(text)
        what = "" if request is None else f"{request[1]} {request[2]}: "
        if (kept := _NOT_DELETED.search(text)) is not None:
            what, why = f"DELETE {kept[1]}: ", kept[2]
        elif status is None:
            kind = next((kind for kind, tells in _NO_ANSWERS.items() if tells.search(text)), "no answer")
            why = f"{kind}: {text.partition(chr(10))[0].rpartition(' - ')[2]}"
        else:
            why = f"{status[1]}{f', {code[1]}' if code else ''}"
        for secret in filter(None, map(self.said.get, SECRETS)):
            what, why = what.replace(secret, "…"), why.replace(secret, "…")
        if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
            return FileNotFoundError(f"S3 bucket {self.bucket}: {what}{why}")
        refused = isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or why.startswith(("403 ", "AccessDenied"))
        return (PermissionError if refused else OSError)(f"S3 bucket {self.bucket}: {what}{why}")

    def key(self, path: str) -> str:
        """Key of the bucket for the file at a location."""
        return path.partition("://")[2].partition("/")[2]
