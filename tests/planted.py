"""`python -m tests.planted [WORD …]`: small faults, planted one at a time in a copy of this checkout. Prints which test catches
each.

A fault is one text for another in one file, and the test files that are asked, in this order, until one fails. WORDs choose the
faults whose file or description has one of them; `--no-spark` leaves out those that need Spark. Exit code 1 if one survives.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
_COPIED = ("geo", "jobs", "schemas", "tests", "conf", "notebooks", "pyproject.toml")
_LIMIT_S = 400


@dataclass(frozen=True, slots=True)
class Fault:
    """In `file` the text `right`, which is there once, becomes `wrong`. `asked`: test files, each perhaps with an expression for
    `-k`."""

    what: str
    file: str
    right: str
    wrong: str
    asked: tuple[str, ...]
    spark: bool = False
    hangs: bool = False
    """A test that does not end within _LIMIT_S has caught it."""


FAULTS = (
    # which rows cross
    Fault(
        "rows without an origin of the rule cross",
        "geo/replication/rule.py",
        "if row.origin not in rule.origins:",
        "if row.origin is None:",
        ("replication/test_rule.py",),
    ),
    Fault(
        "an empty replicate_to is everybody",
        "geo/replication/rule.py",
        "if row.replicate_to is not None and rule.target",
        "if row.replicate_to and rule.target",
        ("replication/test_rule.py",),
    ),
    Fault(
        "as old as the TTL is expired",
        "geo/replication/rule_columns.py",
        "publish_time < {horizon}",
        "publish_time <= {horizon}",
        ("replication/test_rule_columns.py",),
        spark=True,
    ),
    Fault(
        "NULL in replicate_to makes the rule NULL",
        "geo/replication/rule_columns.py",
        "NOT coalesce(array_contains(replicate_to, '{rule.target}'), false)",
        "NOT array_contains(replicate_to, '{rule.target}')",
        ("replication/test_rule_columns.py",),
        spark=True,
    ),
    Fault(
        "of a file that reaches beyond what the target has, the rest is taken for lost",
        "geo/replication/both_logs.py",
        "or only[2] <= ends.get(only[0], -1))",
        "or only[1] <= ends.get(only[0], -1))",
        ("replication/test_both_logs.py",),
        spark=True,
    ),
    Fault(
        "what has expired counts as what a link must still bring",
        "geo/replication/both_logs.py",
        'cross = crossing(self.rule, floors, rows.filter(rows["marker"].is_null()), now)[0]',
        'cross = rows.filter(rows["marker"].is_null())',
        ("replication/test_both_logs.py",),
        spark=True,
    ),
    Fault(
        "of a ledger in two files the last one tells where it begins",
        "geo/log/ledger_parts.py",
        "found[ledger] = min(first, known[0]), max(last, known[1])",
        "found[ledger] = first, max(last, known[1])",
        ("replication/test_both_logs.py",),
        spark=True,
    ),
    Fault(
        "where a link begins is told by the newest version, not by the one at which it begins to read",
        "geo/log/ledger_parts.py",
        "parts = scan(log, version, columns, lambda rows: _ranges(wanted(rows)), told=told)",
        "parts = scan(log, log.latest_version(), columns, lambda rows: _ranges(wanted(rows)), told=told)",
        ("replication/test_both_logs.py",),
        spark=True,
    ),
    Fault(
        "of a ledger in two files one counts as what a cluster holds",
        "geo/ops/holdings.py",
        "found[ledger] = found[ledger].joined(one) if ledger in found else one",
        "found[ledger] = one",
        ("ops/test_holdings.py -k same",),
        spark=True,
    ),
    Fault(
        "a marker counts as a message that only one cluster has",
        "geo/ops/holdings.py",
        'ids = rows.filter(rows["marker"].is_null()).select(ID)',
        "ids = rows.select(ID)",
        ("ops/test_holdings.py -k same",),
        spark=True,
    ),
    Fault(
        "a target that was put back is appended to",
        "geo/replication/target_watch.py",
        "if looked.why is not None:",
        "if looked.why is not None and version < 0:",
        ("replication/test_cursor.py -k while_a_link_compares", "replication/test_repair.py -k yesterday"),
        spark=True,
    ),
    # many works in one application, and what people ask of them
    Fault(
        "a row keeps the cursor of before an append that has landed",
        "geo/replication/link_start.py",
        "    if own is None or own.token != token or",
        "    if True or own is None or own.token != token or",
        ("replication/test_cursor.py -k unheard",),
        spark=True,
    ),
    Fault(
        "an ownership that was abandoned still appends",
        "geo/tables/ownership.py",
        "        self._is_abandoned = True\n",
        "        self._is_abandoned = False\n",
        ("replication/test_stale.py -k abandoned",),
        spark=True,
    ),
    Fault(
        "a group that was left behind takes up what it finds",
        "geo/streams/crew.py",
        "if self.stop.is_set():  # it may have been asked for a long time",
        "if False:  # it may have been asked for a long time",
        ("streams/test_supervisor.py -k left_behind",),
    ),
    Fault(
        "what is to begin again is forgotten while something is done for it",
        "geo/streams/crew.py",
        "(self._again | set(found.again)) - self._left_out.keys()",
        "set(found.again) - self._left_out.keys()",
        ("streams/test_supervisor.py -k begin_again",),
    ),
    Fault(
        "others begin before what goes has ended",
        "geo/streams/supervisor.py",
        "while (lives := [crew.thread for crew in crews if crew.thread.is_alive()]) and time.monotonic() < deadline:",
        "while (lives := [crew.thread for crew in crews if crew.thread.is_alive()]) and time.monotonic() < 0:",
        ("streams/test_supervisor.py -k come_and_go",),
    ),
    Fault(
        "who had a turn is served first again",
        "geo/fleet/fetchers.py",
        "deque()).append(topic)",
        "deque()).appendleft(topic)",
        ("fleet/test_fetchers.py",),
    ),
    Fault(
        "after a resize more begin than there are fetchers",
        "geo/fleet/fetchers.py",
        "if len(self._on_turn) >= self.num_fetchers:",
        "if False:",
        ("fleet/test_fetchers.py",),
    ),
    Fault(
        "the late end of a turn that was left ends that of another",
        "geo/fleet/turns.py",
        "if self._holders.get(topic) is mine:",
        "if True:",
        ("fleet/test_turns.py -k left",),
    ),
    Fault(
        "a debt is not paid",
        "geo/fleet/rate.py",
        "bucket.tokens -= taken",
        "bucket.tokens = max(0.0, bucket.tokens - taken)",
        ("fleet/test_rate.py",),
    ),
    Fault(
        "a thread that is lost is missing afterwards",
        "geo/streams/workers.py",
        "self._count += 1",
        "pass",
        ("streams/test_supervisor.py -k hangs",),
    ),
    Fault(
        "a link that hangs keeps its turn",
        "geo/replication/link_work.py",
        "self.link.leave()",
        "pass",
        ("replication/test_turns.py -k hangs",),
        spark=True,
        hangs=True,
    ),
    Fault(
        "all rows of a query's batch are taken for those of its first turn",
        "geo/replication/topic_link.py",
        "rows if commits and commits[-1].version == newest else None",
        "rows",
        ("replication/test_turns.py -k rate",),
        spark=True,
    ),
    Fault(
        "a comparison that was stopped counts as complete",
        "geo/replication/reconciliation.py",
        "                if not has_turn:\n                    return\n",
        "                if not has_turn:\n                    break\n",
        ("replication/test_turns.py -k compar",),
        spark=True,
    ),
    Fault(
        "a backfill reads the source at its newest version beside a link",
        "geo/fleet/backfill.py",
        "        return target, cursor\n",
        "        return target, newest_commit(self._source_log, str(self))\n",
        ("fleet/test_backfill.py -k erased",),
        spark=True,
    ),
    Fault(
        "a comparison appends though its place was taken over",
        "geo/replication/reconciliation.py",
        "with self._into.ownership.besides(filling):",
        "if True:",
        ("fleet/test_backfill.py -k loses",),
        spark=True,
    ),
    Fault(
        "a file with markers is copied whole",
        "geo/replication/whole_files.py",
        'for name in ("marker", "replicate_to")',
        'for name in ("replicate_to",)',
        ("replication/test_whole_files.py",),
    ),
    Fault(
        "a file is copied of which only a part is wanted",
        "geo/replication/whole_files.py",
        "greatest <= min(ends)",
        "greatest > 0",
        ("replication/test_whole_files.py",),
    ),
    Fault(
        "what a backfill brought into a source is taken for new",
        "geo/replication/source_history.py",
        "if origins & (backfilled(commit.user_metadata) or frozenset()):",
        "if False:",
        ("replication/test_source_history.py",),
    ),
    Fault(
        "what failed is asked whether it hangs",
        "geo/streams/crew.py",
        "elif (slot.task is not None or slot.life.state is State.RUNNING) and (other",
        "elif (other",
        ("streams/test_supervisor.py -k not_asked",),
    ),
    Fault(
        "what only waits counts as what is done",
        "geo/streams/workers.py",
        "return self.busy < self._count + self._waiting",
        "return self.busy < self._count",
        ("streams/test_supervisor.py -k only_waits",),
    ),
    Fault(
        "a turn that was offered and nobody begins is nobody's",
        "geo/fleet/turns.py",
        "since is not None and now - since > _OFFERED_S",
        "False",
        ("fleet/test_turns.py -k offer",),
    ),
    Fault(
        "a rate counts what others wrote beside",
        "geo/replication/turns.py",
        "        if brings(commit):",
        "        if True:",
        ("fleet/test_turns.py -k rate",),
    ),
    Fault(
        "a changed number of fetchers is taken and not followed",
        "geo/fleet/broker.py",
        "group.turns.change(link.num_fetchers, partial(config.dispatch_rate, link))",
        "pass",
        ("fleet/test_broker.py -k fetchers",),
        spark=True,
    ),
    Fault(
        "a topic whose log cannot be looked at is its link's fault",
        "geo/replication/link_topics.py",
        "        if session_is_gone(error):\n            raise\n        return True",
        "        raise",
        ("fleet/test_five_faults.py",),
        spark=True,
    ),
    Fault(
        "a backfill asks the clock again for each log",
        "geo/fleet/backfill.py",
        "messages_wanted(self._rule, None, self._now_us)",
        "messages_wanted(self._rule, None, now_us())",
        ("fleet/test_backfill.py -k expires",),
        spark=True,
    ),
    Fault(
        "the first request counts, not the last",
        "geo/replication/link_requests.py",
        "return max(((one.number, one.action is Action.PAUSE) for one in found), default=(0, False))[1]",
        "return min(((one.number, one.action is Action.PAUSE) for one in found), default=(0, False))[1]",
        ("replication/test_link_requests.py -k requests_that_match",),
    ),
    Fault(
        "a target that could not be asked holds what others do",
        "geo/replication/link_status.py",
        "found[key] = None if unknown or at is None or before is None",
        "found[key] = None if at is None or before is None",
        ("replication/test_link_requests.py -k lag",),
        spark=True,
    ),
    Fault(
        "what goes elsewhere is waited for",
        "geo/log/replicas.py",
        "if (key.replicate_to is None or name in key.replicate_to) and",
        "if",
        ("log/test_replicas.py -k files",),
        spark=True,
    ),
    Fault(
        "a file of offsets that was cut short is taken",
        "geo/fleet/offset_checkpoint.py",
        "if len(offsets) != expected:",
        "if len(offsets) > expected:",
        ("fleet/test_offset_checkpoint.py",),
    ),
    # what a link's start decides
    Fault(
        "a step of a reconcile counts as the end of it",
        "geo/replication/link_start.py",
        "record.link == link and not record.reconciling",
        "record.link == link",
        ("replication/test_link_start.py",),
    ),
    Fault(
        "a reconcile that did not end is passed over",
        "geo/replication/link_start.py",
        "if record is not None and record.reconciling:",
        "if False:",
        ("replication/test_link_start.py",),
    ),
    Fault(
        "messages by another link are passed over",
        "geo/replication/link_start.py",
        "record.link != link:",
        "record.link != record.link:",
        ("replication/test_link_start.py",),
    ),
    Fault(
        "it fails for ever at the same place",
        "geo/replication/link_start.py",
        "if failed_before >= 2:",
        "if failed_before > 9:",
        ("replication/test_link_start.py",),
    ),
    Fault(
        "new origins are not compared",
        "geo/replication/link_start.py",
        "if new := sorted(set(origins).difference(covered)):",
        "if new := sorted(set[str]()):",
        ("replication/test_link_start.py",),
    ),
    Fault(
        "a commit by another link is not looked into",
        "geo/replication/source_history.py",
        "return bool(origins & set(record.origins))",
        "return False",
        ("replication/test_source_history.py",),
    ),
    # who owns, and the fence
    Fault(
        "a generation is used twice after owners were lost",
        "geo/tables/claims.py",
        "*highest.values())",
        "*())",
        ("tables/test_claims.py",),
    ),
    Fault(
        "a living owner is taken over",
        "geo/tables/claims.py",
        "is Liveness.LIVES and owner.runner not in take_over:",
        "is Liveness.DEAD and owner.runner not in take_over:",
        ("tables/test_claims.py",),
    ),
    Fault(
        "what is in flight is forgotten",
        "geo/tables/claims.py",
        "if owner.in_flight or owner.runner not in ended}",
        "if owner.runner not in ended}",
        ("tables/test_claims.py",),
    ),
    Fault(
        "an append does not ask its fence",
        "geo/tables/ownership.py",
        "table.append(rows.where(self.check), user_metadata, refuse=refuse)",
        "table.append(rows, user_metadata, refuse=refuse)",
        ("replication/test_stale.py",),
        spark=True,
    ),
    # the ledgers of a producer
    Fault(
        "an entry is given twice",
        "geo/log/ledgers.py",
        "ledger.end + 1, ledger.end + group.rows",
        "ledger.end, ledger.end + group.rows - 1",
        ("log/test_ledgers.py",),
    ),
    Fault(
        "a commit of another writer is taken for ours",
        "geo/log/ledgers.py",
        "if span.first <= known.end or",
        "if",
        ("log/test_ledgers.py",),
    ),
    Fault(
        "publish_time goes back with the clock",
        "geo/log/ledgers.py",
        "time_us = max(time_us, ledger.time_us)",
        "time_us = now_us",
        ("log/test_ledgers.py",),
    ),
    Fault(
        "a new ledger vouches for ends that are not recorded",
        "geo/log/ledger_writer.py",
        "                if self._changed:\n                    # Any row",
        "                if False:\n                    # Any row",
        ("log/test_producer.py -k opened_after_a_look",),
        spark=True,
    ),
    Fault(
        "a file that was replaced is read on",
        "geo/log/sources/jsonl.py",
        "if size < position or _fingerprint(stream, position) != fingerprint:",
        "if size < position:",
        ("log/sources/test_jsonl.py",),
    ),
    Fault(
        "a place that was noted at other ends counts",
        "geo/log/source_note.py",
        "if then.get(name) == now.get(name)}",
        "if name}",
        ("log/test_publish.py -k note",),
        spark=True,
    ),
    # a producer that goes on in another region
    Fault(
        "of two places the nearer one counts",
        "geo/log/failing_over.py",
        "name: max((by for by in By",
        "name: min((by for by in By",
        ("log/test_failing_over.py",),
    ),
    Fault(
        "a hole in what arrived is passed over",
        "geo/log/failing_over.py",
        "        if part.count != part.last - part.first + 1:",
        "        if False:",
        ("log/test_failing_over.py",),
    ),
    Fault(
        "a producer goes on beside one that lives",
        "geo/tables/ownership.py",
        "            raise _refused(row, else_)",
        "            continue",
        ("log/test_other_producer.py -k lives",),
        spark=True,
    ),
    Fault(
        "what a RESTORE took out of the other log counts for published",
        "geo/log/other_producer.py",
        "    if tail.broken is not None:",
        "    if False:",
        ("log/test_other_producer.py -k nobody_can_tell",),
        spark=True,
    ),
    Fault(
        "offsets of another Kafka topic are gone on from",
        "geo/log/sources/kafka_arrived.py",
        "    if content != (there",
        "    if False and content != (there",
        ("log/sources/test_kafka_failover.py -k another_kafka_topic",),
        spark=True,
    ),
    Fault(
        "what a killed comparison or a backfill brought counts for all",
        "geo/log/failing_over.py",
        "if end.why is None and (what :=",
        "if False and (what :=",
        ("log/test_failing_over.py",),
    ),
    Fault(
        "a link that never had all counts for one that has",
        "geo/log/failing_over.py",
        "    if since is None:",
        "    if since is None and False:",
        ("log/test_failing_over.py",),
    ),
    Fault(
        "a region that was put back from a backup is believed",
        "geo/log/failing_over.py",
        "        if last > (end := recorded.get(ledger, -1)):",
        "        if last > (end := recorded.get(ledger, -1)) > last:",
        ("log/test_failing_over.py",),
    ),
    Fault(
        "a partition of which no place is safe is published again from its first record on",
        "geo/log/other_producer.py",
        "        if without := sorted(self.unsure - chosen.keys()):",
        "        if without := []:",
        ("log/test_failing_over.py",),
    ),
    Fault(
        "what a backfill brought below a link's floors makes a hole",
        "geo/log/sources/kafka_arrived.py",
        'F.when(F.col("entry_id") >= floor, ',
        'F.when(F.col("entry_id") >= 0, ',
        ("log/sources/test_kafka_failover.py -k below_the_beginning",),
        spark=True,
    ),
    Fault(
        "offsets of a Kafka topic without an id are gone on from as they are",
        "geo/log/other_producer.py",
        "messages is not None and messages.is_without_id(found)",
        "False and messages is not None",
        ("log/sources/test_kafka_failover.py -k without_an_id",),
        spark=True,
    ),
    Fault(
        "two rows with one offset are in order",
        "geo/log/numbering/holding.py",
        "before >= ordered(_row(offsets, first))",
        "before > ordered(_row(offsets, first))",
        ("log/numbering/test_holding.py",),
    ),
    Fault(
        "files are added to a table that was made anew",
        "geo/tables/native_append.py",
        "same = (state.table_id, state.partition_by) == (written.table_id, written.partition_by)",
        "same = (state.partition_by,) == (written.partition_by,)",
        ("tables/test_native_append.py -k anew",),
        spark=True,
    ),
    Fault(
        "a checksum keeps the number of files",
        "geo/tables/native_append.py",
        '"numFiles": before["numFiles"] + len(added),',
        '"numFiles": before["numFiles"],',
        ("tables/test_native_append.py -k checksum",),
        spark=True,
    ),
    Fault(
        "rows that fall are numbered as they come",
        "geo/log/numbering/runs.py",
        "pc.if_else(rises, NEXT, FALLS)",
        "pc.if_else(rises, NEXT, NEXT)",
        ("log/numbering/test_runs.py",),
    ),
    Fault(
        "the last row of a run is not looked at",
        "geo/log/numbering/runs.py",
        "elif tuple(offsets[at - 1].as_py().values()) != run.last:",
        "elif False:",
        ("log/numbering/test_runs.py",),
    ),
    Fault(
        "runs that meet are one",
        "geo/log/numbering/on_spark.py",
        "ordered(before.last) >= ordered(after.first)",
        "ordered(before.last) > ordered(after.first)",
        ("log/numbering/test_runs.py",),
    ),
    Fault(
        "the last published row is published again",
        "geo/log/source_identity.py",
        "IS NOT NULL AND {OFFSET} <= {end}",
        "IS NOT NULL AND {OFFSET} < {end}",
        ("log/numbering/test_ways.py", "log/test_publish.py"),
        spark=True,
    ),
    Fault(
        "changed rows below the end are passed over",
        "geo/log/publisher.py",
        "if here and (count, found) != (end.count, end.hash):",
        "if here and count != end.count:",
        ("log/test_publish.py",),
        spark=True,
    ),
    # the way of a batch over a link
    Fault(
        "the cursor stays before the batch",
        "geo/replication/topic_link.py",
        "cursor = CommitName.of(self.cursor.table_id, last)\n        self.into.append",
        "cursor = self.cursor\n        self.into.append",
        ("replication/test_link.py", "replication/test_cursor.py"),
        hangs=True,
        spark=True,
    ),
    Fault(
        "commits are not looked at before a batch",
        "geo/replication/topic_link.py",
        "        self._look(taken, taken[-1].version if taken else first)\n",
        "",
        ("replication/test_cursor.py",),
        spark=True,
    ),
    # delivery and acknowledgement
    Fault(
        "what waits for its redelivery is delivered",
        "geo/subscription/consumer/delivery.py",
        "present - self.done - self.waiting, self.state.base",
        "present - self.done, self.state.base",
        ("subscription/consumer/test_delivery.py",),
    ),
    Fault(
        "an acknowledgement of an older epoch counts",
        "geo/subscription/consumer/delivery.py",
        "        if epoch != self.state.epoch:\n            return\n",
        "",
        ("subscription/consumer/test_delivery.py",),
    ),
    Fault(
        "dead letters come a delivery late",
        "geo/subscription/consumer/delivery.py",
        "self.state.in_vain(self.max_redeliveries + 1)",
        "self.state.in_vain(self.max_redeliveries + 2)",
        ("subscription/consumer/test_delivery.py",),
    ),
    Fault(
        "a reset does not bring back what was handed out",
        "geo/subscription/consumer/delivery.py",
        "self.outdated = self.outdated | self.waiting | self._out",
        "self.outdated = self.outdated | self.waiting",
        ("subscription/consumer/test_delivery.py",),
    ),
    Fault(
        "a record may count resets that cannot have been",
        "geo/subscription/acks/fold.py",
        "if not epoch_is_possible(state.epoch, record.publish_time_us):",
        "if False:",
        ("subscription/acks/test_fold.py",),
    ),
    Fault(
        "of two delays one holds",
        "geo/subscription/consumer/delivery.py",
        "in answer.delays.items():\n                self._wait",
        "in list(answer.delays.items())[:1]:\n                self._wait",
        ("subscription/consumer/test_delivery.py",),
    ),
    Fault(
        "where a peer lets a subscription begin is not told here",
        "geo/subscription/consumer/delivery.py",
        "if elsewhere and begins_elsewhere:",
        "if False:",
        ("subscription/consumer/test_delivery.py",),
    ),
    Fault(
        "a message that is named as done and with a delay is done",
        "geo/subscription/consumer/answer.py",
        " - MessageSet.union(delays.values()), delays)",
        ", delays)",
        ("subscription/consumer/test_consumer.py -k comes_again_and_a_null",),
        spark=True,
    ),
    Fault(
        "what could not be published is forgotten",
        "geo/subscription/consumer/ack_exchange.py",
        "            try:\n                self._publish(states)",
        "            for member, _ in telling:\n                member.kept = None\n            try:\n                self._publish(states)",
        ("subscription/consumer/test_consumer.py -k could_not_be_published",),
        spark=True,
    ),
    Fault(
        "a peer is read though its link is held up",
        "geo/subscription/acks/peer_acks.py",
        "        if _is_held_up(state):",
        "        if False:",
        ("subscription/consumer/test_exchange.py -k held_up",),
        spark=True,
    ),
    Fault(
        "what is remembered of a journal is never compared with what is there",
        "geo/tables/journal.py",
        "now - known.looked_at >= REMOTE_FULL_LOOK_S:",
        "False:",
        ("tables/test_asked_log.py -k read_again",),
        spark=True,
    ),
    Fault(
        "what came into a journal is not seen",
        "geo/tables/journal.py",
        "if self._table.has_commit(known.version + 1):",
        "if self._table.has_commit(known.version + 2):",
        ("tables/test_asked_log.py -k read_again",),
        spark=True,
    ),
    Fault(
        "a store that has shown nothing is believed",
        "geo/tables/asked_log.py",
        "return Said(found) if store.has_shown_commits else None",
        "return Said(found)",
        ("tables/test_asked_log.py -k any_table",),
    ),
    Fault(
        "a log that gives no answer is missing",
        "geo/tables/asked_log.py",
        "            return None\n        if found is not None:",
        "            found = None\n        if found is not None:",
        ("tables/test_asked_log.py -k no_answer",),
    ),
    Fault(
        "a table is missing when its bucket is away",
        "geo/tables/asked_log.py",
        "                folder.refuse_no_bucket()\n",
        "                pass\n",
        ("tables/test_asked_log.py -k bucket",),
    ),
    Fault(
        "a log that has grown again is followed",
        "geo/tables/tail.py",
        "self._compare(self.at.table_id, due, commits.pop(0))",
        "commits.pop(0)",
        ("tables/test_tail.py -k grown_again",),
        spark=True,
    ),
    # verify
    Fault(
        "a quick verify passes over a lost beginning",
        "geo/ops/verify/ends.py",
        "max(0, min(there.first, part.last + 1) - begin)",
        "0",
        ("ops/test_ends.py",),
    ),
    Fault(
        "a large message that comes alone is to blame while nothing passes",
        "geo/subscription/consumer/halving.py",
        "(self.blamed if self.passed_any else self._doubtful).append(failed[0])",
        "self.blamed.append(failed[0])",
        ("subscription/consumer/test_halving.py",),
    ),
    Fault(
        "parts behind a bad one are not delivered",
        "geo/subscription/consumer/halving.py",
        "return self._untried if self._calls > 0 or self.passed_any else []",
        "return self._untried if self._calls > 0 else []",
        ("subscription/consumer/test_halving.py",),
    ),
    Fault(
        "two beginnings at once leave out what one of them wants",
        "geo/subscription/acks/ack_state.py",
        "min(self.floors.get(ledger, 0), other.floors.get(ledger, 0))",
        "max(self.floors.get(ledger, 0), other.floors.get(ledger, 0))",
        ("subscription/acks/test_ack_state.py",),
    ),
    Fault(
        "what was acknowledged meanwhile comes with a later part",
        "geo/subscription/consumer/user_function.py",
        "these = MessageSet.of(part) - now.acked",
        "these = MessageSet.of(part)",
        ("subscription/consumer/test_consumer.py -k while_a_part_before_it",),
        spark=True,
    ),
    Fault(
        "what a peer tells is heard before it is known what is known here",
        "geo/subscription/consumer/ack_exchange.py",
        "            if self._early is not None:",
        "            if False:",
        ("subscription/consumer/test_exchange.py -k heard_first",),
        spark=True,
    ),
    Fault(
        "a letter may not be older than its message",
        "geo/subscription/consumer/dead_letters.py",
        "OLDER = timedelta(microseconds=AHEAD_US + CLOCKS_APART_US)",
        "OLDER = timedelta(microseconds=CLOCKS_APART_US)",
        ("subscription/consumer/test_consumer.py -k older_than_its_message",),
        spark=True,
    ),
    # consumers of versions
    Fault(
        "a version of which some files are done counts",
        "geo/subscription/source_offsets.py",
        "self.version == 0 else self.version - 1",
        "self.version == 0 else self.version",
        ("subscription/test_source_offsets.py",),
    ),
    Fault(
        "of two sources of a table the one ahead counts",
        "geo/subscription/source_offsets.py",
        "return min(known) if known and len(known) == len(found) else None",
        "return max(known) if known else None",
        ("subscription/test_source_offsets.py",),
    ),
    Fault(
        "a batch that has begun counts",
        "geo/subscription/stream_progress.py",
        'names = files.plain_names(f"{checkpoint}/commits") or ()',
        'names = files.plain_names(f"{checkpoint}/offsets") or ()',
        ("subscription/test_stream_progress.py -k newest_batch",),
    ),
    Fault(
        "a checkpoint counts that is another query's by now",
        "geo/subscription/version_subscriptions.py",
        "    _refuse_other_query(one, found.query_id)\n",
        "",
        ("subscription/test_version_subscriptions.py -k another_query",),
        spark=True,
    ),
    Fault(
        "the controllers go on in a table that was put back",
        "geo/subscription/source_offsets.py",
        "if not planned or planned[-1].reached > newest:",
        "if not planned or planned[0].reached > newest:",
        ("subscription/test_source_offsets.py",),
    ),
    Fault(
        "the controllers go on over rows that are gone",
        "geo/subscription/source_offsets.py",
        "return first > newest or has_commit(first)",
        "return first > newest or has_commit(planned[-1].reached)",
        ("subscription/test_source_offsets.py",),
    ),
    Fault(
        "what a link brings counts as what none does",
        "geo/subscription/going_on.py",
        "if ledger.origin not in reached_by:",
        "if ledger.origin in reached_by:",
        ("subscription/test_going_on.py",),
    ),
    # markers, snapshots, and who may go on where (PIP-33)
    Fault(
        "an answer tells versions that nobody has looked at",
        "geo/subscription/controller.py",
        "position = Position.end(row.read_to)",
        "position = Position.end(row.read_to + 3)",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "an answer does not name the hubs on its way",
        "geo/subscription/controller.py",
        "WriteMarker(answer, (asker, *(hub for hub in hubs if hub != asker)))",
        "WriteMarker(answer, (asker,))",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "three clusters are asked once",
        "geo/subscription/snapshot_builder.py",
        "len(self._remotes) > 1:",
        "len(self._remotes) > 2:",
        ("subscription/test_snapshot_builder.py", "model/test_pip33.py"),
    ),
    Fault(
        "the places of the second round are told",
        "geo/subscription/snapshot_builder.py",
        "self._positions.setdefault(cluster, position)",
        "self._positions[cluster] = position",
        ("subscription/test_snapshot_builder.py", "model/test_pip33.py"),
    ),
    Fault(
        "an answer of the first round counts in the second",
        "geo/subscription/controller.py",
        "builder.round_number == answer.round_number <= one.requested",
        "builder.round_number <= one.requested",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "a snapshot that was being written outlives a void",
        "geo/subscription/controller.py",
        "if self._open_voids or self._tick is None or taken.begun < self._voided:",
        "if self._open_voids:",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "a snapshot counts from before all that a controller knows",
        "geo/subscription/controller.py",
        "if before is None or set(before.asked) != set(tick.asked):",
        "if before is not None and set(before.asked) != set(tick.asked):",
        ("subscription/test_controller.py",),
    ),
    Fault(
        "a snapshot is begun while a void is open",
        "geo/subscription/controller.py",
        "        if self._open_voids:\n            found[self.cluster]",
        "        if False:\n            found[self.cluster]",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "a void leaves what is complete",
        "geo/subscription/controller.py",
        "self._pending = []\n        self._forget_snapshots()",
        "self._pending, self._completed, self._covered = [], [], None",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "what was answered for a log that is gone moves a subscription",
        "geo/subscription/controller.py",
        "if since is not None and (row.sender not in since or update.started_us < since[row.sender]):",
        "if False:",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "an update beyond the end of the log counts",
        "geo/subscription/controller.py",
        "if position.next_version > row.read_to + 1:",
        "if False:",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "a version that is not finished counts",
        "geo/subscription/controller.py",
        "Position.before(one.next_here)",
        "Position.before(one.next_here + 1)",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "whose messages may be in an asked log is not asked",
        "geo/subscription/asked.py",
        "there | heard",
        "there",
        ("subscription/test_asked.py", "model/test_pip33.py"),
    ),
    Fault(
        "a snapshot that another cluster says was taken counts",
        "geo/subscription/controller.py",
        "if row.sender != self.cluster:\n            return self._nothing(Counted.FORGED)\n        if taken",
        "if False:\n            return self._nothing(Counted.FORGED)\n        if taken",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "a snapshot counts again when its own marker is read back",
        "geo/subscription/controller.py",
        "            self._completed.remove(taken.snapshot.snapshot_id)\n            return []",
        "            self._completed.remove(taken.snapshot.snapshot_id)",
        ("subscription/test_controller.py",),
    ),
    Fault(
        "whoever has finished something has finished all that came until somebody looked",
        "geo/subscription/controller.py",
        "return max(version, looked) if moved is None or moved <= version else version",
        "return max(version, looked)",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "what was finished in a table that is gone counts in another",
        "geo/subscription/controller.py",
        "return self._nothing(Counted.OTHER_TABLE)",
        "self._nothing(Counted.OTHER_TABLE)",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "a snapshot is kept that was begun when others were to be asked",
        "geo/subscription/controller.py",
        "            self._voided = tick.seq  # before",
        "            pass  # before",
        ("subscription/test_controller.py",),
    ),
    Fault(
        "a controller rests while one is wanted",
        "geo/subscription/controller.py",
        "if tick is None or self._pending or self._whom_it_waits_for(tick) != self._waits_for:",
        "if tick is None or self._pending:",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "distances do not add up",
        "geo/subscription/snapshot_cache.py",
        "self._gaps[place + 1] += self._gaps[place]",
        "self._gaps[place + 1] = self._gaps[place]",
        ("subscription/test_snapshot_cache.py",),
    ),
    Fault(
        "an equal position follows the last",
        "geo/subscription/snapshot_cache.py",
        "if snapshot.local_position <= last:",
        "if snapshot.local_position < last:",
        ("subscription/test_snapshot_cache.py",),
    ),
    # the same on real tables
    Fault(
        "what makes snapshots void is not told",
        "geo/subscription/marker_tail.py",
        "yield from _void(what)",
        "yield from ()",
        ("subscription/test_marker_tail.py",),
        spark=True,
    ),
    Fault(
        "snapshots outlive that the place in the log is lost",
        "geo/subscription/marker_tail.py",
        "return _void(str(error), at.table_id if is_other else None)",
        "return []",
        ("subscription/test_marker_tail.py",),
        spark=True,
    ),
    Fault(
        "a comparison of both logs makes no snapshot void",
        "geo/subscription/disorder.py",
        'return f"comparison of {record.link}"',
        "return None",
        ("subscription/test_disorder.py",),
    ),
    Fault(
        "what a link brought of commits that are gone from its source counts as in order",
        "geo/subscription/disorder.py",
        "len(passed) < record.cursor.version - before.version",
        "len(passed) < 0",
        ("subscription/test_disorder.py",),
    ),
    Fault(
        "a fault on the way back to who asks is not seen",
        "geo/subscription/asked.py",
        "[*pairwise(there), *pairwise(back)]",
        "pairwise(there)",
        ("subscription/test_asked.py",),
    ),
    Fault(
        "an answer waits for another one for ever",
        "geo/subscription/marker_tail.py",
        "is_due = has_waited or not all(waits)",
        "is_due = not all(waits)",
        ("subscription/test_marker_tail.py",),
        spark=True,
    ),
    Fault(
        "of a topic that is left it is not told what waited",
        "geo/subscription/marker_tail.py",
        "[*one.held, *(Unsubscribed",
        "[*(Unsubscribed",
        ("subscription/test_marker_tail.py",),
        spark=True,
    ),
    Fault(
        "a tail begins at the newest version, not where the last one was",
        "geo/subscription/marker_tail.py",
        "self._journal.looked_at.get(str(topic)) or LookedAt(tail.at, newest)",
        "LookedAt(tail.at, newest)",
        ("subscription/test_marker_tail.py",),
        spark=True,
    ),
    Fault(
        "who cannot answer is asked all the same",
        "geo/subscription/marker_tail.py",
        " if used else {}",
        " if not used else {}",
        ("subscription/test_marker_tail.py",),
        spark=True,
    ),
    Fault(
        "a controller that rests is told the time again and again",
        "geo/subscription/marker_tail.py",
        "(str(one.topic), -1) >= one.last_seq",
        "(str(one.topic), -1) > one.last_seq",
        ("subscription/test_marker_tail.py",),
        spark=True,
    ),
    Fault(
        "a topic without a subscription any more leaves the ones it had",
        "geo/subscription/marker_tail.py",
        "heard += self._left(self._followed.pop(topic))",
        "self._followed.pop(topic)",
        ("subscription/test_marker_tail.py",),
        spark=True,
    ),
    Fault(
        "a payload is read back as the text that stands for it",
        "geo/subscription/marker_journal.py",
        'fields["payload"] = base64.b64decode(fields["payload"])',
        "pass",
        ("subscription/test_marker_journal.py -k as_it_was_written",),
    ),
    Fault(
        "numbers go back with the clock",
        "geo/subscription/marker_journal.py",
        "max(self._last + 1, now_us())",
        "now_us()",
        ("subscription/test_marker_journal.py",),
        spark=True,
    ),
    Fault(
        "the newest row of a topic at rest is dropped when it is old",
        "geo/subscription/marker_journal.py",
        "OR seq IN (",
        "OR seq IN (-1) AND seq IN (",
        ("subscription/test_marker_journal.py",),
        spark=True,
    ),
    Fault(
        "a batch that is replayed writes its markers again",
        "geo/subscription/controller_query.py",
        " and seq > publisher.published_up_to",
        "",
        ("subscription/test_version_sync.py -k written_once",),
        spark=True,
    ),
    Fault(
        "markers carry the number of the first row they follow from",
        "geo/subscription/controller_query.py",
        "publisher.publish_markers(rows, effects[-1][0])",
        "publisher.publish_markers(rows, effects[0][0])",
        ("subscription/test_version_sync.py -k written_once",),
        spark=True,
    ),
    Fault(
        "nobody hears that a controller rests",
        "geo/subscription/controller_query.py",
        "rests[topic] = seq",
        "rests[''] = seq",
        ("subscription/test_version_sync.py -k of_three",),
        spark=True,
        hangs=True,
    ),
    Fault(
        "a cluster without version subscriptions answers nobody",
        "geo/subscription/version_sync.py",
        "if any(peer.said.subscriptions for peer in self._peers.values()):",
        "if False:",
        ("subscription/test_version_sync.py -k written_once",),
        spark=True,
        hangs=True,
    ),
    Fault(
        "a pass whose controllers fail is begun again for ever, since its tail tells something",
        "geo/subscription/version_sync.py",
        "return self.markers or None",
        "return time.monotonic()",
        ("subscription/test_version_sync.py -k written_once",),
        spark=True,
        hangs=True,
    ),
    Fault(
        "markers that controllers need not hear count as unread",
        "geo/subscription/sync_state.py",
        "return others or any(",
        "return True or any(",
        ("subscription/test_version_status.py -k holds_it_up",),
        spark=True,
    ),
    Fault(
        "what another cluster told counts as found out here",
        "geo/subscription/version_starts.py",
        'row["sender"] or me',
        "me",
        ("subscription/test_version_status.py -k source_is_gone",),
        spark=True,
    ),
    Fault(
        "what others told is let go of with a subscription that is deleted here",
        "geo/subscription/version_starts.py",
        ' if row["sender"] is None]',
        "]",
        ("subscription/test_version_status.py -k was_told",),
        spark=True,
    ),
    Fault(
        "progress goes back",
        "geo/subscription/version_subscriptions.py",
        "if there.finished is not None and version < there.finished:",
        "if False:",
        ("subscription/test_version_subscriptions.py -k never_backward",),
        spark=True,
    ),
    Fault(
        "a version whose commit is gone can be finished",
        "geo/subscription/version_subscriptions.py",
        "if version > newest or not log.has_commit(version):",
        "if version > newest:",
        ("subscription/test_version_subscriptions.py -k commit_is_gone",),
        spark=True,
    ),
    Fault(
        "versions of a log that was made anew are taken for the old ones",
        "geo/subscription/version_subscriptions.py",
        "if one.table_id != table_id:",
        "if False:",
        ("subscription/test_version_subscriptions.py -k made_anew",),
        spark=True,
    ),
    Fault(
        "a snapshot counts though another cluster is to be asked since",
        "geo/subscription/controller.py",
        "                self._voided = tick.seq\n                self._forget_snapshots()",
        "                self._voided = tick.seq",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "a snapshot of which only the own row is heard takes away those that came after it",
        "geo/subscription/controller.py",
        "if self._last_place is not None and Position(*taken.snapshot.local_position).version < self._last_place.version:",
        "if False:",
        ("subscription/test_controller.py",),
    ),
    Fault(
        "an update that could not be written is not told again",
        "geo/subscription/controller_query.py",
        "self._lost_updates[topic] = max(updates)",
        "pass",
        ("subscription/test_version_sync.py -k written_once",),
        spark=True,
    ),
    Fault(
        "the controllers do not begin beside what a state store left",
        "geo/subscription/controller_query.py",
        'remove_folder(f"{place}/state")',
        "pass",
        ("subscription/test_version_sync.py -k written_once",),
        spark=True,
    ),
    Fault(
        "an answer counts though messages of one who is not asked come to both",
        "geo/subscription/controller.py",
        "return {*answer.holds} & {*tick.comes} - {*tick.asked, self.cluster}",
        "return set()",
        ("subscription/test_controller.py", "model/test_pip33.py"),
    ),
    Fault(
        "whose messages a link brings is not told before the policies say so",
        "geo/subscription/marker_tail.py",
        "return tuple(sorted({*ways.back, *one.brought, *unheard}))",
        "return tuple(sorted({*ways.back, *unheard}))",
        ("subscription/test_marker_tail.py",),
        spark=True,
    ),
    # where tables lie
    Fault(
        "what a commit adds is not written out",
        "geo/tables/durable.py",
        "sync(_with_checksum(added))",
        "sync(())",
        ("tables/test_power_cut.py",),
        spark=True,
    ),
    Fault(
        "a driver that died on this host is taken for one that lives",
        "geo/tables/sole_driver.py",
        "if self.process.is_here:\n            return self.process.lives",
        "if self.process.is_here:\n            return True",
        ("tables/test_sole_driver.py",),
        spark=True,
    ),
    Fault(
        "a setting of one bucket reaches all",
        "geo/config/spark_conf.py",
        'key.startswith(f"{_BUCKET}{bucket}.")',
        'key.startswith(f"{_BUCKET}")',
        ("config/test_spark_conf.py",),
    ),
    # bundles of several brokers
    Fault(
        "what was lent to secondary brokers is given back though the primary one cannot bear it",
        "geo/fleet/placement/leading.py",
        "bears = 100 * (usages[target] + then) < BACK_BELOW * isolation.usage_threshold",
        "bears = True",
        ("fleet/placement/test_leading.py",),
    ),
    Fault(
        "the parts of a bundle come between the namespaces of its group",
        "geo/fleet/placement/manager.py",
        "and not company and view.may_leave(",
        "and view.may_leave(",
        ("fleet/placement/test_manager.py",),
    ),
    Fault(
        "other settings forget what was moved",
        "geo/fleet/placement/manager.py",
        "self._unloaded |= before._unloaded",
        "pass",
        ("fleet/placement/test_leading.py",),
    ),
    Fault(
        "a bundle that is never released is tried to be split again and again",
        "geo/fleet/placement/leading.py",
        "* float(2 ** min(times - 1, MOST_DOUBLINGS))",
        "* 1.0",
        ("fleet/placement/test_leading.py",),
    ),
    Fault(
        "what a person moved is shed at once",
        "geo/fleet/placement/manager.py",
        '''it is not unloaded within the grace period."""
        self._unloaded[bundle] = now''',
        '''it is not unloaded within the grace period."""''',
        ("fleet/placement/test_leading.py",),
    ),
    Fault(
        "of two bundles that people have given up at once both go to the same broker",
        "geo/fleet/placement/leading.py",
        "self._manager.elsewhere(one.bundle, old.broker, reports, facts.policies, on_the_way)",
        "self._manager.elsewhere(one.bundle, old.broker, reports, facts.policies, {})",
        ("fleet/placement/test_leading.py",),
    ),
    Fault(
        "a bundle goes to a broker that isolation forbids",
        "geo/fleet/placement/manager.py",
        "of_all = self._allowed.brokers(namespace)",
        "of_all = list(self.reports)",
        ("fleet/placement/test_manager.py",),
    ),
    Fault(
        "a bundle that was unloaded is unloaded again at once",
        "geo/fleet/placement/manager.py",
        "self._unloaded = {bundle: at for bundle, at in self._unloaded.items() if at >= since}",
        "self._unloaded = {}",
        ("fleet/placement/test_manager.py",),
    ),
    Fault(
        "a namespace of a group is moved though that helps nobody",
        "geo/fleet/placement/holders.py",
        "return after < before",
        "return after <= before",
        ("fleet/placement/test_holders.py",),
    ),
    Fault(
        "what is shed crowds its anti-affinity group",
        "geo/fleet/placement/holders.py",
        "return after > before",
        "return False",
        ("fleet/placement/test_manager.py",),
    ),
    Fault(
        "what leaves a broker still counts there for its anti-affinity group",
        "geo/fleet/placement/manager.py",
        "view.remove(move.bundle, move.broker)",
        "pass",
        ("fleet/placement/test_manager.py",),
    ),
    Fault(
        "all that a broker holds of a namespace is moved, though others hold parts of it",
        "geo/fleet/placement/manager.py",
        "and len(self.holders.of(namespace)) == 1:",
        "and self.holders.of(namespace):",
        ("fleet/placement/test_manager.py",),
    ),
    Fault(
        "a namespace is parted to a broker that gives it back",
        "geo/fleet/placement/manager.py",
        "of_all = self._allowed.always(namespace)",
        "of_all = self._allowed.brokers(namespace)",
        ("fleet/placement/test_manager.py",),
    ),
    Fault(
        "what is on its way to a broker does not count there",
        "geo/fleet/placement/leading.py",
        "if broker in reports and bundle not in reports[broker].bundles and",
        "if broker not in reports and",
        ("fleet/placement/test_leading.py",),
    ),
    Fault(
        "a failure domain that holds many of a group counts as one that holds few",
        "geo/fleet/placement/holders.py",
        "(in_domain[there] + comes, ",
        "(0, ",
        ("fleet/placement/test_manager.py",),
    ),
    Fault(
        "secondary brokers give back as soon as a primary one is just below its threshold",
        "geo/fleet/placement/policies.py",
        "BACK_BELOW = 0.8",
        "BACK_BELOW = 1.0",
        ("fleet/placement/test_policies.py",),
    ),
    Fault(
        "a broker begins with a bundle that another one has and did not release",
        "geo/fleet/placement/handover.py",
        "claim.released or claim.generation == wanted.take_over)",
        "claim.released or True)",
        ("model/test_handover.py",),
    ),
    Fault(
        "a bundle is taken over from a broker that lives and has had no time to release it",
        "geo/fleet/placement/handover.py",
        "take_over = claim.generation if late or claim.broker not in living else None",
        "take_over = claim.generation",
        ("model/test_handover.py", "fleet/placement/test_leading.py"),
    ),
    Fault(
        "what an owner does not release in time is never taken over",
        "geo/fleet/placement/handover.py",
        "late = now - since > release_timeout_s",
        "late = False",
        ("model/test_handover.py", "fleet/placement/test_leading.py"),
    ),
    Fault(
        "a bundle is split while somebody owns it",
        "geo/fleet/placement/leading.py",
        "(said is not None and said.broker == NOBODY) and (claim is None or claim.released):",
        "(said is not None and said.broker == NOBODY):",
        ("fleet/placement/test_leading.py",),
    ),
    Fault(
        "what a person asked for is done again and again",
        "geo/fleet/placement/leading.py",
        "one.number <= old.request",
        "one.number < old.request",
        ("fleet/placement/test_leading.py",),
    ),
    Fault(
        "one that is dead is never seen to be so where looks take long",
        "geo/fleet/placement/leading.py",
        "elif (unseen := now - self._last - most_s) > 0:",
        "elif (unseen := now - self._last) > most_s:",
        ("fleet/placement/test_leading.py",),
    ),
    Fault(
        "a bundle that nobody may own has a decision taken each second",
        "geo/fleet/placement/leading.py",
        "not (set(waiting) - self._stuck or",
        "not (waiting or",
        ("fleet/placement/test_leading.py",),
    ),
    Fault(
        "a topic is in each bundle that begins below its hash",
        "geo/fleet/placement/bundles.py",
        "lower <= at and (at < upper or at == upper == LAST)",
        "lower <= at",
        ("fleet/placement/test_bundles.py",),
    ),
    # files on a disk
    Fault(
        "what the sums say is not asked",
        "geo/tables/sums.py",
        'or sums[_HEADER.size :] != b"".join(_summed(file, part))',
        "or not sums",
        ("tables/test_damage.py -k this_process",),
        spark=True,
    ),
    Fault(
        "pages are not asked for their sums",
        "geo/tables/places.py",
        "page_checksum_verification=True",
        "page_checksum_verification=False",
        ("tables/test_damage.py -k pages",),
        spark=True,
    ),
    Fault(
        "the newest version is the one that was seen",
        "geo/tables/delta_log.py",
        "_last_behind(folder, seen)",
        "seen",
        ("tables/test_delta_log.py",),
    ),
    Fault(
        "what a process left that died making a table stays",
        "geo/tables/native_create.py",
        "            _remove_left(folder)\n            folder.rmdir()",
        "            _remove_left(folder)",
        ("tables/test_native_create.py -k stops_here",),
        spark=True,
    ),
    Fault(
        "a log in the place of one that was written out counts as written out",
        "geo/tables/durable.py",
        "and commit_stamp(log_folder, version) == stamp",
        "and stamp",
        ("tables/test_power_cut.py -k in_the_place",),
        spark=True,
    ),
    Fault(
        "of records that tasks fold those of one task count",
        "geo/subscription/acks/fold.py",
        "merged([self.states[key], state] if key in self.states else [state])",
        "state",
        ("subscription/acks/test_fold.py",),
    ),
    Fault(
        "states beyond the first slice are not folded",
        "geo/subscription/acks/fold_query.py",
        "            held, size = [], 0\n",
        "            return\n",
        ("subscription/acks/test_fold_query.py -k many_at_once",),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--no-spark", action="store_true", help="only what needs no Spark")
    args = parser.parse_args()
    chosen = [f for f in FAULTS if not args.words or any(word in f.file or word in f.what for word in args.words)]
    survived = 0
    with tempfile.TemporaryDirectory(prefix="geo-planted-") as folder:
        copy_checkout(Path(folder), _COPIED)
        for fault in chosen:
            if fault.spark and args.no_spark:
                continue
            began = time.monotonic()
            caught = _caught_by(Path(folder), fault)
            survived += caught is None
            print(f"{caught or 'SURVIVED'}\n    {fault.file}: {fault.what} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{survived} survived" if survived else "all were caught")
    return 1 if survived else 0


def copy_checkout(folder: Path, names: Iterable[str]) -> None:
    """Copy these files and folders of the repository, to be changed."""
    for name in names:
        copy = shutil.copytree if (HERE / name).is_dir() else shutil.copy
        copy(HERE / name, folder / name)


def _caught_by(checkout: Path, fault: Fault) -> str | None:
    """The first test that fails with the fault in the checkout, or the file of one that does not end. The checkout is whole again
    afterwards."""
    file = checkout / fault.file
    whole = file.read_text(encoding="utf-8")
    if whole.count(fault.right) != 1:
        raise SystemExit(f"{fault.file}: {fault.right!r} is there {whole.count(fault.right)} times")
    file.write_text(whole.replace(fault.right, fault.wrong), encoding="utf-8")
    try:
        for asked in fault.asked:
            path, *more = asked.split(" ", 2)
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"tests/{path}", *more]
            try:
                done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=_LIMIT_S)
            except subprocess.TimeoutExpired:
                if not fault.hangs:
                    raise SystemExit(f"{' '.join(command)} does not end within {_LIMIT_S} s") from None
                return f"tests/{path} (does not end)"
            if found := re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE):
                return found[1]
            if done.returncode not in (0, 1):
                raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return None
    finally:
        file.write_text(whole, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
