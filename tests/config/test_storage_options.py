"""How an object store is reached, in three libraries' words."""

from __future__ import annotations

from typing import Any

import pytest

from geo.config.secret import Secret
from geo.config.storage_options import PROFILE, check_options, hadoop_settings, options_of_hadoop
from geo.errors import UsageError

KEY, SECRET, TOKEN = (Secret(f"secret://env/{name}") for name in ("KEY", "SECRET", "TOKEN"))
PAIR: dict[str, Any] = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
S3A = "org.apache.hadoop.fs.s3a."


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"aws_region": "eu-west-1"}, {"endpoint.region": "eu-west-1"}),
        (PAIR, {"access.key": KEY, "secret.key": SECRET, "aws.credentials.provider": f"{S3A}SimpleAWSCredentialsProvider"}),
        (
            PAIR | {"aws_session_token": TOKEN},
            {
                "access.key": KEY,
                "secret.key": SECRET,
                "session.token": TOKEN,
                "aws.credentials.provider": f"{S3A}TemporaryAWSCredentialsProvider",
            },
        ),
        ({"aws_skip_signature": "true"}, {"aws.credentials.provider": f"{S3A}AnonymousAWSCredentialsProvider"}),
        ({"aws_endpoint_url": "https://h"}, {"endpoint": "https://h", "path.style.access": "true"}),
        ({"aws_endpoint_url": "https://h", "aws_virtual_hosted_style_request": "true"}, {"endpoint": "https://h"}),
        (
            {"aws_server_side_encryption": "aws:kms", "aws_sse_kms_key_id": "k", "aws_request_payer": "true"},
            {"encryption.algorithm": "SSE-KMS", "encryption.key": "k", "requester.pays.enabled": "true"},
        ),
    ],
)
def test_what_is_said_once_is_said_to_spark_too(options: dict[str, Any], settings: dict[str, Any]) -> None:
    check_options(options)
    assert hadoop_settings(options, "b") == {f"fs.s3a.bucket.b.{name}": value for name, value in settings.items()}


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"connection.maximum": "100", "threads.max": "5"}, {}),
        (
            {"endpoint": "h:9000", "connection.ssl.enabled": "false"},
            {"aws_endpoint_url": "http://h:9000", "aws_allow_http": "true"},
        ),
        (
            {"endpoint": "h", "path.style.access": "true"},
            {"aws_endpoint_url": "https://h", "aws_virtual_hosted_style_request": "false"},
        ),
        ({"access.key": KEY, "secret.key": SECRET}, PAIR),
        (
            {"access.key": KEY, "secret.key": SECRET, "aws.credentials.provider": f"{S3A}AnonymousAWSCredentialsProvider"},
            {"aws_skip_signature": "true"},
        ),
        ({"access.key": KEY, "secret.key": SECRET, "aws.credentials.provider": "x.EnvironmentVariableCredentialsProvider"}, {}),
        ({"aws.credentials.provider": "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"}, {PROFILE: ""}),
        (
            {"encryption.algorithm": "SSE-KMS", "encryption.key": "k"},
            {"aws_server_side_encryption": "aws:kms", "aws_sse_kms_key_id": "k"},
        ),
        ({"encryption.algorithm": "SSE-S3"}, {"aws_server_side_encryption": "AES256"}),
    ],
)
def test_what_spark_was_told_is_understood(settings: dict[str, Any], options: dict[str, Any]) -> None:
    found = options_of_hadoop(settings)
    assert {name: found.get(name) for name in options} == options
    assert ("aws_access_key_id" in found) == ("aws_access_key_id" in options)


@pytest.mark.parametrize(
    "settings",
    [
        {"assumed.role.arn": "a"},
        {"proxy.host": "h"},
        {"delegation.token.binding": "b"},
        {"encryption.algorithm": "SSE-C"},
        {"aws.credentials.provider": "com.example.Vault"},
        {"aws.credentials.provider": f"{S3A}SimpleAWSCredentialsProvider,com.example.Vault"},
    ],
)
def test_what_is_known_to_spark_alone_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^spark_conf: fs\.s3a\."):
        options_of_hadoop(settings)
