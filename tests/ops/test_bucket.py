"""What the doctor says of a store: what a bucket is set up to do, what its keys may do, and the clock."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from geo.cli.main import main
from geo.coordination.clock import HeldClock
from geo.delta.object_reads import has_any
from geo.delta.object_store import ObjectStore
from geo.delta.store import StorePath
from geo.ops.bucket import look_at
from geo.ops.bucket_settings import BucketSettings, LifecycleRule, Place, ReplicationRule, Unknown, judged
from geo.ops.rights import rights
from geo.ops.symptom import Symptom
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3

GOOD = (LifecycleRule("uploads", "", ends_uploads=True),)
CLOCK = HeldClock(10**9, 10**9, 0, 10**9)
PLACE = Place("cluster eu", "geo/", "eu-west-1", False)


def _judged(place: Place = PLACE, **settings: Any) -> list[Symptom]:
    found: dict[str, Any] = {
        "region": "eu-west-1",
        "versioning": "",
        "lifecycle": GOOD,
        "replication": (),
        "clock": CLOCK,
    } | settings
    return list(judged(BucketSettings(**found), place, {"eu", "us"}))


def _bad(found: list[Symptom]) -> list[tuple[str, str]]:
    return [(one.level, one.what) for one in found if one.level != "ok"]


def test_a_bucket_that_is_set_up_well_has_no_finding() -> None:
    assert _bad(_judged()) == []
    assert len(_judged()) == 6, "each look is told"


@pytest.mark.parametrize("prefix", ["", "geo/", "geo/topics/", "ge"])
@pytest.mark.parametrize(
    ("rule", "does"),
    [
        ({"expires": True}, "expires"),
        ({"moves_to": ("GLACIER",)}, "archives"),
        ({"expires": True, "moves_to": ("DEEP_ARCHIVE",)}, "expires and archives"),
    ],
)
def test_a_rule_that_takes_files_from_below_a_root_is_an_error(prefix: str, rule: dict[str, Any], does: str) -> None:
    (found,) = (one for one in _judged(lifecycle=(*GOOD, LifecycleRule("r", prefix, **rule))) if one.level != "ok")
    assert (found.level, found.where) == ("error", "cluster eu")
    assert found.what.startswith(f"the lifecycle rule r {does} objects below the root")
    assert found.fix.startswith("take geo/ out of it")


@pytest.mark.parametrize(
    "rule",
    [
        LifecycleRule("r", "geo2/", expires=True),
        LifecycleRule("r", "geo-old", expires=True),
        LifecycleRule("r", "", ends_versions=True),
        LifecycleRule("r", ""),
    ],
)
def test_a_rule_of_other_files_is_none(rule: LifecycleRule) -> None:
    assert _bad(_judged(lifecycle=(*GOOD, rule))) == []


@pytest.mark.parametrize(
    "rule", [LifecycleRule("r", "", moves_to=("STANDARD_IA",)), LifecycleRule("r", "", expires=True, has_tags=True)]
)
def test_a_rule_that_may_cost_or_may_take_something_is_a_warning(rule: LifecycleRule) -> None:
    ((level, what),) = _bad(_judged(lifecycle=(*GOOD, rule)))
    assert (level, what[:19]) == ("warn", "the lifecycle rule ")


def test_a_root_that_is_a_whole_bucket_is_touched_by_every_rule() -> None:
    ((level, _),) = _bad(
        _judged(Place("x", "", "eu-west-1", False), lifecycle=(*GOOD, LifecycleRule("r", "logs/", expires=True)))
    )
    assert level == "error"


@pytest.mark.parametrize(
    ("settings", "level", "what"),
    [
        ({"region": "us-east-1"}, "error", "in the region us-east-1, and is asked as one in eu-west-1"),
        ({"versioning": "Enabled"}, "warn", "no lifecycle rule ends them"),
        ({"versioning": "Enabled", "lifecycle": (*GOOD, LifecycleRule("r", "geo/topics/", ends_versions=True))}, "warn", "no lifecycle rule ends"),
        ({"lifecycle": ()}, "warn", "no lifecycle rule ends uploads"),
        ({"lifecycle": (LifecycleRule("r", "geo/topics/", ends_uploads=True),)}, "warn", "no lifecycle rule ends uploads"),
        ({"replication": (ReplicationRule("r", "", "us"),)}, "error", "where a cluster has its root"),
        ({"replication": (ReplicationRule("r", "geo/topics/", "backup"),)}, "warn", "no backup that can be read at every moment"),
        ({"clock": HeldClock(10**9, 10**9, 0, 10**9 - 400 * 10**6)}, "error", "this host's clock is 400 s ahead of the storage's"),
        ({"clock": HeldClock(10**9, 10**9, 0, 10**9 + 400 * 10**6)}, "error", "this host's clock is 400 s behind the storage's"),
        ({"clock": HeldClock(10**9, 10**9, 0, 10**9 + 20 * 10**6)}, "warn", "this host's clock is 20 s behind the storage's"),
        ({"region": Unknown("so")}, "warn", "region is not known: so"),
        ({"versioning": Unknown("so")}, "warn", "keeps old versions is not known: so"),
        ({"lifecycle": Unknown("so")}, "warn", "end unfinished uploads is not known: so"),
        ({"replication": Unknown("so")}, "warn", "into another bucket is not known: so"),
        ({"clock": Unknown("so")}, "warn", "by the store's clock is not known: so"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_not_known_is_one_finding(settings: dict[str, Any], level: str, what: str) -> None:
    ((found, said),) = _bad(_judged(**settings))
    assert found == level
    assert what in said


def test_old_versions_that_a_rule_ends_are_fine() -> None:
    assert _bad(_judged(versioning="Enabled", lifecycle=(*GOOD, LifecycleRule("r", "geo", ends_versions=True)))) == []


# On a store


def _client(s3: S3) -> Any:
    from botocore.session import Session  # a tenth of a second

    return Session().create_client(
        "s3", endpoint_url=s3.endpoint, region_name="eu-west-1", aws_access_key_id=KEY, aws_secret_access_key=SECRET
    )


def _looked_at(s3: S3, bucket: str, root: str = "geo") -> list[Symptom]:
    return list(look_at(ObjectStore(bucket, s3.options()), "cluster eu", f"s3a://{bucket}/{root}", {bucket, "us"}))


def test_the_settings_of_a_bucket_are_asked_of_its_store(s3: S3, bucket: str) -> None:
    client = _client(s3)
    assert [(level, what[:40]) for level, what in _bad(_looked_at(s3, bucket))] == [
        ("warn", "the bucket is in the region us-east-1, a"),
        ("warn", "no lifecycle rule ends uploads that were"),
    ]
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    s3.make_bucket(copies := f"b{uuid.uuid4()}")
    client.put_bucket_versioning(Bucket=copies, VersioningConfiguration={"Status": "Enabled"})
    days = {"Expiration": {"Days": 30}}
    rules = [
        {
            "ID": "all",
            "Status": "Enabled",
            "Filter": {"Prefix": ""},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        },
        {"ID": "topics", "Status": "Enabled", "Filter": {"Prefix": "geo/topics/"}, **days},
        {"ID": "both", "Status": "Enabled", "Filter": {"And": {"Prefix": "geo", "Tags": [{"Key": "k", "Value": "v"}]}}, **days},
        {"ID": "off", "Status": "Disabled", "Filter": {"Prefix": "geo/"}, **days},
        {"ID": "cold", "Status": "Enabled", "Prefix": "geo/", "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]},
        {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "ge"}, "NoncurrentVersionExpiration": {"NoncurrentDays": 3}},
    ]
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    to = {"Bucket": f"arn:aws:s3:::{copies}"}
    replicated = [{"ID": "copy", "Status": "Enabled", "Priority": 1, "Filter": {"Prefix": "geo/"}, "Destination": to}]
    client.put_bucket_replication(Bucket=bucket, ReplicationConfiguration={"Role": "arn:aws:iam::1:role/r", "Rules": replicated})
    found = _bad(_looked_at(s3, bucket))
    assert [(level, what[:48]) for level, what in found[1:]] == [
        ("error", "the lifecycle rule topics expires objects below "),
        ("warn", "the lifecycle rule both expires those with tags "),
        ("error", "the lifecycle rule cold archives objects below t"),
        ("warn", "the replication rule copy copies what is below t"),
    ]
    assert copies in found[-1][1]
    assert {level for level, _ in _bad(_looked_at(s3, bucket, "other"))} == {"warn"}, "of that root nothing is taken"


@pytest.mark.parametrize(
    ("code", "status", "why"),
    [
        ("AccessDenied", 403, "these keys have no right to ask"),
        ("NotImplemented", 501, "the server does not know the call"),
        ("Odd", 400, "the store said Odd"),
    ],
)
def test_what_a_store_does_not_tell_is_not_known(s3: S3, bucket: str, code: str, status: int, why: str) -> None:
    s3.refuse(code, status)
    found = _looked_at(s3, bucket)
    assert {one.level for one in found[1:]} == {"warn"}
    assert all(why in one.what for one in found[1:])
    assert (len(found), found[0].level) == (5, "ok"), "the clock shows in any answer"


def test_a_store_that_does_not_answer_is_asked_once(bucket: str, s3: S3) -> None:
    port = ObjectStore(bucket, s3.options() | {"aws_endpoint_url": "http://127.0.0.1:9"})
    found = list(look_at(port, "cluster eu", f"s3a://{bucket}/geo", set()))
    assert {one.level for one in found} == {"warn"}
    assert all("did not answer" in one.what for one in found)


def _rights(s3: S3, bucket: str, *, writes: bool) -> list[Symptom]:
    root = StorePath(ObjectStore(bucket, s3.options()), f"s3a://{bucket}/geo")
    return list(rights(root, "cluster eu", "geo doctor --write-check eu", writes=writes))


def test_what_keys_may_write_is_tried_by_whoever_asks_for_it(s3: S3, bucket: str) -> None:
    before = s3.counts()
    assert [(one.level, one.what) for one in _rights(s3, bucket, writes=False)] == [
        ("ok", "these keys may list and get; whether they may write was not tried"),
        ("warn", "whether the store keeps put-if-absent is not known: nobody has tried it at this end point"),
    ]
    assert s3.counts()["PUT"] == before["PUT"]
    assert [(one.level, one.what) for one in _rights(s3, bucket, writes=True)] == [
        ("ok", "these keys may list, get, put, put if absent, delete"),
        ("ok", "the store keeps put-if-absent for eight writers at once, and a list shows at once what was put"),
    ]
    assert s3.counts()["PUT"] > before["PUT"]
    assert not has_any(ObjectStore(bucket, s3.options()).s3, f"s3a://{bucket}/geo"), "nothing stays"


@pytest.mark.parametrize(
    ("methods", "verbs"),
    [
        ("PUT", ["put", "put if absent"]),
        ("POST", ["delete"]),
        ("PUT,POST", ["put", "put if absent", "delete"]),
        ("LIST", ["list"]),
        ("GET", ["get"]),
    ],
)
def test_a_right_that_is_missing_is_named_with_its_verb(s3: S3, bucket: str, methods: str, verbs: list[str]) -> None:
    s3.refuse("AccessDenied", 403, methods)
    wrong = [one for one in _rights(s3, bucket, writes=True) if one.level == "error"]
    assert [one.what.partition(" below ")[0] for one in wrong] == [f"cannot {verb}" for verb in verbs]
    for one in wrong:
        assert "\n" not in one.what
        assert "403" in one.what
        assert one.fix.startswith("the right is s3:")


def test_a_name_that_may_not_be_deleted_is_said_to_stay(s3: S3, bucket: str) -> None:
    s3.next_of("POST", "kept", 2)
    found = _rights(s3, bucket, writes=True)
    assert [one.what.partition(" below ")[0] for one in found if one.level == "error"] == ["cannot delete"]
    assert any(one.what.startswith(f"what was put to try it stays: s3a://{bucket}/geo/write-check-") for one in found)


def test_a_store_that_breaks_its_word_is_found_out(s3: S3, bucket: str) -> None:
    s3.next_of("PUT", "bare", 200)
    (found,) = (one for one in _rights(s3, bucket, writes=True) if one.level == "error")
    assert found.what.startswith("the store is not fit for logs: of 8 writers that put one name if it is absent")


def test_the_doctor_tells_it_beside_the_rest(
    s3: S3, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GEO_TEST_KEY", KEY)
    monkeypatch.setenv("GEO_TEST_SECRET", SECRET)
    clusters = {"eu": {"root": f"s3a://{bucket}/geo", "storage": s3.storage()}, "us": {"root": str(tmp_path / "us")}}
    (tmp_path / "geo.yaml").write_text(json.dumps({"version": 1, "clusters": clusters}))
    doctor = ("doctor", "--engine", "native", "--config", str(tmp_path / "geo.yaml"))

    def found(*more: str) -> list[tuple[str, str]]:
        assert main([*doctor, *more, "-o", "json"]) == 0
        return [(one["level"], one["what"]) for one in json.loads(capsys.readouterr().out) if one["where"] == "cluster eu"]

    assert ("ok", "these keys may list and get; whether they may write was not tried") in found()
    assert ("ok", "these keys may list, get, put, put if absent, delete") in found("--write-check", "eu")
    rule = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "geo/"}, "Expiration": {"Days": 30}}
    _client(s3).put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    assert main([*doctor]) == 1
    assert "error cluster eu: the lifecycle rule tidy expires objects below the root" in capsys.readouterr().out
    assert main([*doctor, "--write-check", "us"]) == 2
    assert "what may be written is tried on S3 alone" in capsys.readouterr().err


def test_a_bucket_that_is_not_there_is_one_finding_and_no_right(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GEO_TEST_KEY", KEY)
    monkeypatch.setenv("GEO_TEST_SECRET", SECRET)
    clusters = {"eu": {"root": "s3a://nobody-made-it/geo", "storage": s3.storage()}}
    (tmp_path / "geo.yaml").write_text(json.dumps({"version": 1, "clusters": clusters}))
    doctor = ["doctor", "--engine", "native", "--write-check", "eu", "--config", str(tmp_path / "geo.yaml"), "-o", "json"]
    assert main(doctor) == 1
    (wrong,) = (one for one in json.loads(capsys.readouterr().out) if one["level"] == "error")
    assert "NoSuchBucket" in wrong["what"]
    assert "make the bucket" in wrong["fix"]


def test_keys_that_may_do_nothing_are_nowhere_fine(s3: S3, bucket: str) -> None:
    s3.refuse("AccessDenied", 403)
    for writes in (False, True):
        assert {one.level for one in _rights(s3, bucket, writes=writes)} <= {"error", "warn"}
