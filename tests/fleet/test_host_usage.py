"""What a broker may use of its host."""

from __future__ import annotations

from pathlib import Path

import pytest

from geo.fleet.host_usage import cores


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"cpu.max": "50000 100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "25000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.25),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "100000000 100000\n"}, None),
        ({}, None),
    ],
)
def test_a_container_s_quota_is_what_a_broker_may_use_and_without_one_the_host_s_cores(
    files: dict[str, str], found: float | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores(tmp_path) == (cores(tmp_path / "none") if found is None else found)
    assert cores(tmp_path) >= 0.25
