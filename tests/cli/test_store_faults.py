"""A store that refuses, hangs or is away, as a person at the command line meets it: one line with what to do, exit code 1, and no secret in
anything that is written anywhere. Without Spark.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import socket
import threading
import traceback
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.cli.main import main
from geo.config import load
from geo.config.secret import keep_silent
from geo.coordination import first_use
from geo.coordination.first_use import admit
from geo.delta import s3_bucket, s3_store
from geo.errors import ConfigError
from geo.journal.cluster import ClusterTables, connect_later, without_spark
from geo.ops.doctor import examine
from geo.ops.regions import Regions
from geo.schemas import OWNERS, REQUESTS
from geo.text import first_line
from tests.another_process import forget
from tests.object_store import ObjectStore as S3
from tests.rows import owner

CANARIES = {f"GEO_CANARY_{name}": f"canary-{name.lower()}-0123456789+/" for name in ("KEY", "SECRET", "TOKEN")}
CANARIES["GEO_CANARY_OWN"] = base64.b64encode(b"canary-of-thirty-two-bytes-in-al").decode()
"""Secrets of a configuration, by the environment variables that hold them."""

STORAGE = {
    "aws_access_key_id": "secret://env/GEO_CANARY_KEY",
    "aws_secret_access_key": "secret://env/GEO_CANARY_SECRET",
    "aws_session_token": "secret://env/GEO_CANARY_TOKEN",
    "aws_server_side_encryption": "sse-c",
    "aws_sse_customer_key_base64": "secret://env/GEO_CANARY_OWN",
    "aws_region": "eu-west-1",
    "aws_allow_http": "true",
}
SPARK_CONF = {
    "access.key": "secret://env/GEO_CANARY_KEY",
    "secret.key": "secret://env/GEO_CANARY_SECRET",
    "session.token": "secret://env/GEO_CANARY_TOKEN",
    "encryption.algorithm": "SSE-C",
    "encryption.key": "secret://env/GEO_CANARY_OWN",
    "endpoint.region": "eu-west-1",
    "path.style.access": "true",
}
LOOKS = (
    ("topics",),
    ("links", "status"),
    ("verify", "--quick"),
    ("doctor",),
    ("doctor", "--write-check", "eu"),
    ("peek", "--cluster", "eu", "--topic", "persistent://a/b/c"),
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, secret in CANARIES.items():
        monkeypatch.setenv(name, secret)
    forget(monkeypatch)
    monkeypatch.setattr(s3_bucket, "RETRIES", 0)


def _configured(folder: Path, bucket: str, endpoint: str, *, by_hadoop: bool = False, **more: str) -> Path:
    by_conf = SPARK_CONF | {"endpoint": endpoint, "connection.ssl.enabled": "false"}
    said: dict[str, object] = (
        {"spark_conf": {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in by_conf.items()}}
        if by_hadoop
        else {"storage": {**STORAGE, "aws_endpoint_url": endpoint, **more}}
    )
    (path := folder / "geo.yaml").write_text(
        json.dumps({"version": 1, "clusters": {"eu": {"root": f"s3a://{bucket}/geo"} | said}})
    )
    return path


def _no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for")


def _tables(path: Path) -> ClusterTables:
    return connect_later(_no_spark, load(path).cluster("eu"))


def _admit(tables: ClusterTables) -> None:
    first_use._admitted.clear()
    admit(tables)


def _read(tables: ClusterTables) -> object:
    return tables.journal(OWNERS).newest()


def _append(tables: ClusterTables) -> None:
    tables.journal(OWNERS).append([owner()])


def _begin_anew() -> None:
    """As a process that has read and put nothing yet."""
    s3_store._port.cache_clear()


def _nobody() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize("by_hadoop", [False, True], ids=["storage", "spark_conf"])
@pytest.mark.parametrize(
    ("code", "status", "methods"),
    [
        ("", 0, ""),
        ("AccessDenied", 403, ""),
        ("SignatureDoesNotMatch", 403, ""),
        ("ExpiredToken", 400, ""),
        ("AccessDenied", 403, "PUT,POST"),
        ("nobody", 0, ""),
    ],
)
def test_no_secret_is_in_anything_that_is_written(
    s3: S3,
    bucket: str,
    tmp_path: Path,
    code: str,
    status: int,
    methods: str,
    by_hadoop: bool,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = _configured(tmp_path, bucket, _nobody() if code == "nobody" else s3.endpoint, by_hadoop=by_hadoop)
    config, tables = load(path), _tables(path)
    written = [repr(config), str(config), repr(config.cluster("eu")), repr(tables), repr(tables.port and tables.port.s3)]
    if code != "nobody":
        s3.refuse(code, status, methods)
    monkeypatch.setattr(logging.getLogger("botocore"), "level", logging.NOTSET)
    with caplog.at_level(logging.DEBUG):
        for do in (_admit, _read, _append, lambda tables: examine(None, config, Regions({"eu": tables}), ["eu"])):
            try:
                written.append(str(do(tables)))
            except Exception as error:
                written += [str(error), repr(error), first_line(error), "".join(traceback.format_exception(error))]
        written += [caplog.text, *(str(vars(record)) for record in caplog.records)]
    for verb in LOOKS:
        for more in (["--verbose"], ["-o", "json"]):
            try:
                main([*verb, "--config", str(path), "--engine", "native", *more])
            except Exception:  # as --verbose lets it through
                written.append(traceback.format_exc())
    written += capfd.readouterr()
    for name, secret in CANARIES.items():
        assert not any(secret in text for text in written), name
    assert len("".join(written)) > 1000


@pytest.mark.parametrize("logger", ["botocore.auth", "py4j.clientserver", "kafka.protocol.parser"])
def test_a_library_that_logs_what_it_is_given_does_not_at_debug_of_all(
    logger: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = logger.partition(".")[0]
    monkeypatch.setattr(logging.getLogger(library), "level", logging.NOTSET)
    with caplog.at_level(logging.DEBUG):
        assert logging.getLogger(logger).isEnabledFor(logging.DEBUG)
        keep_silent(library)
        assert not logging.getLogger(logger).isEnabledFor(logging.DEBUG)
        logging.getLogger(library).setLevel(logging.DEBUG)
        keep_silent(library)
        assert logging.getLogger(logger).isEnabledFor(logging.DEBUG), "of somebody who asks for it"


@pytest.mark.parametrize(
    "cluster",
    [
        "{root: 's3a://b/a', storage: {aws_access_key_id: k, aws_secret_access_key: CANARY}}",
        "{root: 's3a://b/a', storage: {aws_access_key_id: k, aws_secret_access_key: [CANARY]}}",
        "{root: 's3a://b/a', storage: {aws_secret_acess_key: CANARY}}",
        "{root: 's3a://b/a', storage: {aws_session_token: CANARY}}",
        "{root: 's3a://b/a', storage: {aws_server_side_encryption: sse-c, aws_sse_customer_key_base64: CANARY}}",
        "{root: 's3a://b/a', storage: {aws_secret_access_key: 'secret:CANARY'}}",
        "{root: 's3a://b/a', storage: {aws_endpoint_url: 'https://k:CANARY@h'}}",
        "{root: 's3a://b/a', storage: {proxy_url: 'http://k:CANARY@h:1'}}",
        "{root: 's3a://k:CANARY@b/a'}",
        "{root: 's3a://b/a', spark_conf: {fs.s3a.secret.key: CANARY}}",
        "{root: 's3a://b/a', spark_conf: {fs.s3a.secret.key: {CANARY: 1}}}",
        "{root: 's3a://b/a', spark_conf: {fs.s3a.encryption.key: CANARY}}",
        "{root: 's3a://b/a', spark_conf: {fs.s3a.bucket.b.session.token: CANARY}}",
        "{root: 's3a://b/a', spark_conf: {fs.s3a.proxy.password: CANARY}}",
        "{root: 's3a://b/a', spark_conf: {spark.hadoop.fs.s3a.secret.key: CANARY}}",
        "{root: 's3a://b/a', storage: {aws_secret_access_key: \"CANARY}}",
        "{root: 's3a://b/a', storage: {aws_secret_access_key: @CANARY}}",
    ],
)
def test_a_secret_that_stands_open_is_refused_and_not_shown(
    cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "geo.yaml").write_text(f"version: 1\nclusters:\n  eu: {cluster.replace('CANARY', 'canary-0123456789')}\n")
    with pytest.raises(ConfigError) as said:
        load(path)
    assert main(["topics", "--config", str(path)]) == 2
    out, err = capfd.readouterr()
    assert "canary" not in str(said.value) + repr(said.value) + out + err


@pytest.mark.parametrize(
    ("right", "do"),
    [
        ("LIST", "read"),
        ("GET", "read"),
        ("HEAD", "admit"),
        ("PUT", "append"),
        ("PUT", "admit"),
        ("LIST", "admit"),
        ("POST", "admit"),
    ],
)
def test_a_right_that_is_missing_is_one_line_and_all_goes_on_once_it_is_given(
    s3: S3, bucket: str, tmp_path: Path, right: str, do: str
) -> None:
    tables = _tables(_configured(tmp_path, bucket, s3.endpoint))
    _append(tables)
    doing = {"read": _read, "append": _append, "admit": _admit}[do]
    _begin_anew()
    s3.refuse("AccessDenied", 403, right)
    fresh = _tables(_configured(tmp_path, bucket, s3.endpoint))
    with pytest.raises(
        OSError, match=r"^S3 bucket [^\n]*: 403 Forbidden, AccessDenied$|^S3 bucket [^\n]*: 403 Forbidden$"
    ) as said:
        doing(fresh)
    assert first_line(said.value).endswith("; check the credential in the configuration of its cluster, and what it may do there")
    s3.refuse()
    doing(fresh)


@pytest.mark.parametrize("right", ["LIST", "GET"])
def test_a_right_to_look_that_is_missing_is_one_line_and_exit_code_1(
    s3: S3, bucket: str, tmp_path: Path, right: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = _configured(tmp_path, bucket, s3.endpoint)
    _append(_tables(path))
    _begin_anew()
    s3.refuse("AccessDenied", 403, right)
    assert main(["doctor", "--config", str(path), "--engine", "native"]) == 1
    out, err = capfd.readouterr()
    assert out.count("cannot be read") == 1
    assert "403 Forbidden, AccessDenied\n      fix: check the credential" in out
    assert err == ""


@pytest.mark.parametrize("verb", [["topics"], ["links", "status"], ["doctor"]])
def test_an_end_point_that_hangs_is_one_line_and_exit_code_1(
    bucket: str, tmp_path: Path, verb: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        path = _configured(tmp_path, bucket, f"http://127.0.0.1:{hangs.getsockname()[1]}", timeout="100ms")
        assert main([*verb, "--config", str(path), "--engine", "native"]) == 1
    out, err = capfd.readouterr()
    (said,) = re.findall(r"cannot be read.*no answer: .*\n?.*nobody answers there", out)
    assert said.count("\n") == (verb == ["doctor"])
    assert err == ""


def test_a_link_is_asked_to_rest_before_its_source_is_looked_at_which_may_hang(tmp_path: Path) -> None:
    """Who pauses a link of a region that hangs may give up waiting: it is asked by then."""
    asked: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        path = _configured(tmp_path, "away", endpoint)
        document = json.loads(path.read_text())
        document["clusters"]["us"] = {"root": str(tmp_path / "us")}
        document["links"] = [{"source": "eu", "target": "us"}]
        path.write_text(json.dumps(document))
        us = without_spark(load(path).cluster("us"))

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                asked.append(len(us.journal(REQUESTS).newest()))
                connection.close()

        (thread := threading.Thread(target=answer, daemon=True)).start()
        assert main(["links", "pause", "--config", str(path), "--source", "eu", "--target", "us"]) == 0
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert asked, "the source was looked at"
    assert asked[0] == 1
