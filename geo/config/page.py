"""docs/configuration.md, made of what the configuration's reader takes: `python -m geo.config.page > docs/configuration.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

from geo.config.found import HERE, VARIABLE
from geo.config.keys import PARTS, KeysOf
from geo.config.placement import BalancerSettings
from geo.config.reader import KAFKA_CHOICES, KAFKA_SECRETS, KAFKA_SETTINGS, VERSION
from geo.config.secret import SECRET_FORMS
from geo.config.storage_options import ENCRYPTIONS, KNOWN, REFUSED, REQUEST_TIMEOUT, WORKSPACE, WORKSPACE_TOKEN
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
By bootstrap servers: settings of kafka-python. The key is, letter by letter, the text that stands in `publish` and behind `geo publish --kafka`; under another one there is no entry, and Kafka is
spoken to in plain text. Paths are absolute, of PEM files that each host has on which tasks run; a relative one is taken from where a process was started. An example: [from-mirrormaker.md](from-mirrormaker.md)."""

_PEM = "a path of a PEM file"
_OF_KAFKA = {
    "security_protocol": ("", "whether TLS is spoken, and whether there is a login", "`PLAINTEXT`"),
    "sasl_mechanism": ("", "the login's, with SASL_PLAINTEXT and SASL_SSL", "none"),
    "sasl_plain_username": ("text", "of PLAIN and SCRAM", "none"),
    "sasl_plain_password": ("", "of PLAIN and SCRAM", "none"),
    "ssl_cafile": (_PEM, "authorities that may sign the brokers' certificates", "the machine's"),
    "ssl_certfile": (_PEM, "this client's certificate", "none"),
    "ssl_keyfile": (_PEM, "its key", "none"),
    "ssl_password": ("", "of that key, if it is encrypted", "none"),
    "ssl_check_hostname": ("", "whether a certificate has to name its host", "`true`"),
    "client_id": ("text", "how brokers' logs name this client", "kafka-python's"),
}
"""Settings of Kafka: what is written (empty: what the reader lets pass), what it does, and its default."""

_STORAGE = """\
How an S3 root is reached, in object_store's words, which `deltalake` has as `storage_options`. Spark's own settings are made from it. Without keys they are the machine's: of
the environment, of a role. All are texts, none is required."""

_FLAG, _OFF = "`true` or `false`", "`false`"
_OF_STORAGE = {
    "aws_access_key_id": ("text", "the keys, with the next one", "the machine's"),
    "aws_secret_access_key": ("a secret", "the keys, with the one before", "the machine's"),
    "aws_session_token": ("a secret", "of keys that end", "none"),
    "aws_region": ("text", "the bucket's region", "`AWS_REGION` or `AWS_DEFAULT_REGION` of the environment, else `us-east-1`"),
    "aws_endpoint_url": ("`https://HOST:PORT`", "a store that is not Amazon's", "Amazon's of the region"),
    "aws_allow_http": (_FLAG, "an end point with `http://` is taken", _OFF),
    "aws_virtual_hosted_style_request": (_FLAG, "the bucket is in the host's name, with an end point of one's own", _OFF),
    "aws_skip_signature": (_FLAG, "requests without keys", _OFF),
    "aws_request_payer": (_FLAG, "who reads pays", _OFF),
    "aws_server_side_encryption": (
        " or ".join(f"`{kind}`" for kind in ENCRYPTIONS),
        "how the store encrypts",
        "as the bucket has it",
    ),
    "aws_sse_kms_key_id": ("text", "the key of KMS", "the bucket's"),
    "aws_sse_customer_key_base64": ("a secret", "the key of `sse-c`", "none"),
    WORKSPACE: ("`https://HOST`", "a Databricks workspace whose Unity Catalog gives keys, with the next one", "none"),
    WORKSPACE_TOKEN: ("a secret", "the token for it", "none"),
    "proxy_url": ("`http://HOST:PORT`", "a proxy on the way to the bucket", "the environment's, if it names one"),
    "timeout": ("a number with `ms`, `s`, `m` or `h`", "of one request", f"`{REQUEST_TIMEOUT}`"),
}
"""Rows as `_OF_KAFKA`."""

_SETTING = ("setting", "what is written", "what it does", "default")

_SETTINGS = """\
Pulsar's settings of the load balancer without `loadBalancer`, in snake case: a percentage is a fraction, megabytes are bytes, minutes are seconds."""


def page() -> str:
    """The page, whole."""
    parts = [_HEAD, *map(_part, PARTS)]
    parts.append(f"## kafka\n\n{_KAFKA}\n\n{_table(_SETTING, map(_kafka_row, KAFKA_SETTINGS))}")
    storage = ((f"`{name}`", *_OF_STORAGE[name]) for name in sorted(KNOWN, key=list(_OF_STORAGE).index))
    refused = _table(("option", "why not"), ((f"`{name}`", why) for name, why in sorted(REFUSED.items())))
    parts.append(f"## storage of a cluster\n\n{_STORAGE}\n\n{_table(_SETTING, storage)}\nNot taken:\n\n{refused}")
    settings = ((f"`{one.name}`", f"`{_said(one.default)}`") for one in fields(BalancerSettings))
    parts.append(f"## settings of placement\n\n{_SETTINGS}\n\n{_table(('setting', 'default'), settings)}")
    return "\n".join(parts)


def _part(of: KeysOf) -> str:
    rows = ((f"`{key.name}`", key.kind.value, key.does, of.default(key)) for key in of.keys)
    return f"## {of.title}\n\n{of.does}\n\n{_table(('key', 'what is written', 'what it does', 'default'), rows)}"


def _kafka_row(name: str) -> tuple[str, ...]:
    written, does, default = _OF_KAFKA[name]
    allowed = " or ".join(f"`{choice}`" for choice in KAFKA_CHOICES.get(name, ()))
    return f"`{name}`", "a secret" if name in KAFKA_SECRETS else allowed or written, does, default


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def lines() -> Iterator[str]:
        yield _row(head)
        yield _row(["---"] * len(head)).replace(" ", "")
        yield from map(_row, rows)

    return "".join(f"{line}\n" for line in lines())


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _said(default: object) -> str:
    """Default as it is written in the file."""
    return f"{default:.10g}" if isinstance(default, float) else str(default).lower()


if __name__ == "__main__":
    print(page(), end="")
