"""What the log of a rank says of its failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.runs.records import Failure
from castoff.launcher.runs.states import failure_words, in_short
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
        ("/r/attempts/0.0/script: line 3: x: not found\n", 127, "script: line 3: x: not found"),
        ("/usr/bin/python3: can't open file '/a/b.py': x\n", 2, "python3: can't open file '/a/b.py': x"),
        ("begins\nFileNotFoundError: no shard\n", 1, "FileNotFoundError: no shard"),
        ("begins\n", 1, None),
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


def test_a_rank_that_was_killed_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank-00001.log").write_text("ValueError: of another program\n")
    failure = Failure(137, 1, "n1", signal="SIGKILL", log="rank-00001.log")
    assert explained(failure, tmp_path) == failure


@pytest.mark.parametrize("log", ["stage.log", "../job-3.log"])
def test_staging(log: str, tmp_path: Path) -> None:
    """The script writes the log if it finds the mistake before it asks the nodes."""
    logs = tmp_path / "3.0"
    logs.mkdir()
    (logs / log).write_text("castoff: stage: on n1: cannot copy /a\ncastoff: staging failed\n")
    failure = explained(Failure(1, None, "n1", log="stage.log", program="staging"), logs)
    assert failure is not None and failure.detail == "on n1: cannot copy /a"


def test_in_short_the_cause_comes_first() -> None:
    failure = Failure(1, 1, "n1", detail="ValueError: no")
    assert in_short(failure, "not requeued") == (
        "ValueError: no; rank 1 on n1 failed first: exit code 1; not requeued"
    )
    assert in_short(None, "not requeued") == "not requeued" and in_short(None, None) == ""
