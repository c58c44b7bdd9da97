"""A commit that landed while its answer was lost on the way, as object stores have it: it must not land twice.

The storage is a log store of Delta's in Java, compiled here, that writes and then says that somebody else was quicker.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from geo.jars import ensure_jars

_JAVA = """
import java.io.File;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

public class LosesAnswers extends io.delta.storage.LocalLogStore {
    public LosesAnswers(Configuration conf) { super(conf); }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        super.write(path, actions, overwrite, conf);
        // Once each time somebody asks for it by making this file.
        if (path.getName().endsWith(".json") && new File(System.getenv("GEO_LOSE")).delete()) {
            throw new FileAlreadyExistsException(path.toString());
        }
    }
}
"""

_PROCESS = """
import json, os, sys
from pathlib import Path
from geo.config_tree import Cluster
from geo.log.process import this_process
from geo.log.table import Table
from geo.log.tables import ClusterTables
from geo.session import session

jars, folder = sys.argv[1:]
conf = {"spark.jars": jars, "spark.delta.logStore.file.impl": "LosesAnswers", "spark.sql.shuffle.partitions": "1"}
spark = session("lost answers", master="local[1]", conf=conf)
key = "spark.databricks.delta.commit.idempotencyCheck.enabled"

def appended(name):
    table = Table(spark, f"{folder}/{name}", by_path=True, lock=None, me=this_process(0))
    spark.range(1).write.format("delta").save(table.name)
    Path(os.environ["GEO_LOSE"]).touch()
    table.append(spark.range(10, 13, numPartitions=1), "a record")
    assert not Path(os.environ["GEO_LOSE"]).exists()
    records = [commit.user_metadata for commit in table.commits(1, 9)]
    return {"records": records, "rows": table.read().count(), "files": len(table.read().inputFiles())}

found = {"ours": appended("ours")}
spark.conf.set(key, "false")
found["without"] = appended("without")
ClusterTables(spark, Cluster("eu", root=folder))
found["given"] = appended("given")
print(json.dumps(found))
"""


@pytest.mark.spark
def test_a_commit_whose_answer_was_lost_lands_once(tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("no Java compiler here, which makes the storage that loses answers")
    (tmp_path / "LosesAnswers.java").write_text(_JAVA)
    classes = Path(pyspark.__file__).parent / "jars"
    ours = [str(jar) for jar in ensure_jars()]
    class_path = ":".join([*ours, *map(str, classes.glob("hadoop-client-api-*.jar"))])
    subprocess.run(["javac", "-cp", class_path, "-d", str(tmp_path / "classes"), str(tmp_path / "LosesAnswers.java")], check=True)
    jar = tmp_path / "loses.jar"
    subprocess.run(["jar", "cf", str(jar), "-C", str(tmp_path / "classes"), "."], check=True)

    ended = subprocess.run(
        [sys.executable, "-c", _PROCESS, ",".join([*ours, str(jar)]), str(tmp_path)],
        env={**os.environ, "GEO_LOSE": str(tmp_path / "lose")},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    once = {"records": ["a record"], "rows": 4, "files": 2}
    assert found["ours"] == once, "a session of ours"
    assert found["without"]["records"] == ["a record", "a record"], "this is what the setting is for"
    assert found["given"] == once, "a session that somebody else made without the setting"
