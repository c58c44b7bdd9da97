"""`storage` of clusters: how an object store is reached, said once in the words of object_store, which `deltalake` has as
`storage_options`. Hadoop's settings for Spark are made from it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from geo.config.secret import SECRET_FORMS, Secret
from geo.config.yaml_nodes import suggestion
from geo.errors import UsageError
from geo.text import show

Options = Mapping[str, str | Secret]

_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
SECRETS = ("aws_secret_access_key", "aws_session_token")

_HADOOP = {
    "aws_access_key_id": "access.key",
    "aws_secret_access_key": "secret.key",
    "aws_session_token": "session.token",
    "aws_endpoint_url": "endpoint",
    "aws_region": "endpoint.region",
    "aws_request_payer": "requester.pays.enabled",
    "aws_sse_kms_key_id": "encryption.key",
    "timeout": "connection.timeout",
}
"""Options that have one setting of Hadoop's, behind `fs.s3a.bucket.BUCKET.`, of the same value."""

KNOWN = (
    *_HADOOP,
    "aws_allow_http",
    "aws_server_side_encryption",
    "aws_skip_signature",
    "aws_virtual_hosted_style_request",
)

PROFILE = "aws_profile"
"""Not to be said in `storage`: keys are those of the machine's files for Amazon's programs, by what the environment says of them."""

_ENCRYPTIONS = {"AES256": "AES256", "aws:kms": "SSE-KMS"}
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
    "endpoint.fips",
    "proxy.",
    "security.credential.",
    "server-side-encryption",
    "signing-algorithm",
)
"""How settings of Hadoop begin that say how a store is reached in a way that is not known here."""


def check_options(options: Options) -> None:
    """Raises UsageError for what is no option, for a secret that stands open, and for options that do not go together."""
    for name, value in options.items():
        if name not in (*KNOWN, PROFILE):
            hint = suggestion(name, KNOWN) or f"; allowed: {', '.join(sorted(KNOWN))}"
            raise UsageError(f"storage has no option {show(name)}{hint}")
        if name in SECRETS and not isinstance(value, Secret):
            raise UsageError(f"storage: {name} is a secret, its value (not shown) stands open; expected: {SECRET_FORMS}")
    if ("aws_access_key_id" in options) != ("aws_secret_access_key" in options):
        raise UsageError("storage: aws_access_key_id and aws_secret_access_key belong together")
    if "aws_session_token" in options and "aws_access_key_id" not in options:
        raise UsageError("storage: aws_session_token is of a key; give aws_access_key_id and aws_secret_access_key too")
    if (kind := options.get("aws_server_side_encryption")) is not None and kind not in _ENCRYPTIONS:
        raise UsageError(f"storage: aws_server_side_encryption {show(str(kind))}; allowed: {', '.join(_ENCRYPTIONS)}")
    if "aws_sse_kms_key_id" in options and kind != "aws:kms":
        raise UsageError("storage: aws_sse_kms_key_id is of aws_server_side_encryption: aws:kms")
    endpoint = options.get("aws_endpoint_url")
    if isinstance(endpoint, str) and endpoint.startswith("http://") and not _is_true(options, "aws_allow_http"):
        raise UsageError(f"storage: {endpoint} is not encrypted; to allow that say aws_allow_http: true")


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
        yield "encryption.algorithm", _ENCRYPTIONS[str(kind)]
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
    encrypted = _is_true(settings, "connection.ssl.enabled", "true")
    if isinstance(endpoint := found.get("aws_endpoint_url"), str):
        if "://" not in endpoint:
            endpoint = f"http{'s' if encrypted else ''}://{endpoint}"
        found |= {"aws_endpoint_url": endpoint, "aws_allow_http": str(endpoint.startswith("http://")).lower()}
        found["aws_virtual_hosted_style_request"] = str(not _is_true(settings, "path.style.access")).lower()
    if (algorithm := settings.get("encryption.algorithm")) is not None:
        kinds = {hadoop: kind for kind, hadoop in _ENCRYPTIONS.items()} | {"SSE-S3": "AES256"}
        if (kind := kinds.get(str(algorithm))) is None:
            raise UsageError(f"spark_conf: fs.s3a.encryption.algorithm {algorithm}; allowed: {', '.join(kinds)}")
        found["aws_server_side_encryption"] = kind
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
