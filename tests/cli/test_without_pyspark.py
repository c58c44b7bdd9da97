"""Who looks needs no pyspark where this process reads the tables: not in the environment, and so not imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from geo.cli.main import main
from geo.testing import config_text
from tests.world import TOPIC

LOOKS = (
    "status",
    "topics list",
    "topics stats",
    "topics describe {topic}",
    "links list",
    "links status",
    "subscriptions list",
    "subscriptions status --topic {topic} --subscription billing",
    "subscriptions status --topic {topic} --subscription lake",
    "peek --cluster us --topic {topic}",
    "peek --cluster us --topic persistent://shop/web/__acks",
    "verify --quick",
    "clusters list",
    "brokers list --cluster us",
    "bundles list --cluster us",
    "isolation list --cluster us",
    "explain {topic}",
    "events",
    "doctor --engine native",
)

_RUN = """
import contextlib, importlib.abc, io, json, sys

class Lacking(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "delta", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Lacking())
from geo.cli.main import main
done = {}
for line in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(line.split())
    done[line] = code, said.getvalue()
print(json.dumps(done))
"""


@pytest.mark.slow
def test_who_looks_needs_no_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "geo.yaml").write_text(config_text(("us", "eu"), [("us", "eu"), ("eu", "us")]) + "placement: {}\n")
    monkeypatch.setenv("GEO_CONFIG", str(tmp_path / "geo.yaml"))
    for name in ("us", "eu"):
        assert main(["topics", "create", "--cluster", name, "--topic", str(TOPIC), "--columns", "amount INT"]) == 0
    for one in (["billing"], ["lake", "--mode", "version"]):
        assert main(["subscriptions", "create", "--cluster", "us", "--topic", str(TOPIC), "--subscription", *one]) == 0
    lines = [line.format(topic=TOPIC) for line in LOOKS]
    ran = subprocess.run([sys.executable, "-c", _RUN], input=json.dumps(lines), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    done = json.loads(ran.stdout)
    assert {line: said for line, (code, said) in done.items() if code} == {}
    assert f"{TOPIC}/billing" in done["peek --cluster us --topic persistent://shop/web/__acks"][1]
