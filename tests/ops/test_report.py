"""What `geo verify` says, from what it found. Pure."""

from __future__ import annotations

from dataclasses import replace

from geo.ops.verify.report import MEANING, Category, ClusterResult, Difference, LinkResult, VerifyReport

TOPIC = "persistent://shop/web/clicks"
IN_FLIGHT = Difference(Category.IN_FLIGHT, 3, ("eu:1:7",))
CLEAN = VerifyReport(
    (TOPIC,),
    (LinkResult(TOPIC, "us->eu", "STOPPED", 9, 1_000, ()), LinkResult(TOPIC, "eu->us", None, None, 500, (IN_FLIGHT,))),
    (ClusterResult(TOPIC, "eu", 9, 1_500, ()), ClusterResult(TOPIC, "us", 8, 1_497, ())),
    ("a note",),
)


def test_what_is_in_flight_is_reported_and_clean() -> None:
    assert CLEAN.clean
    assert CLEAN.lines() == [
        f"{TOPIC}  us->eu: 1,000 compared, 0 missing, 0 unexpected, 0 different, 0 in flight, 0 expired",
        f"{TOPIC}  eu->us: 500 compared, 0 missing, 0 unexpected, 0 different, 3 in flight, 0 expired",
        "note: a note",
        "clean: 1 topic, 2 links, 1,500 messages compared, 3 in flight",
    ]


def test_each_fault_is_named_with_what_it_means_and_examples_and_a_name_cannot_forge_a_line() -> None:
    missing, holes = (
        Difference(Category.MISSING, 2_000, ("us:1:5", "us:1:6")),
        Difference(Category.HOLES, 1, ("evil\n\x1b[2J:1:0",)),
    )
    report = VerifyReport(
        (TOPIC, "persistent://a/b/c\nclean"),
        (LinkResult(TOPIC, "us->eu", "FAILED", 9, 1, (missing, Difference(Category.EXPIRED, 4, ()))),),
        (ClusterResult("persistent://a/b/c\nclean", "eu", 9, 10, (holes,)),),
        (),
        by_content=False,
    )
    assert not report.clean
    assert report.lines() == [
        f"{TOPIC}  us->eu: 1 counted, 2,000 missing, 0 unexpected, 0 different, 0 in flight, 4 expired",
        "NOT CLEAN: 2,000 missing, 1 hole; 2 topics, 1 link, 1 message counted, 0 in flight",
        "  missing: recorded as replicated, but the target lacks them; `geo reconcile` of the link appends them",
        f"    {TOPIC}  us->eu: 2,000, such as us:1:5, us:1:6",
        f"  holes: {MEANING[Category.HOLES]}",
        "    persistent://a/b/c\ufffdclean  eu: 1, such as evil\ufffd\ufffd[2J:1:0",
    ]


def test_a_fault_beside_messages_makes_a_report_not_clean() -> None:
    report = replace(CLEAN, faults=("us->eu is FAILED: why",))
    assert not report.clean
    assert report.lines()[-2:] == [
        "fault: us->eu is FAILED: why",
        "NOT CLEAN: 1 fault; 1 topic, 2 links, 1,500 messages compared, 3 in flight",
    ]


def test_the_json_of_a_report() -> None:
    none = {"missing": 0, "unexpected": 0, "different": 0, "in_flight": 0, "expired": 0, "impossible": 0}
    clean = {"duplicates": 0, "holes": 0, "unexpected": 0}
    assert CLEAN.to_json() == {
        "clean": True,
        "by_content": True,
        "compared": 1_500,
        "topics": [TOPIC],
        "totals": {**none, **clean, "in_flight": 3},
        "links": [
            {"topic": TOPIC, "link": "us->eu", "state": "STOPPED", "end": 9, "compared": 1_000, **none},
            {"topic": TOPIC, "link": "eu->us", "state": None, "end": None, "compared": 500, **none, "in_flight": 3},
        ],
        "clusters": [
            {"topic": TOPIC, "cluster": "eu", "version": 9, "messages": 1_500, **clean},
            {"topic": TOPIC, "cluster": "us", "version": 8, "messages": 1_497, **clean},
        ],
        "findings": [{"category": "in_flight", "topic": TOPIC, "where": "eu->us", "count": 3, "examples": ["eu:1:7"]}],
        "notes": ["a note"],
        "faults": [],
    }


def test_the_tables_of_a_report_in_a_notebook() -> None:
    assert repr(CLEAN) == "<VerifyReport clean: 1 topic, 2 links, 1,500 messages compared, 3 in flight>"
    sections = replace(CLEAN, faults=("a fault",)).sections()
    assert list(sections) == ["links", "clusters", "findings", "faults and notes"]
    assert sections["links"] == CLEAN.to_json()["links"]
    assert sections["clusters"] == CLEAN.to_json()["clusters"]
    assert sections["findings"] == [
        {"category": "in flight", "topic": TOPIC, "where": "eu->us", "count": 3, "examples": ("eu:1:7",)}
    ]
    assert sections["faults and notes"] == [{"": "fault", "what": "a fault"}, {"": "note", "what": "a note"}]
