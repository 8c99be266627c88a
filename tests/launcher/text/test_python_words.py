"""castoff's messages for Python programs."""

from __future__ import annotations

import pytest

from castoff import CastoffError, InvalidInput, JobSpec, StillRunning
from castoff.launcher.errors import Problem
from castoff.launcher.executors.parameters import job_of
from castoff.launcher.text.python_words import in_python, speaks_python


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("members 2-3 are done; --include-done restarts them", "include_done=True restarts them"),
        ("castoff resubmit --all-hosts does not exclude n1", "all_hosts=True does not exclude n1"),
        ("choose another folder with --runs-dir or CASTOFF_RUNS_DIR", "with runs_dir or CASTOFF_RUNS_DIR"),
        ("no such log; without --rank all existing output is shown", "; without rank all existing output"),
        ("submit this job later by --only train", "submit this job later by itself"),
    ],
)
def test_flags_become_arguments(message: str, expected: str) -> None:
    assert expected in in_python(message)


@pytest.mark.parametrize("message", ["sbatch: unrecognized option '--members'", "`castoff list --scan /x`"])
def test_of_others_they_stay(message: str) -> None:
    assert in_python(message) == message


def test_an_error_keeps_its_type_and_its_problems() -> None:
    with pytest.raises(StillRunning, match=r"^include_done=True$"), speaks_python():
        raise StillRunning("--include-done")
    with pytest.raises(InvalidInput) as caught, speaks_python():
        raise InvalidInput([Problem("a.yaml:1", "ranks", "x (--set ranks_per_node=null clears it)")])
    assert str(caught.value) == "a.yaml:1: ranks: x (ranks_per_node=None clears it)"
    assert caught.value.problems[0].path == "ranks"


@pytest.mark.parametrize(
    "fields", [{"ranks": 2, "ranks_per_node": 1}, {"array": {"count": 2, "indices": "1,2"}}]
)
def test_a_job_that_a_program_makes(fields: dict[str, object]) -> None:
    with pytest.raises(CastoffError, match="excludes") as caught:
        JobSpec(command=["x"], **fields)  # type: ignore[arg-type]
    assert "--" not in str(caught.value)
    with pytest.raises(CastoffError, match="excludes") as caught:
        job_of({"ranks": 2, "ranks_per_node": 1})
    assert str(caught.value).endswith("(ranks_per_node=None clears it)")
