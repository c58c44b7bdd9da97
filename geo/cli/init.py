"""`geo init`: a configuration to begin with."""

from __future__ import annotations

import argparse
import os

from geo.cli.arguments import Verbs
from geo.cli.output import Output
from geo.cli.verbs import typed
from geo.config import load
from geo.config.found import HERE, VARIABLE
from geo.errors import UsageError
from geo.text import counted

TOPIC = "persistent://shop/web/orders"

CONFIG = """\
# Two regions that each hold what is written in both. Every key: docs/configuration.md.
version: 1

clusters:
  # One region's storage: tables are folders below root. A path is relative to this file; s3a://bucket/folder is an S3 bucket.
  eu:
    root: data/eu
  us:
    root: data/us
  # Of a catalog instead (checkpoints outside of any table):
  #   us: {catalog: prod, schema: geo_us, checkpoints: /Volumes/prod/geo_us/checkpoints}
  # How a bucket is reached, where keys are not the machine's; secrets are only named, never written here:
  #   storage: {aws_region: eu-west-1, aws_access_key_id: secret://env/EU_KEY, aws_secret_access_key: secret://env/EU_SECRET}

# Each is run by its target, which reads the source and writes itself.
links:
  - {source: us, target: eu}
  - {source: eu, target: us}

# What holds for topics; the first match counts. Without one, messages never expire.
topics:
  - match: "persistent://*/*/*"
    message_ttl: 30 days
    # replication_clusters: [eu, us]   # only links between these carry the topic

# What `geo broker` of a region publishes: folders of JSON lines, Kafka topics, Delta tables of yours.
# publish:
#   - {cluster: eu, topic: "persistent://shop/web/orders", jsonl: inbox}
#   - {cluster: eu, topic: "persistent://shop/web/payments", kafka: "broker-1:9092", kafka_topic: payments}
#   - {cluster: eu, topic: "persistent://shop/web/customers", delta: /data/customers, key: id}
"""


_NEXT = (
    """echo '{"key": "alice", "payload": "first order"}' > orders.jsonl""",
    f"geo publish --cluster eu --topic {TOPIC} --jsonl orders.jsonl",
    "geo replicate --cluster us",
    f"geo peek --cluster us --topic {TOPIC} --payload text",
    "geo status",
)
_FOR_GOOD = "geo broker --cluster eu"


def add_init(verbs: Verbs, does: str) -> None:
    p = verbs.add("init", does, init, config=False)
    p.add_argument("file", nargs="?", default=HERE, metavar="FILE", help="where it is written (default: %(default)s)")


def init(args: argparse.Namespace, output: Output) -> int:
    path = args.file
    try:
        _write(path)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and stays as it is. To write another one: geo init FILE") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    clusters = load(path).clusters
    is_found = os.path.normpath(path) == HERE and not os.environ.get(VARIABLE)
    following = [one if is_found else typed(one, path) for one in (*_NEXT, _FOR_GOOD)]
    output.data({"config": path, "clusters": {name: cluster.place for name, cluster in clusters.items()}, "next": following})
    output.text(
        f"{path} is written: {counted(len(clusters), 'region')}, and a link each way. Nothing else is made yet.",
        *(f"  {name}: {cluster.place}" for name, cluster in clusters.items()),
        "Change it as you need it, then:",
        *(f"  {one}" for one in following[:-1]),
        f"One process a region runs its publishers and its links for good: {following[-1]}",
    )
    return 0


def _write(path: str) -> None:
    """All of it or nothing; and never over another file."""
    with open(path, "x", encoding="utf-8") as file:
        try:
            file.write(CONFIG)
            file.flush()
        except OSError:
            os.unlink(path)
            raise
