"""An S3 API on this machine for tests: moto's, or another server's to which requests are handed on, in a process of its own, with faults that
one asks for and a count of its requests.

`python -m tests.object_store PORT [ENDPOINT]` is that process.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from pyarrow import fs

from geo.cli.demo_store import moto_of_s3

Environment = dict[str, Any]
Application = Callable[[Environment, Callable[..., Any]], Iterable[bytes]]

_CONTROL = "/-/"
_START_S = 60.0
_COUNTED = ("HTTP_X_AMZ_SERVER_SIDE_ENCRYPTION_CUSTOMER_KEY", "HTTP_X_AMZ_REQUEST_PAYER")
"""Headers of requests that are counted, by what WSGI calls them."""

IF_ABSENT = "PUT if absent"
"""The method of a put that has this condition, where any other put is not meant."""

_COMMIT = re.compile(r".*/_delta_log/\d{20}\.json")
_ACCESS_KEY = re.compile(r"Credential=([^/]+)/")

KEY, SECRET = "geo", "correct horse"  # moto takes any


class ObjectStore:
    """The store, without buckets at first: moto, or the server `behind`, an end point. It ends with `close`."""

    def __init__(self, port: int, log: Path, behind: str = "") -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", __name__, str(port), *([behind] if behind else [])]
        with open(log, "wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self._ask("counts")
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"the store does not start:\n{log.read_text()[-3000:]}") from None
                time.sleep(0.1)

    def make_bucket(self, name: str) -> None:
        url = f"{self.endpoint}/{name}"
        request = urllib.request.Request(url, b"", _signed("PUT", url, b""), method="PUT")  # noqa: S310  # our own endpoint
        with urllib.request.urlopen(request):  # noqa: S310
            pass

    def put(self, place: str, folder: Path) -> None:
        """Copy a folder of this machine to `bucket/folder`."""
        files = fs.S3FileSystem(access_key=KEY, secret_key=SECRET, region="eu-west-1", endpoint_override=self.endpoint)
        fs.copy_files(str(folder), place, destination_filesystem=files)

    def fail_one_in(self, count: int) -> None:
        """From now on each so-manieth request is answered with 503; 0: none."""
        self._ask(f"fail/{count}")

    def refuse(self, code: str = "", status: int = 0, methods: str = "", bucket: str = "") -> None:
        """From now on each request, or those with these methods (LIST is one), or to this bucket, is answered as S3 does with this code of an error;
        without one no more."""
        self._ask(f"refuse/{code}/{status}/{methods}/{bucket}")

    def next_of(self, method: str, fault: str, times: int = 1, **more: float) -> None:
        """Of the next requests with this method (IF_ABSENT is one) so many meet a fault: `lost`, carried out and not answered; `late`, carried out
        after `seconds`; `short`, answered with half of what was said to come; `conflict`, refused as S3 does beside another request;
        `denied`, refused for want of a right; `bare`, carried out as if it had no condition; `kept`, of a request to delete, taken, and
        each name is refused. Each further call is for those that come behind them."""
        self._ask(f"next/{method.replace(' ', '+')}/{fault}/{times}/{more.get('seconds', 0)}")

    def kill(self, key: str, pid: int, method: str, behind: int, moment: str, seconds: float = 0) -> None:
        """Kill the process `pid`, whose requests this access key signs, at the request with this method (IF_ABSENT is one; "": any) that comes
        behind so many others: `before` the store takes it, once it was `taken`, or before, and the store takes it so many seconds `later`.
        In no case it is answered."""
        self._ask(f"kill/{key}/{pid}/{method.replace(' ', '+')}/{behind}/{moment}/{seconds}")

    def killed(self, key: str) -> str | None:
        """At which request the process with this access key was killed; None: it was not by now."""
        return cast("str | None", self._ask(f"killed/{key}"))

    def commits(self, key: str) -> list[str]:
        """The commits that were made with this access key."""
        return cast("list[str]", self._ask(f"commits/{key}"))

    def forget_faults(self) -> None:
        """None of those that `next_of` asked for are met any more."""
        self._ask("forget")

    def delay(self, seconds: float) -> None:
        """From now on each request is answered so much later."""
        self._ask(f"delay/{seconds}")

    def go_on(self, seconds: float) -> None:
        """From now on its clock is so many seconds ahead."""
        self._ask(f"clock/{seconds}")

    def takes_only(self, key: str) -> None:
        """From now on each request that another access key signed is answered as S3 does for a key that is not known."""
        self._ask(f"key/{key}")

    def counts(self, key: str = "") -> Counter[str]:
        """How many requests there were by now, by method, those for lists apart, and those that failed. `key`: of those alone that this
        access key signed, by method."""
        return Counter(self._ask(f"counts/{key}"))

    def settings(self, bucket: str) -> dict[str, str]:
        """`spark_conf` of a cluster in a bucket. The keys are in the environment variables GEO_TEST_KEY and GEO_TEST_SECRET."""
        of_bucket = {
            "endpoint": self.endpoint,
            "endpoint.region": "eu-west-1",
            "path.style.access": "true",
            "access.key": "secret://env/GEO_TEST_KEY",
            "secret.key": "secret://env/GEO_TEST_SECRET",
        }
        return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in of_bucket.items()}

    def storage(self) -> dict[str, str]:
        """`storage` of a cluster. The keys are in the environment variables GEO_TEST_KEY and GEO_TEST_SECRET."""
        secrets = {"aws_access_key_id": "secret://env/GEO_TEST_KEY", "aws_secret_access_key": "secret://env/GEO_TEST_SECRET"}
        return self.options() | secrets

    def options(self) -> dict[str, str]:
        """As object_store names them."""
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_region": "eu-west-1",
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
        }

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self.endpoint}{_CONTROL}{what}", timeout=10) as answer:  # noqa: S310
            return json.load(answer)


class _Faulty:
    """The application, some of whose requests fail."""

    def __init__(self, application: Application) -> None:
        self._application, self._lock = application, threading.Lock()
        self._counts: Counter[str] = Counter()
        self._of_key: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._requests, self._one_in = 0, 0
        self._refusal = ("", "0", "", "")
        self._key, self._delay_s, self.ahead_s = "", 0.0, 0.0
        self._next: list[_Fault] = []
        self._deaths: dict[str, _Death] = {}
        self._killed: dict[str, str] = {}
        self._commits: dict[str, list[str]] = {}

    def __call__(self, environment: Environment, start: Callable[..., Any]) -> Iterable[bytes]:
        path = environment["PATH_INFO"]
        if path.startswith(_CONTROL):
            what, *more = path.removeprefix(_CONTROL).replace("+", " ").split("/")
            said: object = self._counts
            if what == "fail":
                self._one_in = int(more[0])
            elif what == "refuse":
                self._refusal = (more[0], more[1], more[2], more[3])
            elif what == "forget":
                self._next.clear()
            elif what == "delay":
                self._delay_s = float(more[0])
            elif what == "clock":
                self.ahead_s = float(more[0])
            elif what == "key":
                self._key = more[0]
            elif what == "next":
                method, kind, times, seconds = more
                self._next += [_Fault(method, kind, float(seconds))] * int(times)
            elif what == "kill":
                key, pid, method, behind, moment, seconds = more
                self._deaths[key] = _Death(int(pid), method, int(behind), moment, float(seconds))
            elif what == "counts" and any(more):
                said = self._of_key[more[0]]
            elif what == "killed":
                said = self._killed.get(more[0])
            elif what == "commits":
                said = self._commits.get(more[0], [])
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(said).encode()]
        with self._lock:
            self._requests += 1
            fails = self._one_in > 0 and self._requests % self._one_in == 0
            is_list = environment["REQUEST_METHOD"] == "GET" and "list-type" in environment.get("QUERY_STRING", "")
            method = "LIST" if is_list else environment["REQUEST_METHOD"]
            is_conditional = method == "PUT" and "HTTP_IF_NONE_MATCH" in environment
            methods = {"", method, *([IF_ABSENT] if is_conditional else [])}
            key = found[1] if (found := _ACCESS_KEY.search(environment.get("HTTP_AUTHORIZATION", ""))) else ""
            self._counts[method] += 1
            self._of_key[key][method] += 1
            self._counts["failed"] += fails
            for header in _COUNTED:
                if header in environment:
                    self._counts[header] += 1
            death = self._death_at(key, methods) if not fails else None
            met = (one for one in self._next if one.method in methods and not fails and death is None)
            fault = next(met, None)
            if fault is not None:
                self._next.remove(fault)
                self._counts[fault.kind] += 1
                self._counts[f"{fault.kind}, if absent"] += is_conditional
        time.sleep(self._delay_s)
        code, status, refused, bucket = self._refusal
        if fails:
            return _refused(environment, start, "503 Slow Down", "SlowDown")
        if code and (not refused or method in refused.split(",")) and (not bucket or path.split("/")[1] == bucket):
            return _refused(environment, start, f"{status} {code}", code)
        if self._key and key != self._key:
            self._counts["of another key"] += 1
            return _refused(environment, start, "403 InvalidAccessKeyId", "InvalidAccessKeyId")
        if is_conditional and _COMMIT.fullmatch(path):
            start = self._noting(key, path, start)
        if death is not None:
            return self._dies(key, death, f"{IF_ABSENT if is_conditional else method} {path}", environment, start)
        if fault is not None:
            return self._met(fault, environment, start)
        return self._application(environment, start)

    def _noting(self, key: str, path: str, start: Callable[..., Any]) -> Callable[..., Any]:
        """`start` of the answer to a commit, which is noted if it is made."""

        def noting(status: str, *more: Any) -> Any:
            if status.startswith("200"):
                self._commits.setdefault(key, []).append(path)
            return start(status, *more)

        return noting

    def _death_at(self, key: str, methods: set[str]) -> _Death | None:
        """The death of the process with this key, if it is due at a request with these methods."""
        if (death := self._deaths.get(key)) is None or death.method not in methods:
            return None
        if death.behind:
            self._deaths[key] = replace(death, behind=death.behind - 1)
            return None
        return self._deaths.pop(key)

    def _dies(
        self, key: str, death: _Death, request: str, environment: Environment, start: Callable[..., Any]
    ) -> Iterable[bytes]:
        environment["wsgi.input"] = io.BytesIO(_content(environment))
        if death.moment == "taken":
            b"".join(self._application(environment, start))
        self._killed[key] = f"{request} ({death})"
        os.kill(death.pid, signal.SIGKILL)
        if death.moment == "later":
            time.sleep(death.seconds)
            b"".join(self._application(environment, start))
        if death.moment == "before":
            start("500 Killed", [])
        return _unanswered(environment)

    def _met(self, fault: _Fault, environment: Environment, start: Callable[..., Any]) -> Iterable[bytes]:
        if fault.kind == "conflict":
            return _refused(environment, start, "409 Conflict", "ConditionalRequestConflict")
        if fault.kind == "denied":
            return _refused(environment, start, "403 Forbidden", "AccessDenied")
        if fault.kind == "bare":
            return self._application(_without_condition(environment), start)
        if fault.kind == "kept":
            keys = re.findall(rb"<Key>.*?</Key>", _content(environment))
            start("200 OK", [("Content-Type", "application/xml")])
            errors = (b"<Error>%s<Code>AccessDenied</Code><Message>Access Denied</Message></Error>" % key for key in keys)
            return [b"<DeleteResult>%s</DeleteResult>" % b"".join(errors)]
        time.sleep(fault.seconds)
        said = self._application(environment, start)
        if fault.kind == "late":
            return said
        content = b"".join(said)
        if fault.kind == "short":
            return [content[: len(content) // 2]]
        return _unanswered(environment)


@dataclass(frozen=True, slots=True)
class _Fault:
    method: str
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _Death:
    pid: int
    method: str
    behind: int
    moment: str
    seconds: float

    def __str__(self) -> str:
        return (
            f"taken {self.seconds:.0f} s later"
            if self.moment == "later"
            else {"before": "not taken"}.get(self.moment, self.moment)
        )


def _content(environment: Environment) -> bytes:
    is_ended = environment.get("wsgi.input_terminated")
    content: bytes = environment["wsgi.input"].read(None if is_ended else int(environment.get("CONTENT_LENGTH") or 0))
    return content


def _unanswered(environment: Environment) -> Iterable[bytes]:
    with suppress(OSError):  # whoever asked is gone
        environment["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return []


def _signed(method: str, url: str, content: bytes) -> dict[str, str]:
    """The headers by which a request is one of who has the key."""
    from botocore import auth, awsrequest, credentials

    asked = awsrequest.AWSRequest(method, url, data=content)
    auth.S3SigV4Auth(credentials.Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(asked)
    return dict(asked.headers)


def _without_condition(environment: Environment) -> Environment:
    """A put as a proxy passes it on that has the key, too."""
    content = _content(environment)
    signed = _signed("PUT", f"http://{environment['HTTP_HOST']}{environment['REQUEST_URI']}", content)
    headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in signed.items()}
    kept = {name: value for name, value in environment.items() if name != "HTTP_IF_NONE_MATCH"}
    return kept | headers | {"wsgi.input": io.BytesIO(content)}


def _refused(environment: Environment, start: Callable[..., Any], status: str, code: str) -> Iterable[bytes]:
    _content(environment)
    start(status, [("Content-Type", "application/xml")])
    return (
        []
        if environment["REQUEST_METHOD"] == "HEAD"
        else [f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()]
    )


def _handed_on(endpoint: str) -> Application:
    """What another server answers."""
    place = urlsplit(endpoint).netloc

    def answer(environment: Environment, start: Callable[..., Any]) -> Iterable[bytes]:
        headers = {
            name.removeprefix("HTTP_").replace("_", "-"): value
            for name, value in environment.items()
            if name.startswith("HTTP_") and name not in ("HTTP_CONNECTION", "HTTP_EXPECT")
        }
        headers |= {"Content-Type": environment["CONTENT_TYPE"]} if environment.get("CONTENT_TYPE") else {}
        content = environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        connection = http.client.HTTPConnection(place)
        try:
            connection.request(environment["REQUEST_METHOD"], environment["REQUEST_URI"], content, headers)
            said = connection.getresponse()
            content = said.read()
        finally:
            connection.close()
        told = [
            (name, value)
            for name, value in said.getheaders()
            if name not in ("Connection", "Transfer-Encoding", "Content-Length")
        ]
        # Of what has no content it is said how much there would be.
        length = said.getheader("Content-Length") or str(len(content))
        start(f"{said.status} {said.reason}", [*told, ("Content-Length", length)])
        return [content]

    return answer


def main() -> None:
    from werkzeug.serving import WSGIRequestHandler, run_simple

    class Handler(WSGIRequestHandler):
        def handle_expect_100(self) -> bool:
            """Say nothing: who asks whether to send its body is told so once, by werkzeug, and not by http.server too."""
            return True

        def date_time_string(self, timestamp: float | None = None) -> str:
            """Also of an answer's Date."""
            return super().date_time_string(time.time() + application.ahead_s if timestamp is None else timestamp)

        def log_request(self, *_: Any) -> None:
            """Say nothing: a tenth of what an answer costs."""

    _signed("PUT", "http://localhost/", b"")  # imports what it takes, before threads do
    application = _Faulty(_handed_on(sys.argv[2]) if len(sys.argv) > 2 else moto_of_s3())
    models = cast("Any", import_module("moto.s3.models"))
    now = models.utcnow
    models.utcnow = lambda: now() + timedelta(seconds=application.ahead_s)
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=Handler)


if __name__ == "__main__":
    main()
