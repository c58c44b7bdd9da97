"""How an object store is reached, in three libraries' words."""

from __future__ import annotations

from typing import Any

import pytest

from geo.config.secret import Secret
from geo.config.storage_options import PROFILE, check_options, check_root, hadoop_settings, options_of_hadoop
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
        ({"databricks_workspace_url": "https://h", "databricks_token": TOKEN, "aws_region": "r"}, {"endpoint.region": "r"}),
        ({"aws_endpoint_url": "https://h"}, {"endpoint": "https://h", "path.style.access": "true"}),
        ({"aws_endpoint_url": "https://h", "aws_virtual_hosted_style_request": "true"}, {"endpoint": "https://h"}),
        (
            {"aws_server_side_encryption": "aws:kms", "aws_sse_kms_key_id": "k", "aws_request_payer": "true"},
            {"encryption.algorithm": "SSE-KMS", "encryption.key": "k", "requester.pays.enabled": "true"},
        ),
        ({"aws_server_side_encryption": "aws:kms:dsse"}, {"encryption.algorithm": "DSSE-KMS"}),
        (
            {"aws_server_side_encryption": "sse-c", "aws_sse_customer_key_base64": KEY},
            {"encryption.algorithm": "SSE-C", "encryption.key": KEY},
        ),
        (
            {"proxy_url": "http://proxy.example:3128"},
            {"proxy.host": "proxy.example", "proxy.port": "3128", "proxy.ssl.enabled": "false"},
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
        (
            {"encryption.algorithm": "SSE-C", "encryption.key": KEY},
            {"aws_server_side_encryption": "sse-c", "aws_sse_customer_key_base64": KEY, "aws_sse_kms_key_id": None},
        ),
        ({"proxy.host": "h", "proxy.port": "3128", "proxy.ssl.enabled": "true"}, {"proxy_url": "https://h:3128"}),
        ({"requester.pays.enabled": "true"}, {"aws_request_payer": "true"}),
        ({"connection.timeout": "200000"}, {"timeout": "200000ms"}),
        ({"connection.timeout": "200s"}, {"timeout": "200s"}),
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
        {"proxy.host": "h", "proxy.port": "1", "proxy.username": "u"},
        {"delegation.token.binding": "b"},
        {"encryption.algorithm": "CSE-KMS"},
        {"encryption.algorithm": "SSE-KMS", "encryption.context": "a=b"},
        {"aws.credentials.provider": "com.example.Vault"},
        {"aws.credentials.provider": f"{S3A}SimpleAWSCredentialsProvider,com.example.Vault"},
    ],
)
def test_what_is_known_to_spark_alone_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^spark_conf: fs\.s3a\."):
        options_of_hadoop(settings)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"root_certificate": "x"}, "root_certificate is not taken: a private CA .* SSL_CERT_FILE .*javax.net.ssl.trustStore"),
        ({"allow_invalid_certificates": "true"}, "anybody could answer in the store's name"),
        ({"aws_sse_bucket_key_enabled": "true"}, "bucket's own encryption"),
        ({"aws_role_arn": "a"}, "say it in the environment"),
        ({PROFILE: "prod"}, "say AWS_PROFILE in the environment"),
        ({"aws_server_side_encryption": "sse-c"}, "aws_sse_customer_key_base64 and .* belong together"),
        ({"aws_sse_customer_key_base64": KEY}, "aws_sse_customer_key_base64 and .* belong together"),
        ({"aws_server_side_encryption": "sse-c", "aws_sse_customer_key_base64": "open"}, "is a secret, its value .not shown."),
        ({"aws_sse_kms_key_id": "k", "aws_server_side_encryption": "AES256"}, "is of aws_server_side_encryption: aws:kms"),
        ({"proxy_url": "proxy:3128"}, "expected: http://HOST:PORT"),
        ({"proxy_url": KEY}, "expected: http://HOST:PORT"),
        ({"aws_endpoint_url": "localhost:9000"}, "aws_endpoint_url 'localhost:9000'; expected: https://HOST or"),
        ({"aws_endpoint_url": "https://h/bucket"}, "expected: https://HOST or"),
        ({"databricks_workspace_url": "https://h"}, "databricks_workspace_url and databricks_token belong together"),
        (
            {"databricks_workspace_url": "https://h", "databricks_token": "dapi"},
            "databricks_token is a secret, its value .not shown.",
        ),
        ({"databricks_workspace_url": "http://h", "databricks_token": TOKEN}, "is not encrypted"),
        ({"databricks_workspace_url": "https://h", "databricks_token": TOKEN} | PAIR, "both say which keys are taken; say one"),
        ({"timeout": "30"}, "timeout '30'; expected: a number and its unit"),
        ({"aws_allow_http": "yes"}, "aws_allow_http 'yes'; allowed: true, false"),
    ],
)
def test_what_cannot_be_said_to_all_is_refused_with_the_reason(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=f"^storage: .*{why}"):
        check_options(options)


@pytest.mark.parametrize("name", ["aws_endpoint_url", "proxy_url"])
def test_a_password_in_a_url_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(UsageError) as said:
        check_options({name: "http://me:canary@h:1"})
    assert "not shown" in str(said.value)
    assert "canary" not in str(said.value)


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("s3a:///geo", "names no bucket; expected: s3a://BUCKET/FOLDER"),
        ("/Volumes/prod/geo/eu", "volume .* a catalog and schema"),
        ("dbfs:/Volumes/prod/geo/eu", "volume"),
        ("file:///Volumes/prod/geo/eu", "volume"),
        ("s3a://eu--use1-az4--x-s3/geo", "directory buckets list no names in order"),
        ("s3://eu--use1-az4--xa-s3/geo", "directory buckets list no names in order"),
        ("s3a://arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap/geo", "multi-region access point, .* two buckets"),
        ("s3a://mfzwi23gnjvgw.mrap/geo", "multi-region access point"),
        ("s3a://arn:aws:s3:eu-west-1:123456789012:accesspoint/eu/geo", "its ARN"),
    ],
)
def test_a_place_that_keeps_no_logs_is_refused_with_the_reason(root: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_root(root)


@pytest.mark.parametrize(
    "root", ["/data/Volumes/eu", "/volumes", "s3a://eu-x-s3/geo", "s3a://eu-abcdefg-s3alias/geo", "hdfs://h/x.mrap"]
)
def test_other_places_are_none_of_those(root: str) -> None:
    check_root(root)
