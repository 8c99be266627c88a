from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from castoff import Plan, plan
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from tests.conftest import SystemProgram

NEEDED: dict[str, dict[str, Any]] = {
    "polaris": {"account": "p", "queue": "debug", "directives": {"pbs": {"filesystems": "home"}}}
}


def planned(site: str | Site, *setup: str, **fields: Any) -> Plan:
    on = Site.load(site) if isinstance(site, str) else site
    job = {"command": ["./solve"], "walltime": "5m", **NEEDED.get(on.name, {}), **fields}
    return plan(JobSpec.of({**job, "setup": list(setup)}), on)


def said(made: Plan) -> list[str]:
    return [note for note in made.notes if note.startswith("setup loads ")]


@pytest.mark.parametrize(
    ("site", "setup", "module", "launcher"),
    [
        ("pbs", ["module load gcc openmpi/4.1.6  # with UCX"], "openmpi/4.1.6", "openmpi"),
        ("pbs", ["cd /x && ml GCC OpenMPI"], "OpenMPI", "openmpi"),
        ("pbs", ["module purge\nmodule load mpi/openmpi-x86_64"], "mpi/openmpi-x86_64", "openmpi"),
        ("pbs", ["module load nvhpc-hpcx-cuda12/24.9"], "nvhpc-hpcx-cuda12/24.9", "openmpi"),
        ("pbs", ["module load mpich", "module swap mpich cray-mpich"], "cray-mpich", "pals"),
        ("pbs", ["module load intel-oneapi-mpi/2021.11"], "intel-oneapi-mpi/2021.11", "intelmpi"),
        ("pbs", ["module load openmpi mpich", "ml -mpich"], "openmpi", "openmpi"),
        ("polaris", ["module load cray-mpich", "module load openmpi"], "openmpi", "openmpi"),
        ("polaris", ["module load mvapich2/2.3"], "mvapich2/2.3", "hydra"),
    ],
)
def test_the_launcher_of_the_mpi_that_is_loaded_last(
    site: str, setup: list[str], module: str, launcher: str
) -> None:
    """Where nobody named another; the plan says why, and by which line."""
    made = planned(site, *setup)
    assert made.launcher == launcher
    (note,) = said(made)
    assert note.startswith(f"setup loads {module} (") and note.partition(" (")[2].partition(")")[0] in [
        line for part in setup for line in part.splitlines()
    ]
    assert note.endswith(f", so launcher.name is {launcher} instead of the site's {Site.load(site).launcher}")
    assert said(planned(site, *setup, launcher={"name": launcher})) == []


@pytest.mark.parametrize(
    ("site", "setup"),
    [
        ("pbs", ["module load mpich"]),
        ("pbs", ["module load mpi/mpich-x86_64"]),
        ("pbs", ["module unload openmpi", "echo module load openmpi", "ml -openmpi"]),
        ("pbs", ["module load openmpi", "module load mpich"]),
        ("pbs", ["module load openmpi/4", "module purge"]),
        ("pbs", ["module load openmpi/4; module rm openmpi"]),
        ("pbs", ["module load hdf5/1.14-openmpi netcdf-openmpi", "# module load openmpi"]),
        ("slurm", ["module load impi"]),
        ("local", ["module load openmpi"]),
    ],
)
def test_nothing_where_they_fit(site: str, setup: list[str]) -> None:
    made = planned(site, *setup)
    assert (said(made), made.launcher) == ([], Site.load(site).launcher)


def test_what_somebody_chose_stays() -> None:
    """A launcher by its name, or a site's mpiexec by its path: a note says that another MPI is loaded."""
    line = "module load openmpi"
    made = planned("pbs", line, launcher={"name": "hydra"})
    assert made.launcher == "hydra"
    expected = "whose ranks launcher.name: hydra does not connect: set openmpi, or drop it"
    assert said(made) == [f"setup loads openmpi ({line}), {expected}"]
    made = planned(Site.load("pbs").changed(mpiexec="/opt/mpich/bin/mpiexec"), line)
    assert made.launcher == "hydra"
    expected = "and the site's launcher is hydra: set launcher.name: openmpi"
    assert said(made) == [f"setup loads openmpi ({line}), {expected}"]


def test_srun_is_told_which_pmi_open_mpi_needs() -> None:
    made = planned("slurm", "module load openmpi/5")
    assert made.launcher == "srun"
    (note,) = said(made)
    assert note.endswith("set launcher.args: [--mpi=pmix] if its ranks are worlds of size 1")
    assert said(planned("slurm", "module load openmpi/5", launcher={"args": ["--mpi=pmi2"]})) == []


@pytest.mark.parametrize(("mpi", "package"), [("openmpi", "openmpi-bin"), ("mpich", "mpich")])
def test_a_real_mpiexec_takes_what_is_inferred(
    for_real: None, system_program: SystemProgram, tmp_path: Path, mpi: str, package: str
) -> None:
    """The plan's own words, by the mpiexec that the module would have brought."""
    made = planned("pbs", f"module load {mpi}", ranks_per_node=2)
    real = system_program(f"mpiexec.{mpi}", package)
    root = ["--allow-run-as-root", "--oversubscribe"] if mpi == "openmpi" else []
    argv = [str(real), *made.start[1:], *root, "sh", "-c", "echo ${OMPI_COMM_WORLD_SIZE-$PMI_SIZE}"]
    ended = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path)
    assert ended.stdout == "2\n2\n", ended.stderr
