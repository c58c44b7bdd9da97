"""Metrics of a look at all regions: both formats are read by the parsers of prometheus-client, what is not known has no series, names of any kind
are labels, and too many topics are sums. Pure."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from geo.names import Topic
from geo.ops.backlog import UNKNOWN, Backlog
from geo.ops.health import Finding, Health
from geo.ops.metrics import status_metrics as families
from geo.ops.metrics.exposition import Family, Series, text
from geo.ops.metrics.status_metrics import FAMILIES, status_metrics
from geo.ops.status import ClusterFacts, StatusFacts, SubscriptionFacts, TopicOfLink, Verified, status_of
from geo.reasons import Reason, Wrong

NOW_US = 1_800_000_000_000_000
CLICKS, ORDERS = (Topic.parse(f"persistent://shop/web/{name}") for name in ("clicks", "orders"))


def _of_link(
    topic: Topic, health: Health, backlog: Backlog, code: Reason | None = None, since_us: int | None = None
) -> TopicOfLink:
    found = Finding(str(topic), "us->eu", str(topic), health, since_us, code, "why", "geo links restart")
    return TopicOfLink("us", "eu", topic, "RUNNING", found, backlog)


FACTS = StatusFacts(
    NOW_US,
    (
        ClusterFacts("eu", verified=Verified(NOW_US - 5_000_000, True, "clean"), host_ahead_us=-250_000),
        ClusterFacts("us"),
        ClusterFacts("ap", unreadable=Wrong(Reason.NO_ANSWER, "it does not answer", "wait")),
    ),
    [("us", "eu")],
    (
        _of_link(CLICKS, Health.OK, Backlog(0, 0.0)),
        _of_link(ORDERS, Health.STALLED, Backlog(310, 4.5, complete=False), Reason.OWNER_SILENT, NOW_US - 60_000_000),
    ),
    (
        SubscriptionFacts(ORDERS, "billing", "eu", 12, {("eu", "us"): 3}, {}),
        SubscriptionFacts(CLICKS, "none knows", "eu", None, {}, {}),
    ),
)


def _read(written: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read_text(written)
        for sample in family.samples
    }


def _of(name: str, written: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> dict[str, float]:
    return {",".join(f"{key}={value}" for key, value in labels): found for (one, labels), found in written.items() if one == name}


def test_a_look_as_metrics() -> None:
    found = _read(text(status_metrics(FACTS, status_of(FACTS), "1.2.3")))
    assert _of("geo_build_info", found) == {"version=1.2.3": 1}
    assert _of("geo_status_timestamp_seconds", found) == {"": 1.8e9}
    assert _of("geo_cluster_up", found) == {"geo_cluster=ap": 0, "geo_cluster=eu": 1, "geo_cluster=us": 1}
    assert _of("geo_broker_up", found) == {"geo_cluster=eu": 0, "geo_cluster=us": 0}, "of one that cannot be read nobody knows"
    assert _of("geo_link_topics", found) == {"source=us,state=RUNNING,target=eu": 2}
    at = "source=us,target=eu,topic=persistent://shop/web/"
    assert _of("geo_link_lag_messages", found) == {f"{at}clicks": 0, f"{at}orders": 310}
    assert _of("geo_link_lag_seconds", found) == {f"{at}clicks": 0, f"{at}orders": 4.5}
    assert _of("geo_link_unhealthy", found) == {f"health=STALLED,reason=OWNER_SILENT,{at}orders": 1}
    assert _of("geo_link_state_since_timestamp_seconds", found) == {f"health=STALLED,{at}orders": 1.8e9 - 60}
    assert _of("geo_subscription_backlog_messages", found) == {
        "geo_cluster=eu,subscription=billing,topic=persistent://shop/web/orders": 12
    }
    assert _of("geo_subscription_failover_repeats", found) == {
        "source=eu,subscription=billing,target=us,topic=persistent://shop/web/orders": 3
    }
    assert _of("geo_clock_skew_seconds", found) == {"geo_cluster=eu": -0.25, "geo_cluster=us": 0}
    assert _of("geo_verify_last_timestamp_seconds", found) == {"geo_cluster=eu": 1.8e9 - 5}
    assert _of("geo_verify_clean", found) == {"geo_cluster=eu": 1}
    assert _of("geo_problems", found) == {"level=error": 2, "level=warn": 0}
    assert _of("geo_metrics_dropped_series", found) == {"": 0}


def test_what_nobody_knows_has_no_series_and_a_lower_bound_of_nothing_has_none() -> None:
    facts = StatusFacts(
        NOW_US,
        (ClusterFacts("us"),),
        [("us", "eu")],
        (_of_link(CLICKS, Health.OK, UNKNOWN), _of_link(ORDERS, Health.OK, Backlog(0, 0.0, complete=False))),
    )
    found = _read(text(status_metrics(facts, status_of(facts), "1")))
    assert _of("geo_link_lag_messages", found) == {}
    assert _of("geo_link_lag_seconds", found) == {}


def test_of_too_many_topics_each_link_has_a_sum_and_that_is_said() -> None:
    found = _read(text(status_metrics(FACTS, status_of(FACTS), "1", most=1)))
    assert _of("geo_link_lag_messages", found) == {"source=us,target=eu,topic=*": 310}
    assert _of("geo_link_unhealthy", found) == {"health=STALLED,reason=OWNER_SILENT,source=us,target=eu,topic=*": 1}
    assert _of("geo_metrics_dropped_series", found) == {"": 2}


@given(
    st.lists(st.tuples(st.text(max_size=20), st.floats() | st.integers(-(2**53), 2**53)), unique_by=lambda one: one[0]), st.text()
)
def test_any_text_is_a_label_and_any_number_a_value_in_both_formats(series: list[tuple[str, float]], text_of_help: str) -> None:
    gauge = Series(Family("geo_any", "gauge", text_of_help, ("label",)))
    counter = Series(Family("geo_any_messages_total", "counter", "Help.", ("label",)))
    for label, value in series:
        gauge.add(value, label)
        counter.add(abs(value) if math.isfinite(value) else 1.0, label)
    wanted = {label: float(value) for label, value in series}
    for read, is_open in ((read_text, False), (read_open_metrics, True)):
        found = {
            sample.labels["label"]: sample.value
            for family in read(text([gauge, counter], open_metrics=is_open))
            for sample in family.samples
            if sample.name == "geo_any"
        }
        assert found.keys() == wanted.keys()
        assert all(found[key] == value or (math.isnan(found[key]) and math.isnan(value)) for key, value in wanted.items())


def test_both_formats_of_a_look_are_read_alike() -> None:
    metrics = status_metrics(FACTS, status_of(FACTS), "1")
    by_text = {
        (sample.name, tuple(sample.labels.items())): sample.value for one in read_text(text(metrics)) for sample in one.samples
    }
    by_open = {
        (sample.name, tuple(sample.labels.items())): sample.value
        for one in read_open_metrics(text(metrics, open_metrics=True))  # type: ignore[no-untyped-call]  # it has no types
        for sample in one.samples
    }
    assert by_text == by_open
    assert len(by_text) > 25


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.name)
def test_the_page_has_each_metric(family: Family) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/metrics.md").read_text()
    labels = ", ".join(family.labels)
    assert f"| `{family.name}` | {family.kind} | {labels} | {family.help} |" in page
    assert family in vars(families).values()
