"""Keys for a root that Unity Catalog gives: against a stand-in of its interface, and an S3 API that takes one key at a time."""

from __future__ import annotations

import json
import pickle
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from geo.config.cluster import Cluster
from geo.config.secret import Secret
from geo.delta.s3_store import port_of
from geo.errors import RetryableError, UsageError
from tests.object_store import SECRET
from tests.object_store import ObjectStore as S3

TOKEN = "canary-of-a-token"


class Workspace:
    """What it gives, and what it was asked for."""

    def __init__(self) -> None:
        self.key, self.status, self.asked = "first", 200, list[tuple[str, dict[str, Any]]]()
        workspace = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                workspace.asked.append((self.path, body))
                if self.headers["Authorization"] != f"Bearer {TOKEN}" or workspace.status != 200:
                    self._say(workspace.status, {"error_code": "PERMISSION_DENIED", "message": "no EXTERNAL USE LOCATION\non it"})
                    return
                keys = {"access_key_id": workspace.key, "secret_access_key": SECRET, "session_token": "t"}
                self._say(200, {"aws_temp_credentials": keys, "expiration_time": 0, "url": body["url"]})

            def _say(self, status: int, said: dict[str, Any]) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(said).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()  # a stop waits for a look
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("GEO_TEST_TOKEN", TOKEN)
    found = Workspace()
    yield found
    found.server.shutdown()
    found.server.server_close()


def _cluster(s3: S3, workspace: Workspace) -> Cluster:
    bucket = f"b{uuid.uuid4()}"
    s3.make_bucket(bucket)
    said = {name: value for name, value in s3.options().items() if "key" not in name}
    token = Secret("secret://env/GEO_TEST_TOKEN")
    return Cluster(
        "eu", root=f"s3a://{bucket}/geo", storage=said | {"databricks_workspace_url": workspace.url, "databricks_token": token}
    )


def test_keys_are_asked_for_the_root_and_again_when_they_are_refused(s3: S3, workspace: Workspace) -> None:
    cluster = _cluster(s3, workspace)
    port = port_of(cluster)
    assert port is not None
    try:
        s3.takes_only("first")
        port.put(f"{cluster.root}/one", b"x")
        asked = (
            "/api/2.0/unity-catalog/temporary-path-credentials",
            {"url": str(cluster.root).replace("s3a:", "s3:"), "operation": "PATH_READ_WRITE"},
        )
        assert workspace.asked == [asked], "once, for what is below the root"
        workspace.key = "second"
        s3.takes_only("second")
        assert port.get(f"{cluster.root}/one") == b"x"
        assert workspace.asked == [asked, asked]
        sent = pickle.loads(pickle.dumps(port))  # noqa: S301  # our own
        assert sent.get(f"{cluster.root}/one") == b"x", "in a task"
    finally:
        s3.takes_only("")
    assert "databricks" not in str(port.options)


@pytest.mark.parametrize(("status", "error"), [(403, UsageError), (503, RetryableError)])
def test_what_it_does_not_give_is_said_in_one_line_without_the_token(
    s3: S3, workspace: Workspace, status: int, error: type[Exception]
) -> None:
    workspace.status = status
    with pytest.raises(
        error, match=rf"gives no keys for s3://b.*/geo: {status}, PERMISSION_DENIED: no EXTERNAL USE LOCATION"
    ) as said:
        port_of(_cluster(s3, workspace))
    assert TOKEN not in str(said.value)
    assert "\n" not in str(said.value)


def test_who_answers_nothing_can_be_asked_again(s3: S3, workspace: Workspace) -> None:
    cluster = _cluster(s3, workspace)
    workspace.server.shutdown()
    workspace.server.server_close()
    with pytest.raises(RetryableError, match=r"gives no keys for .*: URLError"):
        port_of(cluster)


def test_checkpoints_lie_below_the_root_for_which_keys_are_given(s3: S3, workspace: Workspace) -> None:
    cluster = _cluster(s3, workspace)
    elsewhere = str(cluster.root).replace("/geo", "/checkpoints")
    with pytest.raises(UsageError, match="cluster eu: Unity Catalog gives keys for what is below root; keep checkpoints there"):
        Cluster("eu", root=cluster.root, checkpoints=elsewhere, storage=cluster.storage)
