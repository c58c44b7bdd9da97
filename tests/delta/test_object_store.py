"""What an object store answers, and does not: an S3 API that loses answers, is late, refuses and cuts short."""

from __future__ import annotations

import pickle
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geo.config.cluster import Cluster
from geo.delta.disk_store import on_disk
from geo.delta.held_files import HeldFiles, as_listed
from geo.delta.object_store import ObjectStore
from geo.delta.probe import why_unfit
from geo.delta.put_commit import put_commit
from geo.delta.s3_store import port_of
from geo.delta.store import Put, StorePath, WritePath, parquet
from geo.errors import DamagedError, UsageError
from geo.text import first_line
from tests.delta.on_s3 import keys_in_files, table_on
from tests.object_store import SECRET
from tests.object_store import ObjectStore as S3
from tests.waiting import until


@pytest.fixture
def log(s3: S3) -> WritePath:
    return table_on(s3) / "_delta_log"


def _commit(log: WritePath, version: int, who: int = 0) -> bool:
    return put_commit(log, version, [{"commitInfo": {"txnId": str(who)}}])


def test_one_writer_of_each_name_believes_that_it_won_whatever_answers_are_lost(s3: S3, log: WritePath) -> None:
    names, writers = 12, 4
    together = Barrier(writers)

    def commit(who: int) -> list[bool]:
        own = StorePath(ObjectStore(log.store.s3.bucket, s3.options()), log.location)  # type: ignore[attr-defined]  # as another process

        def one(version: int) -> bool:
            if who == 0:
                s3.next_of("PUT", "lost", 2)
            together.wait()
            return _commit(own, version, who)

        return [one(version) for version in range(names)]

    with ThreadPoolExecutor(writers) as pool:
        won = list(pool.map(commit, range(writers)))
    for version, answers in enumerate(zip(*won, strict=True)):
        assert sum(answers) == 1
        assert f'"{answers.index(True)}"' in (log / f"{version:020}.json").get().decode()
    assert s3.counts()["lost"] >= names


def test_what_was_made_and_not_answered_is_made_once(s3: S3, log: WritePath) -> None:
    s3.next_of("PUT", "lost")
    assert log.store.put_if_absent(str(log / "0"), b"ours") is Put.UNKNOWN
    assert (log / "0").get() == b"ours"
    assert log.store.put_if_absent(str(log / "0"), b"theirs") is Put.THERE


def test_a_refusal_beside_another_request_is_asked_again(s3: S3, log: WritePath) -> None:
    """It is said of a name under which there is nothing, as if something was there."""
    s3.next_of("PUT", "conflict")
    assert log.store.put_if_absent(str(log / "0"), b"") is Put.THERE
    assert not (log / "0").is_there()
    s3.next_of("PUT", "conflict")
    assert _commit(log, 1)


def test_what_lands_after_its_time_is_unknown_until_it_is_there(s3: S3) -> None:
    log = table_on(s3, timeout="0.3s") / "_delta_log"
    s3.next_of("PUT", "late", seconds=0.6)
    assert log.store.put_if_absent(str(log / "0"), b"ours") is Put.UNKNOWN
    s3.next_of("PUT", "late", seconds=0.6)
    assert _commit(log, 1)
    until(lambda: log.names() == ["0", f"{1:020}.json"], log.names)


def test_an_answer_that_is_cut_short_is_never_taken_for_the_whole(s3: S3, log: WritePath) -> None:
    content = bytes(range(256)) * 4096
    log.store.put(str(log / "0"), content)
    s3.next_of("GET", "short")
    assert (log / "0").get() == content
    assert s3.counts()["short"] >= 1


def test_a_bucket_that_is_away_is_named(s3: S3) -> None:
    log = StorePath(ObjectStore("none", s3.options()), "s3a://none/t/_delta_log")
    for ask in (lambda: log.store.put(str(log / "0"), b""), lambda: _commit(log, 0), (log / "0").get):
        with pytest.raises(OSError, match=r"S3 bucket none: .*404 Not Found, NoSuchBucket") as said:
            ask()
        assert not isinstance(said.value, FileNotFoundError)
    for after in ("", "0"):
        with pytest.raises(OSError, match=r"S3 bucket none: .*NoSuchBucket"):
            log.names(after)


@pytest.mark.parametrize(
    ("options", "header"),
    [
        (
            {
                "aws_server_side_encryption": "sse-c",
                "aws_sse_customer_key_base64": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
            },
            "HTTP_X_AMZ_SERVER_SIDE_ENCRYPTION_CUSTOMER_KEY",
        ),
        ({"aws_request_payer": "true"}, "HTTP_X_AMZ_REQUEST_PAYER"),
    ],
)
def test_who_pays_and_with_which_key_a_file_is_kept_is_said_with_each_request(
    s3: S3, options: dict[str, str], header: str
) -> None:
    log = table_on(s3, **options) / "_delta_log"
    before = s3.counts()[header]
    log.store.put(str(log / "0"), b"ours")
    assert log.store.put_if_absent(str(log / "0"), b"theirs") is Put.THERE
    assert (log / "0").unchecked() == b"ours"
    assert log.store.head(str(log / "0")) is not None
    log.store.copy(log / "0", str(log / "1"))
    assert s3.counts()[header] - before == 5
    assert "MDEy" not in repr(log.store)


def test_a_proxy_is_asked_in_the_place_of_the_store(s3: S3) -> None:
    log = table_on(s3, aws_endpoint_url="http://store.invalid", proxy_url=s3.endpoint) / "_delta_log"
    with pytest.raises(OSError, match=r"GET http://store\.invalid/.*: 404 Not Found"):
        (log / "0").get()


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId"])
def test_what_is_refused_is_said_in_one_line_without_keys(s3: S3, log: WritePath, code: str) -> None:
    s3.refuse(code, 403)
    try:
        for ask in (lambda: log.store.put(str(log / "0"), b""), lambda: _commit(log, 0), (log / "0").get, log.names):
            with pytest.raises(OSError, match=r"403|ermission|denied") as said:
                ask()
            assert "\n" not in str(said.value)
            assert SECRET not in str(said.value) + repr(log) + repr(log.store)
    finally:
        s3.refuse()


def test_no_right_to_delete_is_said_as_that_and_not_as_no_answer(s3: S3, log: WritePath) -> None:
    """The request is taken, and its answer refuses each name."""
    log.store.put(str(log / "0"), b"")
    s3.next_of("POST", "kept")
    with pytest.raises(PermissionError, match=r"^S3 bucket \S+: DELETE t/_delta_log/0: AccessDenied$") as said:
        (log / "0").delete()
    assert first_line(said.value).endswith("check the credential in the configuration of its cluster, and what it may do there")


def test_a_store_that_keeps_its_word_is_fit(log: WritePath) -> None:
    assert why_unfit(log.parent) is None
    assert list(log.parent.store.names(str(log.parent), "")) == []


def test_a_store_that_passes_the_condition_by_is_refused(s3: S3, log: WritePath) -> None:
    s3.next_of("PUT", "bare", 8)
    assert "of 8 writers that put one name if it is absent 8 were told" in (why_unfit(log) or "")


def test_what_another_has_put_in_its_place_is_read_once_a_list_says_so(s3: S3, log: WritePath) -> None:
    other = StorePath(ObjectStore(log.store.s3.bucket, s3.options()), log.location)  # type: ignore[attr-defined]  # as another process
    place = log / "0.json"
    log.store.put(str(place), b"first")
    assert (log.names(), place.get()) == (["0.json"], b"first")
    before = s3.counts()
    assert place.get() == b"first"
    assert (s3.counts() - before).total() == 0, "a list has just said that it is the same"
    other.store.put(str(place), b"second")
    assert (log.names(), place.get()) == (["0.json"], b"second")
    other.store.delete(str(place))
    assert log.names() == []
    with pytest.raises(FileNotFoundError):
        place.get()


def test_a_file_of_rows_that_is_held_is_not_asked_for_and_when_a_file_came_a_list_has_said(
    s3: S3, log: WritePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geo.delta.held_files.FRESH_S", 60.0)  # of a machine that is busy too
    rows, checkpoint, commit = log.parent / f"{uuid.uuid4()}.parquet", log / "1.checkpoint.parquet", log / "1.json"
    for place in (rows, checkpoint, commit):
        log.store.put(str(place), b"x")
    head = commit.head()
    assert head is not None
    log.names()
    before = s3.counts()
    assert (rows.unchecked(), log.store.came_us(str(commit))) == (b"x", head.modified_us)
    assert not (s3.counts() - before).total()
    assert (checkpoint.unchecked(), commit.unchecked()) == (b"x", b"x")
    assert (s3.counts() - before)["GET"] == 2, "names that another one may put anew"
    assert log.store.came_us(str(log / "2.json")) is None


def test_many_threads_hold_no_more_than_is_said(log: WritePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geo.delta.held_files.HELD_BYTES", 5_000)
    held = HeldFiles()

    def keep(who: int) -> None:
        for at in range(2_000):
            held.keep(f"{at % 7}.json", "tag", b"x" * 1_000)
            held.drop(f"{(at + who) % 7}.json")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(keep, range(8)))
    assert held.size == sum(len(content) for _, content in held.values()) <= 5_000


def test_keys_that_were_rotated_are_found_again_and_those_that_are_not_there_are_a_refusal(s3: S3, log: WritePath) -> None:
    bucket = log.store.s3.bucket  # type: ignore[attr-defined]
    found: list[dict[str, str]] = [s3.options() | {"aws_access_key_id": "second"}]

    def find() -> dict[str, str]:
        if not found:
            raise UsageError("the file of a secret cannot be read")
        return found[0]

    store = ObjectStore(bucket, s3.options(), find)
    s3.takes_only("second")
    try:
        assert store.put_if_absent(str(log / "0"), b"x") is Put.MADE
        assert store.get(str(log / "0")) == b"x"
        s3.takes_only("third")
        found.clear()
        for ask in (lambda: store.get(str(log / "0")), lambda: store.put_if_absent(str(log / "1"), b"x")):
            with pytest.raises(PermissionError, match="InvalidAccessKeyId"):
                ask()
        found.append(s3.options() | {"aws_access_key_id": "third"})
        assert store.get(str(log / "0")) == b"x"
    finally:
        s3.takes_only("")


def test_a_copy_for_a_task_has_the_keys_that_there_are_and_finds_later_ones_by_itself(s3: S3, tmp_path: Path) -> None:
    port = port_of(cluster := keys_in_files(s3, tmp_path, "first"))
    assert port is not None
    for path in tmp_path.iterdir():
        path.write_text("second")
    try:
        s3.takes_only("second")
        sent, before = pickle.loads(pickle.dumps(port)), s3.counts()["of another key"]  # noqa: S301  # our own
        sent.put(f"{cluster.root}/one", b"x")
        assert s3.counts()["of another key"] == before, "it was sent with those that there were"
        s3.takes_only("third")
        for path in tmp_path.iterdir():
            path.write_text("third")
        assert sent.get(f"{cluster.root}/one") == b"x"
        for path in tmp_path.iterdir():
            path.unlink()
        assert pickle.loads(pickle.dumps(sent)).s3.said == sent.s3.said, "those that were found last may still do"  # noqa: S301
    finally:
        s3.takes_only("")


_LARGE = 20 * 1024 * 1024


@pytest.mark.slow
def test_a_large_file_is_sent_while_it_is_written_and_whole_though_keys_are_rotated_meanwhile(s3: S3, log: WritePath) -> None:
    store = ObjectStore(log.store.s3.bucket, s3.options(), lambda: s3.options() | {"aws_access_key_id": "second"})  # type: ignore[attr-defined]
    parts, before, place = [bytes([at]) * 2**20 for at in range(30)], s3.counts(), str(log.parent / "large")
    try:
        with store.create(place) as file:
            for at, part in enumerate(parts):
                file.write(part)
                if at == 20:
                    until(lambda: (s3.counts() - before)["PUT"] >= 2, limit_s=30)
                    s3.takes_only("second")
            assert file.tell() == 30 * 2**20
        assert store.get(place) == b"".join(parts)
        s3.refuse("AccessDenied", 403, "PUT")
        with pytest.raises(PermissionError, match="AccessDenied"), store.create(f"{place}-2") as file:
            for part in parts:
                file.write(part)
        s3.refuse()
        assert not store.is_there(f"{place}-2")
    finally:
        s3.takes_only("")
        s3.refuse()


@pytest.mark.parametrize("size", [10, pytest.param(_LARGE, marks=pytest.mark.slow)])
def test_a_file_crosses_buckets_by_the_copy_of_the_store(s3: S3, size: int) -> None:
    one, other = table_on(s3), table_on(s3)
    one.store.put(str(one / "day=1" / "a"), b"x" * size)
    before = s3.counts()
    other.store.copy(one / "day=1" / "a", str(other / "day=2" / "b"))
    assert dict(s3.counts() - before) == {"PUT": 1}, "nothing of it passes here"
    assert (other / "day=2" / "b").get() == b"x" * size


@pytest.mark.parametrize("size", [10, pytest.param(_LARGE, marks=pytest.mark.slow)])
def test_a_file_that_the_store_may_not_copy_crosses_in_pieces(s3: S3, size: int) -> None:
    one, other = table_on(s3), table_on(s3)
    one.store.put(str(one / "a"), bytes(range(10)) * (size // 10))
    s3.next_of("PUT", "denied")
    for name in ("first", "second"):
        before = s3.counts()
        other.store.copy(one / "a", str(other / name))
        asked = s3.counts() - before
        assert (other / name).get() == (one / "a").get()
        assert (asked["GET"], asked["PUT"] - asked["denied"]) == (1, 3 if size == _LARGE else 1)
    assert not asked["denied"], "it is not asked for again"


@pytest.mark.slow
def test_between_end_points_and_disks_a_file_crosses_in_pieces(s3: S3, tmp_path: Path) -> None:
    here, there, disk = (
        table_on(s3),
        table_on(s3, aws_endpoint_url=s3.endpoint.replace("127.0.0.1", "localhost")),
        on_disk(tmp_path),
    )
    content = bytes(range(256)) * (_LARGE // 256)
    for at, (source, target) in enumerate([(disk, here), (here, there), (there, disk)]):
        if source is disk:
            with disk.store.create(str(disk / "file")) as file:
                file.write(content)
        before = s3.counts()
        target.store.copy(source / "file", str(target / "file"))
        assert (s3.counts() - before)["PUT"] == (0 if target is disk else 3), at
    assert (disk / "file").get() == content
    (disk / "file").check()


@pytest.mark.slow
def test_what_cannot_be_copied_whole_is_not_there(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geo.delta.s3_bucket.RETRIES", 1)
    one, other, disk = table_on(s3), table_on(s3), on_disk(tmp_path)
    for target in (other, disk):
        with pytest.raises(FileNotFoundError, match="no-such-file"):
            target.store.copy(one / "no-such-file", str(target / "file"))
    with disk.store.create(str(disk / "damaged")) as file:
        file.write(b"x" * 5000)
    (tmp_path / "damaged").write_bytes(b"x" * 4999 + b"y")
    with pytest.raises(DamagedError):
        other.store.copy(disk / "damaged", str(other / "file"))
    one.store.put(str(one / "a"), b"x" * _LARGE)
    s3.next_of("PUT", "denied")
    s3.next_of("GET", "short", 20)
    with pytest.raises(OSError, match="S3 bucket"):
        other.store.copy(one / "a", str(other / "file"))
    s3.forget_faults()
    assert not (other / "file").is_there()
    assert not (disk / "file").is_there()


@pytest.mark.slow
def test_of_a_large_file_what_is_read_is_asked_for(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geo.delta.object_reads.WHOLE_BYTES", 1000)
    place, rows = table_on(s3) / "file", pa.table({"n": range(200_000), "text": [f"text {n}" for n in range(200_000)]})
    with place.store.create(str(place)) as file:
        pq.write_table(rows, file, row_group_size=50_000, write_page_checksum=True)
    opened = parquet(place)
    assert opened.read(columns=["n"]).equals(rows.select(["n"]))
    assert opened.read().equals(rows)
    assert opened.read_row_group(2).equals(rows[100_000:150_000])


def test_an_end_point_that_only_the_environment_says_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would be led elsewhere."""
    cluster = Cluster("eu", root="s3a://b/a", storage={"aws_region": "eu-west-1"})
    assert port_of(cluster) is not None
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:9000")
    with pytest.raises(UsageError, match=r"cluster eu: the environment's AWS_ENDPOINT_URL .* say aws_endpoint_url in `storage`"):
        port_of(cluster)
    assert port_of(Cluster("eu", root="s3a://b/a", storage={"aws_endpoint_url": "https://h"})) is not None


@pytest.mark.slow
def test_of_what_a_list_has_just_told_nothing_that_is_held_is_asked_for(s3: S3, log: WritePath) -> None:
    """Commits behind a checkpoint and their checksums: whoever starts reads them."""
    files = [log / f"{version:020}.{kind}" for version in range(110) for kind in ("crc", "json")]
    for file in files:
        log.store.put(str(file), b"{}")
    log.store.names(str(log), "")
    before = s3.counts()
    assert {file.get() for file in files} == {b"{}"}
    assert not (s3.counts() - before).total()


@pytest.mark.parametrize("changed", ["put", "put_if_absent", "create", "copy", "delete", "delete_all"])
def test_a_folder_is_as_a_list_told_until_this_process_changes_something(s3: S3, log: WritePath, changed: str) -> None:
    store, first, gone = log.store, str(log / "1"), str(log / "2")
    assert isinstance(store, ObjectStore)
    for name in (first, gone):
        store.put(name, b"{}")
    before = s3.counts()
    picture = [store.all_below(log.location.rpartition("/")[0])]
    with as_listed(picture):
        assert store.names(str(log), "") == ["1", "2"]
        assert (s3.counts() - before).total() == 1
        another, is_new = str(log / "3"), not changed.startswith("delete")
        match changed:
            case "create":
                with store.create(another) as file:
                    file.write(b"{}")
            case "copy":
                store.copy(StorePath(store, first), another)
            case "delete":
                store.delete(gone)
            case "delete_all":
                store.delete_all([gone])
            case _:
                getattr(store, changed)(another, b"{}")
        assert store.names(str(log), "") == (["1", "2", "3"] if is_new else ["1"])
        assert (store.came_us(another) is not None) == is_new
