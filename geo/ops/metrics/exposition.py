"""Writes metrics as text: Prometheus' format 0.0.4, and OpenMetrics 1.0. Pure.

Libraries for Prometheus keep a registry of objects. Here all series are of one look, so a writer of strings is enough: 26,000 series take some
hundredths of a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""Content types of both formats."""


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics of one name. `kind`: a gauge, a counter (its name ends with `_total`), or `info`, which is 1 and tells by its labels. `labels`: their
    names, in the order of the values of each series."""

    name: str
    kind: Literal["gauge", "counter", "info"]
    help: str
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class Series:
    """Series of a family at one moment: values by the values of the labels. What is not known has no series."""

    family: Family
    values: list[tuple[tuple[str, ...], float]] = field(default_factory=list)

    def add(self, value: float | None, *labels: str) -> None:
        """Adds a series. None: it is not known, and there is none."""
        if value is not None:
            self.values.append((labels, value))


def text(metrics: Iterable[Series], *, open_metrics: bool = False) -> str:
    """Writes all series, family by family, in the order given. A family without series is left out."""
    lines = [line for samples in metrics if samples.values for line in _lines(samples, open_metrics=open_metrics)]
    if open_metrics:
        lines.append("# EOF")
    return "".join(f"{line}\n" for line in lines)


def _lines(samples: Series, *, open_metrics: bool) -> Iterator[str]:
    family = samples.family
    name = family.name.removesuffix("_total").removesuffix("_info") if open_metrics else family.name
    kind = "gauge" if family.kind == "info" and not open_metrics else family.kind
    yield f"# HELP {name} {_escaped(family.help, quotes=open_metrics)}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples.values:
        yield f"{family.name}{_labels(family.labels, labels)} {_number(value)}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escaped(value: str, *, quotes: bool) -> str:
    if "\\" in value or "\n" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace("\n", "\\n")
        value = value.replace('"', '\\"') if quotes else value
    return value


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
