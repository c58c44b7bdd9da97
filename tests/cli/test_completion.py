"""What the shell is told when it asks for what may follow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("geo su", {"subscriptions"}),
        ("geo subscriptions st", {"status"}),
        ("geo verify --qu", {"--quick"}),
        ("geo peek --engine ", {"auto", "native", "spark"}),
    ],
)
def test_the_shell_is_told_verbs_options_and_choices(typed: str, expected: set[str], tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": typed, "COMP_POINT": str(len(typed)), "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
             "_ARGCOMPLETE_IFS": "\n"}  # fmt: skip
    subprocess.run([sys.executable, "-m", "geo"], env={**os.environ, **asked}, check=True, timeout=60)
    assert {word.strip() for word in answer.read_text().split("\n")} == expected
