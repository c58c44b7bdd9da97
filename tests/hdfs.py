"""A real HDFS for tests: a NameNode and a DataNode from Hadoop's jars, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from importlib.resources import files
from pathlib import Path

from geo.jars import default_folder, ensure_jars, find_java, parse_lock
from geo.testing.world import ClusterPlace

_LOCK = Path(__file__).with_name("hdfs.lock")
_START_S = 120.0


class Hdfs:
    """One below `folder`, at `hdfs://127.0.0.1:PORT`. It ends with `close`."""

    def __init__(self, folder: Path, port: int) -> None:
        self.uri = f"hdfs://127.0.0.1:{port}"
        folder.mkdir(parents=True)
        jars = ensure_jars(default_folder().with_name("hdfs"), parse_lock(_LOCK.read_text()))
        classpath = os.pathsep.join([*map(str, jars), str(files("pyspark") / "jars" / "*")])
        options = (
            "-Xmx768m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            f"-Dtest.build.data={folder}",
            f"-Dhadoop.log.dir={folder}",
        )
        command = [find_java(), *options, "-cp", classpath, "org.apache.hadoop.test.MiniDFSClusterManager"]
        command += ["-datanodes", "1", "-format", "-nnport", str(port), "-writeConfig", str(folder / "started.xml")]
        self._log = folder / "hdfs.log"
        with open(self._log, "wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, start_new_session=True)
        deadline = time.monotonic() + _START_S
        while not (folder / "started.xml").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"HDFS does not start:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.1)

    def below(self, folder: str) -> ClusterPlace:
        """Where clusters of a world are that lie in a folder."""
        return lambda name: f"root: {self.uri}/{folder}/{name}"

    def pause(self) -> None:
        """Nobody is answered until `go_on`."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
