"""Verbs that there are, and the words of Pulsar's and Kafka's tools that stand for one. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

VERBS = {
    "status": ("status", "what is wrong in all regions, since when, what is lost if one is lost now"),
    "init": ("init", "write a configuration to begin with, of two regions"),
    "demo": ("demo", "two clusters on this disk, real flights, a crash, and a check"),
    "publish": ("publish", "publish JSON lines, a Kafka topic or a Delta table, each line, record or row exactly once"),
    "broker": ("broker", "run all that a cluster needs: publishers, inbound links, folds, version sync"),
    "replicate": ("replicate", "run the inbound links of a cluster"),
    "reconcile": ("links", "compare a link's two logs and append what is missing; resolves a FAILED link"),
    "backfill": ("backfill", "bring what a target lacks of what its link has passed, beside the link: scheduled, throttled"),
    "verify": ("ops", "compare every cluster's log by message id and content"),
    "links": ("links", "list links with their states (also without VERB), their lag; pause, resume, restart, resolve, reset"),
    "rebuild": ("rebuild", "give a region that lost data its own messages back from a peer"),
    "erase": ("ops", "empty messages of one cluster for good (the right to erasure); their ids stay"),
    "maintain": ("ops", "drop expired dates, compact small files, clean up, beside live streams"),
    "explain": ("explain", "why a topic is or is not replicated, where each link stands and why not further"),
    "peek": ("topics", "show the newest messages of a topic"),
    "topics": ("topics", "list topics (also without VERB), describe one, their rates and sizes, create, set policies, delete"),
    "events": ("events", "what changed in clusters, when, why and by whom: links, owners, verbs, configurations"),
    "clusters": ("clusters", "list clusters (also without VERB), where each is and whether it answers; remove one"),
    "consume": ("consume", "deliver a topic's messages to a subscription and print them"),
    "subscriptions": (
        "subscriptions",
        "list subscriptions (also without VERB), create, set, look at, ack, reset, delete, fold, sync",
    ),
    "failover": ("failover", "move a subscription's consumer to another cluster; works when the first is gone"),
    "brokers": ("brokers", "list the brokers that share a cluster (also without VERB), and what they report"),
    "bundles": (
        "bundles",
        "list which broker owns which part of a namespace (also without VERB), look up, unload, transfer, split",
    ),
    "isolation": ("placement_policies", "list, set and remove policies that give namespaces brokers of their own"),
    "domains": ("placement_policies", "list, set and remove failure domains, over which anti-affinity groups are spread"),
    "anti-affinity": ("placement_policies", "list, set and remove namespaces that are to be on different brokers"),
    "balance": ("balance", "simulate what the placement of topics on brokers would do to recorded or generated load"),
    "doctor": (
        "doctor",
        "check versions, session, storages, keys, clocks, tables, owners and links; name the cause and the fix of each finding",
    ),
}
"""Verb → the module of geo.cli that has it, in a function `add_VERB`, and what it does."""

LISTED = ("clusters", "links", "topics", "subscriptions", "brokers", "bundles", "isolation", "domains", "anti-affinity")
"""Nouns that list without a verb of theirs."""

NOUNS = (*LISTED, "balance")
"""Those of `VERBS` that have verbs of their own."""

ALIASES: Mapping[str, str] = {
    "groups": "subscriptions",
    "subscriptions describe": "subscriptions status",
    "subscriptions reset-offsets": "subscriptions reset",
    "subscriptions seek": "subscriptions reset",
    "subscriptions unsubscribe": "subscriptions delete",
    "topics create-subscription": "subscriptions create",
    "topics lookup": "bundles lookup",
    "topics peek-messages": "peek",
    "topics reset-cursor": "subscriptions reset",
    "topics subscriptions": "subscriptions list",
    "topics unsubscribe": "subscriptions delete",
}
"""Words of pulsar-admin, of Pulsar's clients and of kafka-consumer-groups for what a verb does, whose options it takes."""


def spelled(arguments: Sequence[str]) -> list[str]:
    """The arguments with the verb in our words: an alias is what it stands for, and a noun without a verb lists."""
    words = list(arguments)
    for count in (1, 2):  # a noun, then one of its verbs
        if (verb := ALIASES.get(" ".join(words[:count]))) is not None:
            words[:count] = verb.split()
    if words[:1] and words[0] in LISTED and _names_no_verb(words[1:]):
        words.insert(1, "list")
    return words


def _names_no_verb(arguments: Sequence[str]) -> bool:
    return not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help"))


_OF_NO_CONFIGURATION = ("balance", "demo", "init")
"""Verbs that take none."""

_VERB = re.compile(
    rf"(?<![\w./`-])geo (?!{'|'.join(_OF_NO_CONFIGURATION)})(?:(?:{'|'.join(NOUNS)}) [a-z]+|(?:{'|'.join(VERBS)}))(?![\w-]|(?: [a-z]+)? --config)"
)
"""Beginning of a verb of this program in a text. One in backticks is mentioned, and not to be typed."""


def typed(do: str, config: str) -> str:
    """Completes a text of what to do: each verb in it is as it is typed for a configuration. The option stands behind the
    verb's name, since where the verb ends prose may follow. A verb that has it stays.
    """
    return _VERB.sub(lambda verb: f"{verb[0]} --config {shlex.quote(config)}", do)
