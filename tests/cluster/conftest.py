"""The cluster that the tests share, and jobs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .hosts import why_no_hosts
from .slurm import PACKAGES, SlurmCluster


@pytest.fixture(scope="package")
def slurm(
    tmp_path_factory: pytest.TempPathFactory, system_program: Callable[[str, str], Path]
) -> Iterator[SlurmCluster]:
    """A real Slurm; it takes jobs, and what a test leaves on it ends with the test run."""
    if why := why_no_hosts():
        pytest.skip(why)
    for program, package in PACKAGES.items():
        system_program(program, package)
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.close()
