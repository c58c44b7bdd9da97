"""A commit that landed while its answer was lost on the way, as object stores have it: it must not land twice.

The storage is a log store of Delta's in Java, compiled here, that writes and then says that somebody else was quicker.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from geo.jars import ensure_jars
from tests.processes import environment

_JAVA = """
import java.io.File;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

public class LosesAnswers extends io.delta.storage.LocalLogStore {
    public LosesAnswers(Configuration conf) { super(conf); }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        super.write(path, actions, overwrite, conf);
        // Once each time somebody asks for it by making this file, which says of which table, and how the answer is lost.
        File asked = new File(System.getenv("GEO_LOSE"));
        if (!path.getName().endsWith(".json") || !asked.exists()) {
            return;
        }
        String[] words = Files.readString(asked.toPath()).split(" ");
        if (path.toString().contains(words[1]) && asked.delete()) {
            throw words[0].equals("quicker") ? new FileAlreadyExistsException(path.toString()) : new IOException("connection reset");
        }
    }
}
"""

_PROCESS = """
import json, os, sys
from pathlib import Path
from geo.config.cluster import Cluster
from geo.faults import of_spark
from geo.session import session
from geo.journal.cluster import connect
from geo.delta.appending import append_frame
from geo.delta.driver import Driver
from geo.delta.table import Table
from tests.processes import LEAST
from tests.world import World

jars, folder = sys.argv[1], Path(sys.argv[2])
conf = {**LEAST, "spark.jars": jars, "spark.delta.logStore.file.impl": "LosesAnswers"}
spark = session("lost answers", master="local[1]", conf=conf)
key = "spark.databricks.delta.commit.idempotencyCheck.enabled"

lose = Path(os.environ["GEO_LOSE"])

def appended(name):
    table = Table(Driver.of(spark), f"{folder}/{name}", by_path=True, lock=None)
    spark.range(1).write.format("delta").save(table.name)
    lose.write_text(f"quicker {name}")
    append_frame(table, spark.range(10, 13, numPartitions=1), "a record")
    assert not lose.exists()
    records = [commit.user_metadata for commit in table.commits(1, 9)]
    return {"records": records, "rows": table.read().count(), "files": len(table.read().inputFiles())}

def in_world():
    world = World(folder, spark=spark)
    end, found = 3, {}
    world.publish("us", end)
    world.replicate("eu")
    for how in ("quicker", "reset"):
        end += 3
        lose.write_text(f"{how} us/topics")
        try:
            world.publish("us", end)
        except Exception as error:
            assert of_spark(error)
            assert how == "reset"
            world.publish("us", end)
        assert not lose.exists()
        lose.write_text(f"{how} eu/topics")
        (report,) = world.replicate("eu")
        assert not lose.exists()
        report, = world.replicate("eu")
        world.assert_clean()
        found[how] = [world.count(cluster) for cluster in ("us", "eu")] + [report.state.value]
    assert world.arrived("eu") == list(range(end))
    return found

found = {"ours": appended("ours"), "world": in_world()}
spark.conf.set(key, "false")
found["without"] = appended("without")
connect(spark, Cluster("eu", root=str(folder)))
found["given"] = appended("given")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a process printed whose storage loses answers."""
    if shutil.which("javac") is None:
        pytest.skip("no Java compiler here, which makes the storage that loses answers")
    folder = tmp_path_factory.mktemp("losing")
    (folder / "LosesAnswers.java").write_text(_JAVA)
    ours = [str(jar) for jar in ensure_jars()]
    class_path = ":".join([*ours, *map(str, (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar"))])
    subprocess.run(
        [
            "javac",
            "-J-XX:TieredStopAtLevel=1",
            "-J-XX:+UseSerialGC",
            "-cp",
            class_path,
            "-d",
            str(folder / "classes"),
            str(folder / "LosesAnswers.java"),
        ],
        check=True,
    )
    jar = shutil.make_archive(str(folder / "loses"), "zip", folder / "classes")  # which is all that a jar is
    ended = subprocess.run(
        [sys.executable, "-c", _PROCESS, ",".join([*ours, jar]), str(folder / "world")],
        env=environment(GEO_LOSE=str(folder / "lose")),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.spark
def test_a_commit_whose_answer_was_lost_lands_once(found: Any) -> None:
    once = {"records": ["a record"], "rows": 4, "files": 2}
    assert found["ours"] == once, "a session of ours"
    assert found["without"]["records"] == ["a record", "a record"], "this is what the setting is for"
    assert found["given"] == once, "a session that somebody else made without the setting"


@pytest.mark.spark
def test_a_producer_and_a_link_find_out_what_became_of_an_append_whose_answer_was_lost(found: Any) -> None:
    assert found["world"] == {"quicker": [6, 6, "STOPPED"], "reset": [9, 9, "STOPPED"]}
