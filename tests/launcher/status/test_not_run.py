"""What the log of a rank says of a program that could not be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.runs.records import Failure
from castoff.launcher.runs.states import failure_words
from castoff.launcher.status.attempt import explained

NO_PYTHON = (
    "no python on this job's PATH (/bin): have setup activate its environment, or set the field python"
)


@pytest.mark.parametrize(
    ("log", "code", "detail"),
    [
        (f"rank.sh: 32: exec: python: not found\ncastoff: {NO_PYTHON}\n", 127, NO_PYTHON),
        ("begins\nbash: line 1: ./x: Permission denied\nends\n", 126, "bash: line 1: ./x: Permission denied"),
        ("begins\n", 127, None),
        ("FileNotFoundError: No such file or directory\n", 1, None),
    ],
)
def test_only_where_it_is_known(log: str, code: int, detail: str | None, tmp_path: Path) -> None:
    (tmp_path / "rank-00001.log").write_text(log)
    failure = explained(Failure(code, 1, "n1", log="rank-00001.log"), tmp_path)
    assert failure is not None and failure.detail == detail
    assert failure_words(failure).endswith(f": exit code {code}" + (f" ({detail})" if detail else ""))


def test_without_a_log(tmp_path: Path) -> None:
    failure = Failure(127, 1, "n1", log="rank-00001.log")
    assert explained(failure, tmp_path) == failure and explained(None, tmp_path) is None
