"""Versions that are mixed: of the program, in the processes that own something here, and of the schemas of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from geo.coordination.claims import Owner
from geo.delta.process import Process
from geo.errors import SchemaError
from geo.faults import Tried, reason_of
from geo.journal.cluster import ClusterTables
from geo.ops.symptom import Symptom
from geo.reasons import Reason
from geo.schemas import JOURNALS, MARKERS, PROCESSES
from geo.text import first_line
from geo.version import program_version


def of_tables(tables: ClusterTables) -> Iterator[Symptom]:
    """Judges each system table that this program does not know, or that cannot be read."""
    for schema in tables.there((*JOURNALS, MARKERS)):
        with Tried() as tried:
            tables.journal(schema).exists()
        if (fault := tried.fault) is not None:
            fix = "upgrade delta-geo here, or move that table away" if isinstance(fault, SchemaError) else "restore the table"
            yield Symptom("error", f"cluster {tables.cluster.name}", first_line(fault), fix, reason_of(fault))


def of_processes(tables: ClusterTables, living: Iterable[Owner]) -> Iterator[Symptom]:
    """Judges each process that owns something here, as `living` says, and runs another version of this program than this one."""
    if not (mine := program_version()):
        return  # a zip has none
    names = {process.name: process for one in living if (process := Process.decode(one.holder)) is not None}
    for row in tables.journal(PROCESSES).newest(process=list(names)):
        if (theirs := row["program"]) and theirs != mine:
            what = f"{names[row['process']]} runs delta-geo {theirs}, this one is {mine}"
            fix = "let all processes of a region, and then of all regions, run the same version"
            yield Symptom("warn", f"cluster {tables.cluster.name}", what, fix, Reason.SETUP)
