"""What tests read of a run's records."""

from __future__ import annotations

from castoff.launcher.runs.records import Submission
from castoff.launcher.runs.run import RunDirectory


def submission_of(run: RunDirectory) -> Submission:
    """How a run was submitted, which has to be on record."""
    found = run.submission()
    assert found is not None, f"{run.path} has no submission.json, or a damaged one"
    return found
