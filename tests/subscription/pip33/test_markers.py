"""Markers: what is written is read back, byte for byte, and nothing else is taken for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.ids import END_INDEX, Position
from geo.replication.rule import CROSSING_MARKERS, MarkerKind
from geo.subscription.pip33.markers import (
    MAX_BYTES,
    MAX_CLUSTERS,
    Marker,
    MarkerRefusal,
    RefusedMarkerError,
    SnapshotRequest,
    SnapshotResponse,
    SnapshotTaken,
    SubscriptionUpdate,
    decode,
    encode,
)
from geo.subscription.pip33.snapshot_cache import Snapshot

ID = "eu:persistent://shop/web/clicks:1700000000000000"
AT = 1_700_000_000_000_000
EVERY: list[tuple[Marker, str]] = [
    (
        SnapshotRequest(ID, "eu", AT),
        '{"round":1,"snapshot_id":"ID","source_cluster":"eu","started_us":1700000000000000,"version":1}',
    ),
    (
        SnapshotResponse(ID, "eu", "us", Position.end(41), 2),
        '{"cluster":"us","position":[41,4503599627370496],"round":2,"snapshot_id":"ID","source_cluster":"eu","version":1}',
    ),
    (
        SnapshotResponse(ID, "eu", "us", Position.end(41), holds=("ap", "sa")),
        ('{"cluster":"us","holds":["ap","sa"],"position":[41,4503599627370496],"round":1,"snapshot_id":"ID",'
        '"source_cluster":"eu","version":1}'),
    ),
    (
        SnapshotTaken(Snapshot(ID, Position(9, 3), {"us": Position(41, 0), "ap": Position(7, 2)}, AT), 12, 8),
        ('{"begun":12,"clusters":{"ap":[7,2],"us":[41,0]},"local_position":[9,3],"moved":8,"snapshot_id":"ID",'
        '"started_us":1700000000000000,"version":1}'),
    ),
    (
        SubscriptionUpdate("billing", ID, AT, {"us": Position(41, 0), "ap": Position(7, 2)}),
        ('{"clusters":{"ap":[7,2],"us":[41,0]},"snapshot_id":"ID","started_us":1700000000000000,"subscription":"billing",'
        '"version":1}'),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("marker", "payload"), EVERY, ids=[marker.kind.value for marker, _ in EVERY])
def test_each_kind_has_one_form(marker: Marker, payload: str) -> None:
    written = payload.replace("ID", ID).encode()
    assert encode(marker) == written
    assert decode(marker.kind.value, written) == marker


def test_the_kinds_are_those_that_the_rule_knows_and_all_but_the_note_to_oneself_cross() -> None:
    assert {marker.kind for marker, _ in EVERY} == set(MarkerKind)
    assert {kind.value for kind in MarkerKind} - CROSSING_MARKERS == {"SNAPSHOT"}


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        (None, b"{}", MarkerRefusal.UNKNOWN_KIND),
        ("TXN_COMMIT", b"{}", MarkerRefusal.UNKNOWN_KIND),
        ("snapshot", b"{}", MarkerRefusal.UNKNOWN_KIND),
        (7, b"{}", MarkerRefusal.UNKNOWN_KIND),
        ("SNAPSHOT", None, MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b"", MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b"[]", MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b"{}", MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b"\xff", MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b"[" * 60_000, MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b"9" * 60_000, MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b'{"version":1,"version":1}', MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b'{"version":true}', MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b'{"version":0}', MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b'{"version":16}', MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b'{"version":NaN}', MarkerRefusal.MALFORMED),
        ("SNAPSHOT", b'{"version":2,"anything":[1]}', MarkerRefusal.NEWER_ENCODING),
        ("SNAPSHOT", b" " * (MAX_BYTES + 1), MarkerRefusal.TOO_LARGE),
    ],
)
def test_what_is_no_marker_is_refused_with_its_reason(kind: object, payload: object, reason: MarkerRefusal) -> None:
    with pytest.raises(RefusedMarkerError) as refused:
        decode(kind, payload)
    assert refused.value.reason is reason


@pytest.mark.parametrize("marker", [marker for marker, _ in EVERY], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(
    "wrong", [None, True, -1, 1.5, 2**53, "", "EU", "a\nb", "x" * 5000, [], [1], [1, -1], [1, True], {}, {"us": 1}, ["us", "ap"]]
)
def test_a_field_that_is_wrong_missing_or_too_many_is_refused(marker: Marker, wrong: object) -> None:
    fields = json.loads(encode(marker))
    for name in fields.keys() - {"version"}:
        for changed in ({**fields, name: wrong}, {one: value for one, value in fields.items() if one != name}):
            if changed == fields or (name == "snapshot_id" and wrong == "EU" and name in changed):
                continue
            if name == "holds" and name not in changed:  # it may be left out
                continue
            with pytest.raises(RefusedMarkerError, match="malformed"):
                decode(marker.kind.value, json.dumps(changed).encode())
    with pytest.raises(RefusedMarkerError, match="malformed: it has a field 'more'"):
        decode(marker.kind.value, json.dumps({**fields, "more": wrong}).encode())


@given(
    st.sampled_from([kind.value for kind in MarkerKind]), st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode))
)
def test_no_bytes_do_more_than_be_refused(kind: str, payload: bytes) -> None:
    with pytest.raises(RefusedMarkerError):
        decode(kind, payload)


def test_what_no_reader_would_take_is_not_written() -> None:
    with pytest.raises(RefusedMarkerError):
        encode(SubscriptionUpdate("billing", ID, AT, {f"c{n}": Position(1, 0) for n in range(MAX_CLUSTERS + 1)}))
    widest = {f"{n:0>3}" + "x" * 61: Position(2**53 - 1, END_INDEX) for n in range(MAX_CLUSTERS)}
    assert len(encode(SubscriptionUpdate("b" * 64, "x" * 600, AT, widest))) < 13_000
