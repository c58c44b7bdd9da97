"""docs/configuration.md, made of what the configuration's reader takes: `python -m geo.config.page > docs/configuration.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

from geo.config.found import HERE, VARIABLE
from geo.config.keys import PARTS, KeysOf
from geo.config.placement import BalancerSettings
from geo.config.reader import KAFKA_SECRETS, KAFKA_SETTINGS, VERSION
from geo.config.secret import SECRET_FORMS
from geo.config.storage_options import KNOWN, REFUSED, SECRETS
from geo.times import MAX_DURATION_S

_HEAD = f"""\
# The configuration: every key

*Made by `python -m geo.config.page` from what the program reads; a test compares the two.*

One YAML file names the regions and what goes between them; [conf/example.yaml](../conf/example.yaml) is one with every part, and `geo init` writes one to begin with. A
verb takes the file that `--config` names, else the one that `${VARIABLE}` names, else `./{HERE}`; the first line of a run's log says which, and by what it was found. What
is wrong in it is said all at once, each with file, line, what is allowed and the nearest key; nothing runs before. `geo broker` takes a changed file by itself, at once on
SIGHUP.

| what is written | how |
|---|---|
| a duration | a number and a unit: `30 seconds`, `5 minutes`, `2 hours`, `7 days`, `1 week`, or `30s`, `5m` (also `5min`), `2h`, `7d`, `1w`; up to {MAX_DURATION_S // 86_400:,} days |
| a path or URI | a path is relative to this file; a URI such as `s3a://bucket/geo` is taken as it is |
| a glob of topics | `persistent://tenant/namespace/name`, with `*` and `?` in each of the three; in a policy it stands for system topics (`__acks`) only if its name starts with `__` |
| a secret | {SECRET_FORMS.replace("secret://env/NAME", "`secret://env/NAME`").replace("secret://file/ABSOLUTE_PATH", "`secret://file/ABSOLUTE_PATH`")}; it is read when it is needed, and never shown |
| a rate | `{{messages_per_second: 1000, bytes_per_second: 10000000}}`, one of them or both |
| `true`, names, numbers | text as it is written: `no` is a name |

Tags, aliases and a second document are refused.

## At the top

| key | what is written | what it does | default |
|---|---|---|---|
| `version` | `{VERSION}` | of the file's form | required |
| `clusters` | a mapping | the regions | required |
| `links` | a list | what goes between them | none: no replication |
| `topics` | a list | policies of topics | none |
| `snapshots` | a mapping | of topics with version subscriptions | see there |
| `placement` | a mapping | several brokers that share a cluster's topics | none: one broker a cluster |
| `kafka` | a mapping | how Kafka is reached | none: PLAINTEXT |
| `publish` | a list | what `geo broker` publishes | none |
"""

_KAFKA = """\
By bootstrap servers, as they stand in `publish` and in `geo publish --kafka`: settings of kafka-python."""

_STORAGE = """\
How an S3 root is reached, in object_store's words, which `deltalake` has as `storage_options`. Spark's own settings are made from it. Without keys they are the machine's: of
the environment, of a role."""

_SETTINGS = """\
Pulsar's settings of the load balancer without `loadBalancer`, in snake case: a percentage is a fraction, megabytes are bytes, minutes are seconds."""


def page() -> str:
    """The page, whole."""
    parts = [_HEAD, *map(_part, PARTS)]
    parts.append(f"## kafka\n\n{_KAFKA}\n\n{_listed(KAFKA_SETTINGS, KAFKA_SECRETS)}")
    refused = _table(("option", "why not"), ((f"`{name}`", why) for name, why in sorted(REFUSED.items())))
    parts.append(f"## storage of a cluster\n\n{_STORAGE}\n\n{_listed(sorted(KNOWN), SECRETS)}\nNot taken:\n\n{refused}")
    settings = ((f"`{one.name}`", f"`{_said(one.default)}`") for one in fields(BalancerSettings))
    parts.append(f"## settings of placement\n\n{_SETTINGS}\n\n{_table(('setting', 'default'), settings)}")
    return "\n".join(parts)


def _part(of: KeysOf) -> str:
    rows = ((f"`{key.name}`", key.kind.value, key.does, of.default(key)) for key in of.keys)
    return f"## {of.title}\n\n{of.does}\n\n{_table(('key', 'what is written', 'what it does', 'default'), rows)}"


def _listed(names: Sequence[str], secrets: Sequence[str]) -> str:
    return _table(("setting", ""), ((f"`{name}`", "a secret" if name in secrets else "") for name in names))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def lines() -> Iterator[str]:
        yield _row(head)
        yield _row(["---"] * len(head)).replace(" ", "")
        yield from map(_row, rows)

    return "".join(f"{line}\n" for line in lines())


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _said(default: object) -> str:
    """As it is written in the file."""
    return f"{default:.10g}" if isinstance(default, float) else str(default).lower()


if __name__ == "__main__":
    print(page(), end="")
