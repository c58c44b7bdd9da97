"""`storage` of clusters: how an object store is reached, said once in the words of object_store, which `deltalake` has as
`storage_options`. Hadoop's settings for Spark are made from it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from geo.config.secret import SECRET_FORMS, Secret
from geo.config.yaml_nodes import suggestion
from geo.errors import UsageError
from geo.locations import authority_of, storage_of
from geo.text import show

Options = Mapping[str, str | Secret]

_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
WORKSPACE, WORKSPACE_TOKEN = "databricks_workspace_url", "databricks_token"
"""Options of Unity Catalog, which gives keys for what is below a root; Spark there has its own."""

SECRETS = ("aws_secret_access_key", "aws_session_token", "aws_sse_customer_key_base64", WORKSPACE_TOKEN)

_HADOOP = {
    "aws_access_key_id": "access.key",
    "aws_secret_access_key": "secret.key",
    "aws_session_token": "session.token",
    "aws_endpoint_url": "endpoint",
    "aws_region": "endpoint.region",
    "aws_request_payer": "requester.pays.enabled",
    "timeout": "connection.timeout",
}
"""Options that have one setting of Hadoop's, behind `fs.s3a.bucket.BUCKET.`, of the same value."""

REQUEST_TIMEOUT = "30s"
"""The place where `timeout` says nothing. A request that has no answer by then is tried again; a put if absent is unknown then."""

KNOWN = (
    *_HADOOP,
    "aws_allow_http",
    "aws_server_side_encryption",
    "aws_skip_signature",
    "aws_sse_customer_key_base64",
    "aws_sse_kms_key_id",
    "aws_virtual_hosted_style_request",
    WORKSPACE_TOKEN,
    WORKSPACE,
    "proxy_url",
)

PROFILE = "aws_profile"
"""Not to be said in `storage`: keys are those of the machine's files for Amazon's programs, by what the environment says of them."""

_OF_THE_MACHINES_CA = (
    "a private CA is made known on each machine: SSL_CERT_FILE names its file to this program and to tasks, "
    "-Djavax.net.ssl.trustStore its store to Java"
)
_OF_THE_MACHINES_KEYS = "roles are the machine's: say it in the environment (AWS_…), and no keys here"
REFUSED = {
    "allow_invalid_certificates": f"anybody could answer in the store's name; {_OF_THE_MACHINES_CA}",
    "aws_ca_bundle": _OF_THE_MACHINES_CA,
    "aws_conditional_put": "a commit is always put by If-None-Match: *",
    "aws_container_credentials_relative_uri": _OF_THE_MACHINES_KEYS,
    "aws_role_arn": _OF_THE_MACHINES_KEYS,
    "aws_s3_express": "S3 directory buckets list no names in order, by which newest commits are found",
    "aws_sse_bucket_key_enabled": "Spark cannot say it; switch it on in the bucket's own encryption",
    "aws_web_identity_token_file": _OF_THE_MACHINES_KEYS,
    "proxy_ca_certificate": _OF_THE_MACHINES_CA,
    "proxy_excludes": "proxy_url is of this cluster's bucket alone",
    "root_certificate": _OF_THE_MACHINES_CA,
}
"""Options of object_store that are not taken, and why."""

_KMS = ("aws:kms", "aws:kms:dsse")
_OWN_KEY = "sse-c"
ENCRYPTIONS = {"AES256": "AES256", "aws:kms": "SSE-KMS", "aws:kms:dsse": "DSSE-KMS", _OWN_KEY: "SSE-C"}
_PROXY = re.compile(r"(https?)://([\w.-]+):(\d+)/?")
_ENDPOINT = re.compile(r"https?://[^/\s]+/?")
_TIMEOUT = re.compile(r"\d+(ms|s|m|h)")
_YES_OR_NO = ("aws_allow_http", "aws_request_payer", "aws_skip_signature", "aws_virtual_hosted_style_request")
_USER = re.compile(r"[^/]*//[^/]*@")
"""Beginning of a URL that has a user, and with it a password."""

_VOLUMES = re.compile(r"(dbfs:|file:)?/+Volumes/")
_PROVIDERS = "org.apache.hadoop.fs.s3a."
_OF_KEYS = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")
_OF_THE_MACHINE = (
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ContainerCredentialsProvider",
    "DefaultCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
)
_OF_SPARK_ALONE = (
    "access.grants.",
    "accesspoint.",
    "assumed.role.",
    "custom.signers",
    "delegation.",
    "encryption.context",
    "encryption.cse.",
    "endpoint.fips",
    "proxy.domain",
    "proxy.password",
    "proxy.user",
    "proxy.workstation",
    "security.credential.",
    "server-side-encryption",
    "signing-algorithm",
)
"""Beginnings of settings of Hadoop that say how a store is reached in a way that is not known here."""


def check_options(options: Options) -> None:
    """Raises UsageError for what is no option, for a secret that stands open, and for options that do not go together."""
    for name, value in options.items():
        if name in REFUSED:
            raise UsageError(f"storage: {name} is not taken: {REFUSED[name]}")
        if name == PROFILE and value:
            raise UsageError(
                f"storage: {PROFILE} is not taken: say AWS_PROFILE in the environment, and in spark_conf that "
                "fs.s3a.aws.credentials.provider is software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
            )
        if name not in (*KNOWN, PROFILE):
            hint = suggestion(name, KNOWN) or f"; allowed: {', '.join(sorted(KNOWN))}"
            raise UsageError(f"storage has no option {show(name)}{hint}")
        if name in SECRETS and not isinstance(value, Secret):
            raise UsageError(f"storage: {name} is a secret, its value (not shown) stands open; expected: {SECRET_FORMS}")
    if ("aws_access_key_id" in options) != ("aws_secret_access_key" in options):
        raise UsageError("storage: aws_access_key_id and aws_secret_access_key belong together")
    if "aws_session_token" in options and "aws_access_key_id" not in options:
        raise UsageError("storage: aws_session_token is of a key; give aws_access_key_id and aws_secret_access_key too")
    if (WORKSPACE in options) != (WORKSPACE_TOKEN in options):
        raise UsageError(f"storage: {WORKSPACE} and {WORKSPACE_TOKEN} belong together")
    if WORKSPACE in options and (keys := [name for name in (*_KEYS, "aws_skip_signature") if name in options]):
        raise UsageError(f"storage: {WORKSPACE} and {keys[0]} both say which keys are taken; say one")
    if (kind := options.get("aws_server_side_encryption")) is not None and kind not in ENCRYPTIONS:
        raise UsageError(f"storage: aws_server_side_encryption {show(str(kind))}; allowed: {', '.join(ENCRYPTIONS)}")
    if "aws_sse_kms_key_id" in options and kind not in _KMS:
        raise UsageError("storage: aws_sse_kms_key_id is of aws_server_side_encryption: aws:kms")
    if ("aws_sse_customer_key_base64" in options) != (kind == _OWN_KEY):
        raise UsageError(f"storage: aws_sse_customer_key_base64 and aws_server_side_encryption: {_OWN_KEY} belong together")
    for name in ("aws_endpoint_url", WORKSPACE, "proxy_url"):
        if _USER.match(str(options.get(name, ""))):
            raise UsageError(f"storage: {name} has a user in it (not shown); take it out")
    if "proxy_url" in options and not _PROXY.fullmatch(str(options["proxy_url"])):
        raise UsageError("storage: proxy_url; expected: http://HOST:PORT or https://HOST:PORT")
    if isinstance(timeout := options.get("timeout"), str) and not _TIMEOUT.fullmatch(timeout):
        raise UsageError(f"storage: timeout {show(timeout)}; expected: a number and its unit, of ms, s, m, h")
    for name in _YES_OR_NO:
        if isinstance(said := options.get(name), str) and said.strip().lower() not in ("true", "false"):
            raise UsageError(f"storage: {name} {show(said)}; allowed: true, false")
    for name in ("aws_endpoint_url", WORKSPACE):
        if not isinstance(url := options.get(name), str):
            continue
        if not _ENDPOINT.fullmatch(url):
            raise UsageError(f"storage: {name} {show(url)}; expected: https://HOST or https://HOST:PORT")
        if url.startswith("http://") and not _is_true(options, "aws_allow_http"):
            raise UsageError(f"storage: {url} is not encrypted; to allow that say aws_allow_http: true")


def hadoop_settings(options: Options, bucket: str) -> dict[str, str | Secret]:
    """The settings by which Spark reaches the bucket as these options say."""
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in _hadoop(options)}


def _hadoop(options: Options) -> Iterator[tuple[str, str | Secret]]:
    for option, setting in _HADOOP.items():
        if (value := options.get(option)) is not None:
            yield setting, value
    if "aws_endpoint_url" in options and not _is_true(options, "aws_virtual_hosted_style_request"):
        yield "path.style.access", "true"
    if (kind := options.get("aws_server_side_encryption")) is not None:
        yield "encryption.algorithm", ENCRYPTIONS[str(kind)]
    for name in ("aws_sse_kms_key_id", "aws_sse_customer_key_base64"):
        if name in options:
            yield "encryption.key", options[name]
    if (proxy := _PROXY.fullmatch(str(options.get("proxy_url", "")))) is not None:
        yield "proxy.host", proxy[2]
        yield "proxy.port", proxy[3]
        yield "proxy.ssl.enabled", str(proxy[1] == "https").lower()
    if _is_true(options, "aws_skip_signature"):
        yield "aws.credentials.provider", f"{_PROVIDERS}AnonymousAWSCredentialsProvider"
    elif "aws_session_token" in options:
        yield "aws.credentials.provider", f"{_PROVIDERS}TemporaryAWSCredentialsProvider"
    elif "aws_access_key_id" in options:
        yield "aws.credentials.provider", f"{_PROVIDERS}SimpleAWSCredentialsProvider"


def options_of_hadoop(settings: Options) -> dict[str, str | Secret]:
    """The options that say what these settings do, given by their names behind `fs.s3a.`. Raises UsageError for one that cannot be said so;
    those of speed are left out."""
    for name in settings:
        if name.startswith(_OF_SPARK_ALONE):
            raise UsageError(
                f"spark_conf: fs.s3a.{name} is known to Spark alone, and this program writes S3 by itself; say it in `storage`"
            )
    found = {option: settings[setting] for option, setting in _HADOOP.items() if settings.get(setting)}
    if str(timeout := found.get("timeout", "")).isdigit():
        found["timeout"] = f"{timeout}ms"  # a number alone is milliseconds to Hadoop
    encrypted = _is_true(settings, "connection.ssl.enabled", "true")
    if isinstance(endpoint := found.get("aws_endpoint_url"), str):
        if "://" not in endpoint:
            endpoint = f"http{'s' if encrypted else ''}://{endpoint}"
        found |= {"aws_endpoint_url": endpoint, "aws_allow_http": str(endpoint.startswith("http://")).lower()}
        found["aws_virtual_hosted_style_request"] = str(not _is_true(settings, "path.style.access")).lower()
    if (algorithm := settings.get("encryption.algorithm")) is not None:
        kinds = {hadoop: kind for kind, hadoop in ENCRYPTIONS.items()} | {"SSE-S3": "AES256"}
        if (kind := kinds.get(str(algorithm))) is None:
            raise UsageError(f"spark_conf: fs.s3a.encryption.algorithm {algorithm}; allowed: {', '.join(kinds)}")
        found["aws_server_side_encryption"] = kind
        if key := settings.get("encryption.key"):
            found["aws_sse_customer_key_base64" if kind == _OWN_KEY else "aws_sse_kms_key_id"] = key
    if host := settings.get("proxy.host"):
        if not settings.get("proxy.port"):
            raise UsageError("spark_conf: fs.s3a.proxy.host and fs.s3a.proxy.port belong together")
        secure = _is_true(settings, "proxy.ssl.enabled")
        found["proxy_url"] = f"http{'s' if secure else ''}://{host}:{settings['proxy.port']}"
    provider = str(settings.get("aws.credentials.provider", "")).strip()
    name = provider.rpartition(".")[2]
    if name == "AnonymousAWSCredentialsProvider":
        return {option: value for option, value in found.items() if option not in _KEYS} | {"aws_skip_signature": "true"}
    if name in ("ProfileCredentialsProvider", *_OF_THE_MACHINE) and "," not in provider:
        of_profile = {PROFILE: ""} if name == "ProfileCredentialsProvider" else {}
        return {option: value for option, value in found.items() if option not in _KEYS} | of_profile
    if "," in provider or name not in ("", *_OF_KEYS):
        known = ", ".join(("AnonymousAWSCredentialsProvider", "ProfileCredentialsProvider", *_OF_KEYS, *_OF_THE_MACHINE))
        raise UsageError(
            f"spark_conf: fs.s3a.aws.credentials.provider {show(provider)} is known to Spark alone; allowed: one of {known}"
        )
    return found


def _is_true(options: Options, name: str, default: str = "false") -> bool:
    return str(options.get(name, default)).strip().lower() == "true"


def check_root(root: str) -> None:
    """Raises UsageError for a place in which nobody can keep a region's logs, and says why."""
    if _VOLUMES.match(root):
        raise UsageError(
            "root is in a volume (/Volumes/…), whose mount keeps commits of two hosts apart by nothing; name the storage that the volume "
            "lies on (s3a://…), or a catalog and schema. `checkpoints` may lie in a volume"
        )
    if storage_of(root) != "s3a":
        return
    bucket = authority_of(root)
    if not bucket:
        raise UsageError("root names no bucket; expected: s3a://BUCKET/FOLDER")
    if bucket.endswith(("--x-s3", "--xa-s3")):
        raise UsageError(f"root: {REFUSED['aws_s3_express']}; use a general purpose bucket")
    if ".mrap" in root:
        raise UsageError(
            "root is a multi-region access point, behind which two writers reach two buckets, and each makes the same commit; give each "
            "region a cluster with a bucket of its own, and a link"
        )
    if bucket.startswith("arn:"):
        raise UsageError("root names a bucket by its ARN; write the bucket, or the access point's alias (…-s3alias)")
