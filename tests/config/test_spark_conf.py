"""Which clusters a setting reaches, and that none takes another's away."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from geo.config.reader import parse
from geo.config.secret import Secret
from geo.config.spark_conf import Conf, check_conf, contradictions, how_to_scope, reaches, s3_settings
from geo.errors import ConfigError, UsageError

EU, US = ("s3a://flights-eu/geo",), ("s3a://flights.us/geo",)
ABFS_EU, ABFS_US = ("abfss://box@eu.dfs.core.windows.net/geo",), ("abfs://box@us.dfs.core.windows.net/geo",)
GS_EU, GS_US = ("gs://eu/geo",), ("gs://us/geo",)
KEY = "fs.s3a.access.key"


@pytest.mark.parametrize(
    ("key", "conf", "locations", "expected"),
    [
        (KEY, {}, EU, True),
        (KEY, {}, ("/data/eu",), False),
        (KEY, {}, ("/Volumes/geo/eu", *EU), True),
        (KEY, {"fs.s3a.bucket.flights-eu.access.key": "k"}, EU, False),
        (KEY, {"fs.s3a.bucket.flights-eu.access.key": "k"}, (*EU, "s3a://checkpoints/eu"), True),
        ("fs.s3a.bucket.flights-eu.access.key", {}, EU, True),
        ("fs.s3a.bucket.flights.us.access.key", {}, US, True),
        ("fs.s3a.bucket.flights-eu.access.key", {}, US, False),
        ("fs.azure.account.key.eu.dfs.core.windows.net", {}, ABFS_EU, True),
        ("fs.azure.account.key.eu.dfs.core.windows.net", {}, ABFS_US, False),
        ("fs.azure.account.auth.type", {}, ABFS_US, True),
        ("fs.azure.account.auth.type", {"fs.azure.account.auth.type.us.dfs.core.windows.net": "OAuth"}, ABFS_US, False),
        ("fs.azure.account.key.eu.dfs.core.chinacloudapi.cn", {}, ABFS_US, False),
        (KEY, {}, ("s3://flights-eu/geo",), True),
        ("fs.gs.project.id", {}, GS_US, True),
        ("fs.gs.project.id", {}, EU, False),
        ("spark.sql.shuffle.partitions", {}, EU, False),
    ],
)
def test_a_setting_reaches_what_it_is_read_for(key: str, conf: Conf, locations: Collection[str], expected: bool) -> None:
    assert reaches(key, conf, locations) is expected


@pytest.mark.parametrize(
    ("eu", "us", "findings"),
    [
        (
            ({KEY: Secret("secret://env/EU")}, EU),
            ({KEY: Secret("secret://env/US")}, US),
            ["eu: fs.s3a.access.key … sets it otherwise"],
        ),
        (({KEY: Secret("secret://env/K")}, EU), ({KEY: Secret("secret://env/K")}, US), []),
        (  # catalogs that do not show where their tables are
            ({KEY: Secret("secret://env/EU")}, ("/Volumes/eu",)),
            ({KEY: Secret("secret://env/US")}, ("/Volumes/us",)),
            ["eu: fs.s3a.access.key … sets it otherwise"],
        ),
        (({}, EU), ({KEY: Secret("secret://env/US")}, US), ["us: fs.s3a.access.key … does not set it"]),
        (({KEY: Secret("secret://env/EU")}, EU), ({}, ("/data/us",)), []),
        (({"fs.s3a.endpoint.region": "x"}, EU), ({"fs.s3a.bucket.flights.us.endpoint.region": "y"}, US), []),
        (({"fs.gs.project.id": "a"}, GS_EU), ({"fs.gs.project.id": "b"}, GS_US), ["eu: fs.gs.project.id … sets it otherwise"]),
        (
            ({"fs.azure.account.auth.type": "OAuth"}, ABFS_EU),
            ({"fs.azure.account.auth.type": "SharedKey"}, ABFS_US),
            ["eu: fs.azure.account.auth.type … sets it otherwise"],
        ),
    ],
)
def test_clusters_do_not_take_each_others_settings_away(
    eu: tuple[Conf, Collection[str]], us: tuple[Conf, Collection[str]], findings: list[str]
) -> None:
    found = [f"{name}: {why.removeprefix('spark_conf ')}" for name, why in contradictions({"eu": eu, "us": us})]
    assert [f"{one.split(' reaches ')[0]} … {one.split(' too, which ')[1].split(';')[0]}" for one in found] == findings


@pytest.mark.parametrize(
    ("key", "locations", "how"),
    [
        (KEY, EU, "write fs.s3a.bucket.flights-eu.access.key"),
        ("fs.azure.account.auth.type", ABFS_EU, "write fs.azure.account.auth.type.eu.dfs.core.windows.net"),
        ("fs.gs.project.id", GS_EU, "say the same in both"),
    ],
)
def test_it_says_how_a_setting_is_scoped(key: str, locations: Collection[str], how: str) -> None:
    assert how_to_scope(key, locations).startswith(how)


def test_a_configuration_in_which_they_do_is_refused_with_its_line() -> None:
    text = """\
version: 1
clusters:
  eu: {root: "s3a://eu/geo", spark_conf: {fs.s3a.endpoint.region: eu-west-1}}
  us: {root: "s3a://us/geo", spark_conf: {fs.s3a.endpoint.region: us-west-1}}
"""
    with pytest.raises(ConfigError) as refused:
        parse(text, path="geo.yaml")
    (finding,) = refused.value.findings
    assert finding == (
        "geo.yaml:3: cluster eu: spark_conf fs.s3a.endpoint.region reaches cluster us too, which sets it otherwise; "
        "write fs.s3a.bucket.eu.endpoint.region, which is of its bucket alone"
    )


def test_a_setting_that_only_the_start_of_a_session_reads_is_refused() -> None:
    with pytest.raises(UsageError, match=r"read only as a session starts; write fs\.s3a\.endpoint"):
        check_conf("spark.hadoop.fs.s3a.endpoint", "http://localhost")


def test_what_is_said_of_a_bucket_goes_before_what_is_said_of_all() -> None:
    conf = {
        "fs.s3a.endpoint": "http://all",
        "fs.s3a.endpoint.region": "x",
        "fs.s3a.bucket.eu.endpoint": "http://eu",
        "fs.s3a.bucket.eu.old.endpoint": "http://old",
        "fs.gs.project.id": "p",
    }
    assert s3_settings(conf, "us") == {"endpoint": "http://all", "endpoint.region": "x"}
    assert s3_settings(conf, "eu") == {"endpoint": "http://eu", "endpoint.region": "x", "old.endpoint": "http://old"}
