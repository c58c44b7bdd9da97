"""`spark_conf` of clusters: which settings there may be, and whom one reaches. Pure.

One session has one value of each setting. One that reaches two clusters has to be the same in both; else whoever is connected last
would take the other's credentials away.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from geo.config.secret import SECRET_FORMS, Secret
from geo.errors import UsageError
from geo.locations import authority_of, storage_of
from geo.text import show

Conf = Mapping[str, str | Secret]

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")
_LOOKS_SECRET = re.compile(r"key|secret|passw|token|credential|(?<![a-z])sas(?![a-z])", re.IGNORECASE)
# fs.s3a.aws.credentials.provider and its like name a class: how instance roles are used, with no secret at all.
_NAMES_A_CLASS = re.compile(r"\.provider(\.type)?\Z")

_S3, _BUCKET, _AZURE, _GOOGLE = "fs.s3a.", "fs.s3a.bucket.", "fs.azure.", "fs.gs."
_OF_AN_ACCOUNT = re.compile(r"\.(dfs|blob)\.[a-z0-9.-]+\Z")
"""End of a setting that is of one account, in whichever cloud."""


def check_conf(key: str, value: str | Secret) -> None:
    """Raises UsageError for a key that is no setting, or is read only as a session starts, and for a secret that stands open."""
    if not _KEY.fullmatch(key):
        raise UsageError(f"{show(key)} is no Spark setting; allowed: ASCII letters, digits and . _ : / @ -")
    if key.startswith("spark.hadoop."):
        raise UsageError(f"{key} is read only as a session starts; write {key.removeprefix('spark.hadoop.')}")
    if isinstance(value, str) and _LOOKS_SECRET.search(key) and not _NAMES_A_CLASS.search(key):
        raise UsageError(f"{key} looks like a secret, its value (not shown) stands open; expected: {SECRET_FORMS}")


def reaches(key: str, conf: Conf, locations: Collection[str]) -> bool:
    """True if a setting says how a cluster with these locations and settings is reached, as far as its key tells."""
    authorities: dict[str, list[str]] = {}
    for at in locations:
        authorities.setdefault(storage_of(at), []).append(authority_of(at))
    buckets = authorities.get("s3a", [])
    if key.startswith(_BUCKET):
        return any(key.startswith(f"{_BUCKET}{bucket}.") for bucket in buckets)
    if key.startswith(_S3):
        return any(f"{_BUCKET}{bucket}.{key.removeprefix(_S3)}" not in conf for bucket in buckets)
    if key.startswith(_AZURE):
        accounts = [authority.rpartition("@")[2] for authority in authorities.get("abfss", [])]
        if _OF_AN_ACCOUNT.search(key):
            return any(key.endswith(f".{account}") for account in accounts)
        return any(f"{key}.{account}" not in conf for account in accounts)
    if key.startswith(_GOOGLE):
        return "gs" in authorities
    return False


def how_to_scope(key: str, locations: Collection[str]) -> str:
    """Advice on what to write so that a setting reaches these locations alone."""
    for at in locations:
        if key.startswith(_S3) and not key.startswith(_BUCKET) and storage_of(at) == "s3a":
            return f"write {_BUCKET}{authority_of(at)}.{key.removeprefix(_S3)}, which is of its bucket alone"
        if key.startswith(_AZURE) and not _OF_AN_ACCOUNT.search(key) and storage_of(at) == "abfss":
            return f"write {key}.{authority_of(at).rpartition('@')[2]}, which is of its account alone"
    return "say the same in both"


def s3_settings(conf: Conf, bucket: str) -> dict[str, str | Secret]:
    """The settings that reach a bucket, by their names behind `fs.s3a.`; what is said of the bucket alone goes first."""
    of_bucket = f"{_BUCKET}{bucket}."
    general = {key.removeprefix(_S3): value for key, value in conf.items() if key.startswith(_S3) and not key.startswith(_BUCKET)}
    return general | {key.removeprefix(of_bucket): value for key, value in conf.items() if key.startswith(of_bucket)}


def contradictions(clusters: Mapping[str, tuple[Conf, Collection[str]]]) -> Iterator[tuple[str, str]]:
    """Settings that reach a cluster which does not say the same, by the names of clusters with their settings and locations. The name of the one
    that is to change, and why. A pair is told once."""
    told: set[tuple[str, frozenset[str]]] = set()
    for name, (conf, locations) in clusters.items():
        for key, value in conf.items():
            for other, (others, there) in clusters.items():
                pair = (key, frozenset((name, other)))
                if (
                    other == name
                    or pair in told
                    or others.get(key) == value
                    or not (key in others or reaches(key, others, there))
                ):
                    continue
                told.add(pair)
                says = "sets it otherwise" if key in others else "does not set it"
                yield name, f"spark_conf {key} reaches cluster {other} too, which {says}; {how_to_scope(key, locations)}"
