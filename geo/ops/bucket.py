"""Settings of a bucket, asked by botocore: obstore has no such calls. Only reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any, TypeVar

from geo.config.secret import keep_silent
from geo.coordination.clock import HeldClock
from geo.delta.object_store import ObjectStore
from geo.locations import authority_of
from geo.now import now_us, steady_us
from geo.ops.bucket_settings import BucketSettings, LifecycleRule, Place, ReplicationRule, Unknown, judged
from geo.ops.symptom import Symptom
from geo.times import in_us

T = TypeVar("T")

_CONNECT_S, _ANSWER_S = 5, 10
_NO_RIGHT = ("AccessDenied", "AllAccessDisabled", "403")
_NO_CALL = ("NotImplemented", "MethodNotAllowed", "NotSupported", "501", "405")
_NONE = ("NoSuchLifecycleConfiguration", "ReplicationConfigurationNotFoundError")
"""Answers of a store about a bucket that has no such settings."""


def look_at(port: ObjectStore, where: str, root: str, buckets: set[str]) -> Generator[Symptom, None, HeldClock | None]:
    """Judges the settings of a root's bucket. `buckets`: those in which a cluster of the configuration has its root. Returns
    this host's clock held against the store's; None: the store did not tell.
    """
    if find_spec("botocore") is None:
        what = "the bucket's region, versioning, lifecycle rules and replication, and the store's clock, were not looked at: that takes boto3"
        yield Symptom("warn", where, what, "pip install boto3")
        return None
    key = root.partition("://")[2].partition("/")[2]
    place = Place(where, f"{key}/" if key else "", port.s3.region, port.s3.endpoint is not None)
    found = _Questions(port, authority_of(root), port.s3.region).asked()
    yield from judged(found, place, buckets)
    return found.clock if isinstance(found.clock, HeldClock) else None


class _Questions:
    """Those about one bucket. Of a store that does not answer one, nothing more is asked."""

    def __init__(self, port: ObjectStore, bucket: str, region: str) -> None:
        self._port, self._bucket, self._region = port, bucket, region
        self._silent: Unknown | None = None
        self._clock: HeldClock | Unknown = Unknown("the store did not answer")

    def asked(self) -> BucketSettings:
        return BucketSettings(
            self._ask("get_bucket_location", _region),
            self._ask("get_bucket_versioning", lambda said: str(said.get("Status", ""))),
            self._ask("get_bucket_lifecycle_configuration", lambda said: tuple(map(_lifecycle, _enabled(said["Rules"]))), ()),
            self._ask(
                "get_bucket_replication",
                lambda said: tuple(map(_replication, _enabled(said["ReplicationConfiguration"]["Rules"]))),
                (),
            ),
            self._clock,
        )

    def _ask(self, call: str, read: Callable[[Mapping[str, Any]], T], none: T | None = None) -> T | Unknown:
        from botocore.exceptions import BotoCoreError, ClientError

        if self._silent is not None:
            return self._silent
        before_us = now_us()
        try:
            said = getattr(self._client, call)(Bucket=self._bucket)
        except ClientError as error:
            self._hold(before_us, error.response)
            code = str(error.response.get("Error", {}).get("Code", ""))
            if none is not None and code in _NONE:
                return none
            if code in _NO_RIGHT:
                return Unknown(f"these keys have no right to ask ({code})")
            return Unknown(f"the server does not know the call ({code})" if code in _NO_CALL else f"the store said {code}")
        except BotoCoreError as error:  # its text may hold what a user's program for keys said
            self._silent = Unknown(f"the store did not answer ({type(error).__name__})")
            return self._silent
        self._hold(before_us, said)
        try:
            return read(said)
        except (KeyError, TypeError):
            return Unknown("the server answered with something else")

    def _hold(self, before_us: int, said: Mapping[str, Any]) -> None:
        after_us = now_us()
        with suppress(KeyError, TypeError, ValueError):
            date = parsedate_to_datetime(said["ResponseMetadata"]["HTTPHeaders"]["date"])
            self._clock = HeldClock(before_us, after_us, steady_us(), in_us(date))

    @cached_property
    def _client(self) -> Any:
        """Makes a client with the same keys, from the same places as obstore takes them from, which reads no files of Amazon's
        programs.
        """
        from botocore import UNSIGNED
        from botocore.config import Config
        from botocore.session import Session

        keep_silent("botocore")
        options = self._port.options
        unsigned = options.get("aws_skip_signature", "").lower() == "true"
        virtual = options.get("aws_virtual_hosted_style_request", "").lower() == "true"
        path_style = "aws_endpoint_url" in options and not virtual
        proxy = options.get("proxy_url")
        session = Session()
        session.register_component("data_loader", _loader())
        for variable in ("credentials_file", "config_file"):
            session.set_config_variable(variable, os.devnull)
        return session.create_client(
            "s3",
            region_name=self._region,
            endpoint_url=options.get("aws_endpoint_url"),
            verify=os.environ.get("SSL_CERT_FILE"),
            aws_access_key_id=options.get("aws_access_key_id"),
            aws_secret_access_key=options.get("aws_secret_access_key"),
            aws_session_token=options.get("aws_session_token"),
            config=Config(
                connect_timeout=_CONNECT_S,
                read_timeout=_ANSWER_S,
                retries={"max_attempts": 1},
                proxies={"http": proxy, "https": proxy} if proxy else None,
                signature_version=UNSIGNED if unsigned else None,
                s3={"addressing_style": "path" if path_style else "auto"},
            ),
        )


@cache
def _loader() -> Any:
    """Makes the reader of botocore's descriptions of services, which keeps what it read: a tenth of a second."""
    from botocore.loaders import create_loader

    return create_loader()


def _region(said: Mapping[str, Any]) -> str:
    name = str(said["LocationConstraint"] or "us-east-1")
    return "eu-west-1" if name == "EU" else name


def _enabled(rules: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [rule for rule in rules if rule.get("Status") == "Enabled"]


def _prefix(rule: Mapping[str, Any]) -> str:
    of = rule.get("Filter") or {}
    return str(of.get("Prefix") or of.get("And", {}).get("Prefix") or rule.get("Prefix") or "")


def _lifecycle(rule: Mapping[str, Any]) -> LifecycleRule:
    of, expiration = rule.get("Filter") or {}, rule.get("Expiration") or {}
    return LifecycleRule(
        str(rule.get("ID", "without a name")),
        _prefix(rule),
        has_tags="Tag" in of or bool(of.get("And", {}).get("Tags")),
        expires="Days" in expiration or "Date" in expiration,
        moves_to=tuple(str(one.get("StorageClass")) for one in rule.get("Transitions", ())),
        ends_versions="NoncurrentVersionExpiration" in rule,
        ends_uploads="AbortIncompleteMultipartUpload" in rule,
    )


def _replication(rule: Mapping[str, Any]) -> ReplicationRule:
    name, to = str(rule.get("ID", "without a name")), str(rule["Destination"]["Bucket"]).rpartition(":")[2]
    return ReplicationRule(name, _prefix(rule), to)
