"""geo.jars: the lock file, and that a jar which is not the pinned one is neither used nor left behind. No network."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest

from geo import jars
from geo.errors import SetupError
from geo.jars import Jar, ensure_jars, locked_jars, main, parse_lock

GOOD = {"one": b"the first jar", "two": b"the second jar"}
LOCK = tuple(Jar("org.example", name, "1.0", hashlib.sha256(data).hexdigest()) for name, data in GOOD.items())


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "jars"


def put(folder: Path, **content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        (folder / f"{name}-1.0.jar").write_bytes(data)


def java_that_serves(home: Path, monkeypatch: pytest.MonkeyPatch, **content: bytes) -> None:
    """A `java` that answers as Ivy does, without a network: it puts files where -retrieve says."""
    served = home / "served"
    put(served, **content)
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'while [ $# -gt 0 ]; do [ "$1" = -retrieve ] && target=${2%/*}; shift; done\n'
        f'cp {served}/*.jar "$target" || exit 1\n'
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(home))


def test_the_lock_file_pins_the_delta_of_our_delta_spark() -> None:
    from importlib.metadata import version

    pinned = {jar.artifact: jar for jar in locked_jars()}
    assert set(pinned) == {"delta-spark_4.2_2.13", "delta-storage"}
    assert {jar.version for jar in pinned.values()} == {version("delta-spark")}


def test_each_spark_has_the_same_delta_built_for_it_and_what_is_not_there_for_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for spark in jars.SPARKS:
        assert {jar.artifact for jar in locked_jars((), spark)} == {f"delta-spark_{spark}_2.13", "delta-storage"}
    assert len({jar.version for spark in jars.SPARKS for jar in locked_jars((), spark)}) == 1
    with pytest.raises(SetupError, match=r"this is Spark 3\.5: delta-geo runs on Spark 4\.0, 4\.1 and 4\.2"):
        locked_jars((), "3.5")
    with pytest.raises(
        SetupError, match=r"of abfss, s3a delta-geo has no jars for Spark 4\.1, only for Spark 4\.2: start Spark yourself"
    ):
        locked_jars({"s3a", "abfss", "hdfs"}, "4.1")
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "jars/spark-core_2.12-3.5.1-amzn-0.jar").touch()
    assert jars.spark_here() == "3.5"


def test_a_lock_file_has_comments_and_one_jar_a_line() -> None:
    sha = "a" * 64
    assert parse_lock(f"# why\n\norg.example:one:1.0 {sha.upper()}  # note\n") == (Jar("org.example", "one", "1.0", sha),)


def test_jars_of_a_storage_are_those_below_its_schemes() -> None:
    sha = "a" * 64
    one, two, three = parse_lock(
        f"org.example:one:1 {sha}\n[s3a] \norg.example:two:1 {sha}\n\n[abfs abfss spark-4.2]  \norg.example:three:1 {sha}\n"
    )
    assert (one.schemes, two.schemes, three.schemes) == ((), ("s3a",), ("abfs", "abfss"))
    assert (one.sparks, two.sparks, three.sparks) == ((), (), ("4.2",))
    always = {jar.artifact for jar in locked_jars()}
    assert always == {"delta-spark_4.2_2.13", "delta-storage"}
    assert {"hadoop-aws", "s3"} <= {jar.artifact for jar in locked_jars({"s3a", "hdfs"})} - always
    assert {jar.artifact for jar in locked_jars({"abfss", "gs"})} - always == {
        "hadoop-azure",
        "HdrHistogram",
        "wildfly-openssl",
        "hadoop-gcp",
    }


@pytest.mark.parametrize("line", ["org.example:one:1.0", "org.example:one " + "a" * 64, "org.example:one:1.0 abc"])
def test_a_line_without_coordinates_or_sum_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(SetupError, match="line 2"):
        parse_lock(f"# first\n{line}\n")


@pytest.mark.usefixtures("no_java")
def test_present_jars_need_neither_java_nor_network(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder, **GOOD)
    assert ensure_jars(folder, LOCK) == [folder / "one-1.0.jar", folder / "two-1.0.jar"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("no_java")
def test_a_missing_jar_without_java_says_so_and_makes_nothing(folder: Path) -> None:
    with pytest.raises(SetupError, match=r"no Java.*JAVA_HOME"):
        ensure_jars(folder, LOCK)
    assert not folder.exists()


@pytest.mark.usefixtures("no_java")
def test_a_present_jar_with_another_sum_is_refused_and_not_deleted(folder: Path) -> None:
    put(folder, one=GOOD["one"], two=b"something else")
    found = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(SetupError, match=f"two-1.0.jar.*expected SHA-256 {LOCK[1].sha256}, found {found}.*Delete"):
        ensure_jars(folder, LOCK)
    assert (folder / "two-1.0.jar").read_bytes() == b"something else"


def test_only_what_is_missing_is_downloaded_and_said_in_one_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java_that_serves(tmp_path / "java", monkeypatch, two=GOOD["two"])
    put(folder, one=GOOD["one"])
    assert [path.read_bytes() for path in ensure_jars(folder, LOCK)] == list(GOOD.values())
    assert sorted(path.name for path in folder.iterdir()) == ["one-1.0.jar", "two-1.0.jar"]
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "org.example:two:1.0" in err
    assert "org.example:one" not in err


def test_a_download_with_a_wrong_sum_leaves_nothing_behind(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_that_serves(tmp_path / "java", monkeypatch, one=GOOD["one"], two=b"tampered")
    found = hashlib.sha256(b"tampered").hexdigest()
    with pytest.raises(SetupError, match=f"org.example:two:1.0.*expected SHA-256 {LOCK[1].sha256}, found {found}"):
        ensure_jars(folder, LOCK)
    assert list(folder.iterdir()) == []  # not even the good one: all of a download or none of it


def test_a_download_that_ends_well_without_the_jar_is_an_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_serves(tmp_path / "java", monkeypatch, one=GOOD["one"])
    with pytest.raises(SetupError, match=r"could not download org\.example:two:1\.0"):
        ensure_jars(folder, LOCK)
    assert list(folder.iterdir()) == []


def test_the_folder_is_the_configured_one_else_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEO_JARS", str(tmp_path / "mine"))
    assert jars.default_folder() == tmp_path / "mine"
    monkeypatch.delenv("GEO_JARS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.default_folder() == tmp_path / "delta-geo" / "jars"


@pytest.mark.usefixtures("no_java")
def test_the_command_prints_paths_for_jars_or_an_error_with_its_exit_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text("\n".join(f"{jar.coordinates} {jar.sha256}" for jar in LOCK))
    monkeypatch.setattr(jars, "LOCK_FILE", lock)
    monkeypatch.setenv("GEO_JARS", str(folder))
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("error: no Java")
    put(folder, **GOOD)
    assert main([]) == 0
    assert capsys.readouterr().out == f"{folder}/one-1.0.jar,{folder}/two-1.0.jar\n"
