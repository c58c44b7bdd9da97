"""Remedies that people can type or do: about faults of a storage, a sentence for each, and the verbs that several refusals
name. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from geo.reasons import Reason

_JARS = "Spark has no classes for {0}: add its jars, --jars $(python -m geo.jars --scheme {0}), or session(..., schemes=config.schemes)"

_CHECK_KEYS = "check the credential in the configuration of its cluster, and what it may do there"

NO_SPACE = "No space left on device"

_OF_JAVA = re.compile(r"(java|org|software)\.[\w.$]+(Exception|Error): ")

_OF_SYSTEM = re.compile(r"(\w+Error: )?\[Errno \d+\] ")
"""Beginning of an error that the system gave to Python, here or in a task of Spark's."""

OF_STORE = "S3 bucket "
"""Beginning of an error that an object store gave to this program."""

_REMEDIES: tuple[tuple[str, Reason, str | None], ...] = (
    (r"Class org\.apache\.hadoop\.fs\.s3a\.\S+ not found", Reason.SETUP, _JARS.format("s3a")),
    (r"Class org\.apache\.hadoop\.fs\.azurebfs\.\S+ not found", Reason.SETUP, _JARS.format("abfss")),
    (r"Class org\.apache\.hadoop\.fs\.gs\.\S+ not found", Reason.SETUP, _JARS.format("gs")),
    (r'No FileSystem for scheme "?s3n?"?$', Reason.SETUP, "write s3a:// for S3; only some platforms know it as s3://"),
    (r"No FileSystem for scheme", Reason.SETUP, "add the jar that knows it to Spark, --jars"),
    (r"NoSuchBucket", Reason.NO_BUCKET, None),
    (
        r"Unable to load credentials|NoAwsCredentials|NoAuthWithAWS",
        Reason.KEYS_REFUSED,
        "say in `storage` of its cluster how it is reached",
    ),
    (
        r"ExpiredToken|token (included in the request )?(is|has) expired",
        Reason.KEYS_REFUSED,
        None,
    ),
    (
        r"no trust: ",
        Reason.NO_ANSWER,
        "its certificate is not trusted here; if it is of a private CA, let SSL_CERT_FILE name its file",
    ),
    (r"no keys: ", Reason.KEYS_REFUSED, "give keys in `storage` of its cluster, or let the machine have a role"),
    (r"Status Code: 401|: 401 |InvalidAccessKeyId|SignatureDoesNotMatch", Reason.KEYS_REFUSED, _CHECK_KEYS),
    (r"Status Code: 403|: 403 |: AccessDenied$", Reason.NO_RIGHT, _CHECK_KEYS),
    (
        r"^java\.net\.(ConnectException|NoRouteToHostException)|no answer: ",
        Reason.NO_ANSWER,
        "nobody answers there; if it is a cluster's, check its root and its end point",
    ),
    (r"ChecksumException|page integrity", Reason.DAMAGED, "that file is not what was written: bring it back from a copy"),
    (
        r"UnknownHostException",
        Reason.NO_ANSWER,
        "nobody knows that host; if it is a cluster's, check its root and its end point",
    ),
    (NO_SPACE, Reason.TARGET_DISK_FULL, None),
    (r"Disk quota exceeded", Reason.TARGET_DISK_FULL, "free space in that quota, or let it be raised"),
    (
        r"Read-only file system",
        Reason.NO_RIGHT,
        "that disk is mounted read-only: mount it for writing, or correct that place in the configuration",
    ),
    (
        r"Permission denied|Operation not permitted|AccessDeniedException",
        Reason.NO_RIGHT,
        "let this user read and write there, or correct that place in the configuration",
    ),
)
"""Patterns of what Java or an object store says, each with its code, and what to do about it. None: what its code says."""


def remedy_of(cause: str) -> str | None:
    """Finds what to do about a cause, as Java says it (the class of an exception comes first), or as an object store. None:
    that is not known.
    """
    return next((remedy for _, remedy in _known(cause)), None)


def reason_of_cause(cause: str) -> Reason | None:
    """Its code. None: it is not known, or neither Java nor an object store says it."""
    return next((code for code, _ in _known(cause)), None)


def _known(cause: str) -> Iterator[tuple[Reason, str | None]]:
    if _OF_JAVA.match(cause) or _OF_SYSTEM.match(cause) or OF_STORE in cause or NO_SPACE in cause:
        yield from ((code, remedy or code.do) for pattern, code, remedy in _REMEDIES if re.search(pattern, cause))


def how_to_share(cluster: str, topic: object, subscription: str) -> str:
    """The verb by which a subscription of one region only becomes one of all."""
    named = f"--cluster {cluster} --topic {topic} --subscription {subscription}"
    return f"geo subscriptions set {named} --replicate-subscription-state true"
