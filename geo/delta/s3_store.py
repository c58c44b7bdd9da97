"""Lets this process read clusters on S3 by itself, by pyarrow, with the settings of the configuration.

Where those say how to reach the store in a way that Spark alone knows, and where the store does not let this process in, there is no
such store, and Spark is asked. Without keys each library searches the machine for them as it does: variables of the environment,
roles, files of its own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from pyarrow import fs

from geo.config.model import Cluster
from geo.config.secret import Secret
from geo.config.spark_conf import s3_settings
from geo.delta.arrow_store import ArrowStore
from geo.locations import authority_of, storage_of
from geo.text import first_line

log = logging.getLogger(__name__)

_OF_KEYS = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")
_OF_THE_MACHINE = (
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ContainerCredentialsProvider",
    "DefaultCredentialsProvider",
)
_ANONYMOUS = "AnonymousAWSCredentialsProvider"

_KEYS = {"access_key": "access.key", "secret_key": "secret.key", "session_token": "session.token"}
"""By their names for pyarrow: settings of Hadoop's."""

_KNOWN_TO_SPARK = (
    "access.grants.",
    "accesspoint.",
    "assumed.role.",
    "custom.signers",
    "delegation.",
    "encryption.",
    "endpoint.fips",
    "proxy.",
    "requester.pays.",
    "security.credential.",
    "server-side-encryption",
    "signing-algorithm",
)
"""How settings begin that say how the store is reached in a way that is not known here."""

_REGION_OF_AWS = re.compile(r"s3[.-]([a-z0-9-]+)\.amazonaws\.com(\.cn)?")


def store_of(cluster: Cluster) -> ArrowStore | None:
    """The store of a cluster's tables, once it has shown this process what is in their folder; None if it does not, or Spark is to
    read it. Raises UsageError for a secret that is not there."""
    root = cluster.root or ""
    # Several drivers write by a log store that keeps newest commits elsewhere for a while, of which Spark alone knows.
    if not cluster.single_driver or storage_of(root) != "s3a" or not hasattr(fs, "S3FileSystem"):
        return None
    settings = s3_settings(cluster.spark_conf, authority_of(root))
    said = {name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()}
    provider = said.get("aws.credentials.provider", "").strip()  # a list of several is none of these
    provider = provider if "," in provider else provider.rpartition(".")[2]
    if any(name.startswith(_KNOWN_TO_SPARK) for name in said) or provider not in ("", _ANONYMOUS, *_OF_KEYS, *_OF_THE_MACHINE):
        return None
    keys = _KEYS if provider in ("", *_OF_KEYS) else {}
    given = {name: said[setting] for name, setting in keys.items() if said.get(setting)}
    by_path, encrypted = _is_true(said, "path.style.access", False), _is_true(said, "connection.ssl.enabled", True)
    scheme, _, host = said.get("endpoint", "").rpartition("://")
    scheme = scheme.lower() or ("https" if encrypted else "http")
    try:
        files = fs.S3FileSystem(
            **given,
            anonymous=provider == _ANONYMOUS,
            region=said.get("endpoint.region") or _region(host, authority_of(root)),
            scheme=scheme,
            endpoint_override=host or None,
            force_virtual_addressing=bool(host) and not by_path,
        )
        # Raises where nothing is, too: without a bucket nothing would be found ever, and Spark says what that means.
        files.get_file_info(fs.FileSelector(root.partition("://")[2]))
    except (OSError, ValueError) as error:
        log.info("%s is left to Spark: %s", root, first_line(error))
        return None
    return ArrowStore(files)


def _region(host: str, bucket: str) -> str | None:
    """Where nobody says it: as the endpoint's name has it, or as Amazon says of the bucket."""
    if not host:
        return str(fs.resolve_s3_region(bucket))
    found = _REGION_OF_AWS.fullmatch(host)
    return None if found is None else found[1]


def _is_true(said: Mapping[str, str], name: str, default: bool) -> bool:
    return said.get(name, str(default)).strip().lower() == "true"
