"""What people can do: about faults of a storage, a sentence for each, and the verbs that several refusals
name. Pure."""

from __future__ import annotations

import re

_JARS = "Spark has no classes for {0}: add its jars, --jars $(python -m geo.jars --scheme {0}), or session(..., schemes=config.schemes)"

_OF_JAVA = re.compile(r"(java|org|software)\.[\w.$]+(Exception|Error): ")

OF_STORE = "S3 bucket "
"""How an error begins that an object store gave to this program."""

_REMEDIES = (
    (r"Class org\.apache\.hadoop\.fs\.s3a\.\S+ not found", _JARS.format("s3a")),
    (r"Class org\.apache\.hadoop\.fs\.azurebfs\.\S+ not found", _JARS.format("abfss")),
    (r"Class org\.apache\.hadoop\.fs\.gs\.\S+ not found", _JARS.format("gs")),
    (r'No FileSystem for scheme "?s3n?"?$', "write s3a:// for S3; only some platforms know it as s3://"),
    (r"No FileSystem for scheme", "add the jar that knows it to Spark, --jars"),
    (r"NoSuchBucket", "make the bucket, or correct root or checkpoints of its cluster"),
    (
        r"Unable to load credentials|NoAwsCredentials|NoAuthWithAWS",
        "say in `storage` of its cluster how it is reached",
    ),
    (r"ExpiredToken|token (included in the request )?(is|has) expired", "renew the credential that its configuration names"),
    (r"no trust: ", "its certificate is not trusted here; if it is of a private CA, let SSL_CERT_FILE name its file"),
    (r"no keys: ", "give keys in `storage` of its cluster, or let the machine have a role"),
    (
        r"Status Code: 40[13]|: 40[13] |InvalidAccessKeyId|SignatureDoesNotMatch|: AccessDenied$",
        "check the credential in the configuration of its cluster, and what it may do there",
    ),
    (
        r"^java\.net\.(ConnectException|NoRouteToHostException)|no answer: ",
        "nobody answers there; if it is a cluster's, check its root and its end point",
    ),
    (r"ChecksumException|page integrity", "that file is not what was written: bring it back from a copy"),
    (r"UnknownHostException", "nobody knows that host; if it is a cluster's, check its root and its end point"),
)


def remedy_of(cause: str) -> str | None:
    """What to do about a cause, as Java says it: the class of an exception comes first; or as an object store. None where that is not known."""
    if not (_OF_JAVA.match(cause) or OF_STORE in cause):
        return None
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, cause)), None)


def how_to_share(cluster: str, topic: object, subscription: str) -> str:
    """The verb by which a subscription of one region only becomes one of all."""
    named = f"--cluster {cluster} --topic {topic} --subscription {subscription}"
    return f"geo subscriptions set {named} --replicate-subscription-state true"
