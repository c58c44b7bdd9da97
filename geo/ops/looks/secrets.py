"""References to secrets in the configuration: whether each leads to something. What it leads to is read, and neither kept nor shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from geo.config.cluster import Cluster
from geo.config.model import Config
from geo.config.secret import Secret
from geo.errors import UsageError
from geo.ops.symptom import Symptom
from geo.reasons import Reason
from geo.text import counted


def references(config: Config) -> Iterator[Symptom]:
    """Judges each cluster, and each group of Kafka's brokers, that refers to a secret."""
    for cluster in config.clusters.values():
        yield from of_cluster(cluster)
    for servers, settings in config.kafka.items():
        yield from _of(f"kafka {servers}", settings)


def of_cluster(cluster: Cluster) -> Iterator[Symptom]:
    """Judges the secrets of a cluster, as `references`."""
    yield from _of(f"cluster {cluster.name}", {**cluster.spark_conf, **cluster.storage})


def _of(where: str, settings: Mapping[str, str | Secret]) -> Iterator[Symptom]:
    resolved = 0
    for secret in {value.reference: value for value in settings.values() if isinstance(value, Secret)}.values():
        try:
            is_empty = not secret.reveal()
        except UsageError as error:
            fix = "set it where this runs, or correct the reference in the configuration"
            yield Symptom("error", where, str(error), fix, Reason.KEYS_REFUSED)
            continue
        if is_empty:
            yield Symptom("error", where, f"{secret.reference} is empty", "put the secret there", Reason.KEYS_REFUSED)
        resolved += not is_empty
    if resolved:
        yield Symptom(
            "ok", where, f"{counted(resolved, 'reference')} to secrets {'leads' if resolved == 1 else 'lead'} to something"
        )
