"""Runs on this machine that the tests of this folder look back at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from castoff import JobSpec, Run, Site, submit
from tests import patience

from ..conftest import LocalJobs


@pytest.fixture
def ended(jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Runs a line of shell to its end."""
    monkeypatch.chdir(jobs.folder)

    def run(sh: str, **fields: object) -> Run:
        run = submit(JobSpec(command=["sh", "-c", sh], **fields), Site.load("local"))  # type: ignore[arg-type]
        run.wait(patience.SECONDS)
        return run

    return run
