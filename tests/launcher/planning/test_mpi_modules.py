from __future__ import annotations

from typing import Any

import pytest

from launcher import plan
from launcher.config.job import JobSpec
from launcher.config.site import Site

NEEDED: dict[str, dict[str, Any]] = {
    "polaris": {"account": "p", "queue": "debug", "directives": {"pbs": {"filesystems": "home"}}}
}


def said(site: str, *setup: str, **fields: Any) -> list[str]:
    job = {"command": ["./solve"], "walltime": "5m", **NEEDED.get(site, {}), **fields}
    notes = plan(JobSpec.of({**job, "setup": list(setup)}), Site.load(site)).notes
    return [note for note in notes if note.startswith("setup loads ")]


@pytest.mark.parametrize(
    ("site", "setup", "module", "launcher", "fix"),
    [
        ("pbs", ["module load gcc openmpi/4.1.6  # with UCX"], "openmpi/4.1.6", "hydra", "openmpi"),
        ("pbs", ["cd /x && ml GCC OpenMPI"], "OpenMPI", "hydra", "openmpi"),
        ("pbs", ["module swap openmpi cray-mpich"], "cray-mpich", "hydra", "pals"),
        ("pbs", ["module load intel-oneapi-mpi"], "intel-oneapi-mpi", "hydra", "intelmpi"),
        ("polaris", ["module load cray-mpich", "module load openmpi"], "openmpi", "pals", "openmpi"),
    ],
)
def test_an_mpi_that_the_sites_launcher_does_not_start(
    site: str, setup: list[str], module: str, launcher: str, fix: str
) -> None:
    expected = f"setup loads {module}, and the site's launcher is {launcher}: set launcher.name: {fix}"
    assert said(site, *setup) == [expected]
    assert said(site, *setup, launcher={"name": fix}) == []


@pytest.mark.parametrize(
    ("site", "setup"),
    [
        ("pbs", ["module load mpich"]),
        ("pbs", ["module unload openmpi", "echo module load openmpi", "ml -openmpi"]),
        ("pbs", ["module load openmpi", "module load mpich"]),
        ("slurm", ["module load openmpi"]),
        ("local", ["module load openmpi"]),
    ],
)
def test_nothing_where_they_fit(site: str, setup: list[str]) -> None:
    assert said(site, *setup) == []
