"""An S3 API on this machine for `geo demo --store s3`: moto's, in memory, in a process of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from geo.errors import GeoError, UsageError

_START_S = 30.0

STORAGE = """\
    storage:
      aws_endpoint_url: {endpoint}
      aws_allow_http: true
      aws_region: eu-west-1
      aws_access_key_id: secret://file/{key}
      aws_secret_access_key: secret://file/{key}
"""


@contextlib.contextmanager
def s3_api(folder: Path, clusters: Iterable[str]) -> Iterator[str]:
    """A bucket for each cluster, as long as this is open: the `clusters` of a configuration. Its key lies in `folder`."""
    if find_spec("moto") is None or find_spec("obstore") is None:
        raise UsageError("the demo's store needs moto and obstore: pip install 'moto[server]' 'delta-geo[s3]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint, key = f"http://127.0.0.1:{port}", folder / "key"
    key.write_text("demo")
    command = [sys.executable, "-m", __name__, str(port)]
    store = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        text = ""
        for name in clusters:
            _make_bucket(f"{endpoint}/demo-{name}", store)
            text += f"  {name}:\n    root: s3a://demo-{name}/geo\n" + STORAGE.format(endpoint=endpoint, key=key.resolve())
        yield text
    finally:
        store.kill()
        store.wait()


def _make_bucket(url: str, store: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT")):  # noqa: S310  # our own end point
                return
        except OSError as error:
            if store.poll() is not None or time.monotonic() > deadline:
                raise GeoError(f"demo: the store on this machine does not start: {error}") from None
            time.sleep(0.1)


def moto_of_s3() -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """A put if absent is one step here; moto looks and puts in two."""
    from moto.moto_server.werkzeug_app import create_backend_app

    # Of S3 alone: to find out which service a request is for takes as long as to answer it.
    application, one_at_a_time = create_backend_app("s3"), threading.Lock()

    def answer(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" not in environment:
            return application(environment, start)
        with one_at_a_time:
            return list(application(environment, start))

    return answer


def _serve(port: int) -> None:
    from werkzeug.serving import run_simple

    run_simple("127.0.0.1", port, moto_of_s3(), threaded=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
