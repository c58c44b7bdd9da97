"""What those who look are told: the findings of each screen, in one form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.broken.place import TOPIC, Place


@dataclass(frozen=True)
class Found:
    """A finding as a screen tells it. `since`: in seconds since 1970; None: it is not told. `what`: its sentence, `fix`: what to do."""

    where: str
    code: str | None
    since: float | None
    what: str
    fix: str
    health: str = ""


@dataclass(frozen=True)
class Screen:
    """A verb that looks: what it found, and its exit code."""

    code: int
    found: tuple[Found, ...]
    text: str


def since_of(text: str) -> float:
    """In seconds since 1970."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _since(text: str | None) -> float | None:
    return None if text is None else since_of(text)


def _of_doctor(one: Mapping[str, Any]) -> Found | None:
    if one["level"] == "ok" or one["code"] is None:
        return None
    return Found(one["where"], one["code"], _since(one["since"]), one["what"], one["fix"])


def _of_links(one: Mapping[str, Any]) -> Found | None:
    if "cannot_be_read" in one:
        return Found(f"cluster {one['cluster']}", one["code"], None, one["cannot_be_read"], "")
    return _of_link(one, one["topic"])


def _of_explained(one: Mapping[str, Any]) -> Found | None:
    return _of_link(one, str(TOPIC))


def _of_link(one: Mapping[str, Any], topic: str) -> Found | None:
    finding = one["finding"]
    if finding is None or finding["level"] == "ok":
        return None
    return Found(
        f"{one['link']}, {topic}", finding["code"], _since(finding["since"]), finding["reason"] or "", finding["do"] or ""
    )


def _of_status(one: Mapping[str, Any]) -> Found | None:
    where = f"{one['link']}, {one['subject']}" if one["link"] else f"cluster {one['subject']}"
    return Found(where, one["code"], _since(one["since"]), one["reason"], one["do"] or "", one["health"])


def _looked(place: Place, read: Callable[[Mapping[str, Any]], Found | None], *verb: str) -> Screen:
    said = place.geo(*verb, "--engine", "native", "-o", "json")
    rows = said.data["problems"] if isinstance(said.data, dict) else said.data or []
    rows = rows[0]["links"] if verb[0] == "explain" and rows else rows
    return Screen(said.code, tuple(found for one in rows if (found := read(one)) is not None), said.text)


def doctor(place: Place) -> Screen:
    return _looked(place, _of_doctor, "doctor")


def links(place: Place) -> Screen:
    return _looked(place, _of_links, "links", "status")


def status(place: Place) -> Screen:
    return _looked(place, _of_status, "status")


def explain(place: Place) -> Screen:
    return _looked(place, _of_explained, "explain", str(TOPIC))


SCREENS: Mapping[str, Callable[[Place], Screen]] = {
    "doctor": doctor,
    "explain": explain,
    "links status": links,
    "status": status,
}
