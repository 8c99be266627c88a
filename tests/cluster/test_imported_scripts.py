"""Batch scripts by sbatch, and by castoff submit what castoff import makes of them: the same jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.patience import until

from .desk import Desk
from .slurm import SlurmCluster

pytestmark = pytest.mark.costly

pytest.importorskip("tree_sitter_bash")

TWO_NODES = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --time=5\n"

KEPT = {
    "redirect": f"{TWO_NODES}srun sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS' | sort > out.txt\ncat out.txt",
    "cd-and-rm": f"{TWO_NODES}mkdir -p w/x\ncd w\nrm -rf *\ncd ..\nls w\nsrun -n1 pwd | grep -c /desk",
    "at-once": f"{TWO_NODES}(echo a >a; srun -n1 hostname >h) & echo b >b & wait\ncat a b",
    "streams": f"#SBATCH -o %x.o%j -e %x.e%j\n{TWO_NODES}echo said; echo complained >&2; exit 3",
    "devices": "#SBATCH -N1 --gres=gpu:a100:2 -c2 -t5\necho $SLURM_GPUS_ON_NODE $SLURM_CPUS_PER_TASK",
    "tasks": "#SBATCH -n 6 -t 5\nsrun -l hostname | wc -l\necho ${SLURM_JOB_NAME} $(basename $0)",
    "memory": "#SBATCH -n 2 --mem-per-cpu=100M -t 5 -D below\necho $SLURM_MEM_PER_CPU $(basename $PWD)",
    "array": "#SBATCH --array=1-2 -t 5\n#SBATCH -J many\necho $SLURM_ARRAY_TASK_ID > at-$SLURM_ARRAY_TASK_ID",
}

LIFTED = {
    "ranks": f"{TWO_NODES}export WORD='a b'\nsrun ./work \"$WORD\" c",
    "failing": f"{TWO_NODES}set -e\nsrun ./work 4",
}

WORK = """#!/bin/sh
echo "$SLURM_NTASKS, $#: $*" >"at-$SLURM_PROCID"
[ "$1" != 4 ] || exit 4
"""


class Job(NamedTuple):
    """A job that is over."""

    files: dict[str, str]
    accounted: list[str]
    """Its name, state, exit code and resources, of each of its members."""


def fresh(slurm: SlurmCluster, folder: Path) -> Desk:
    (folder / "desk" / "below").mkdir(parents=True)
    desk = Desk(slurm, folder / "desk")
    (desk.folder / "work").write_text(WORK)
    (desk.folder / "work").chmod(0o755)
    return desk


def written(desk: Desk, name: str, text: str) -> str:
    (desk.folder / name).write_text(f"#!/bin/bash\n{text}\n")
    return name


def as_original(desk: Desk, name: str) -> str:
    return desk.slurm("sbatch", "--parsable", name)


def as_conversion(desk: Desk, name: str, lifted: bool) -> str:
    answer = desk.castoff("import", name, "-o", "job.yaml")
    assert answer.code == 0, answer.errors
    assert ("\nscript:" not in (desk.folder / "job.yaml").read_text()) == lifted, answer.errors
    job = desk.submit_file("job.yaml").job
    assert job
    return job


def over(desk: Desk, job: str, members: int = 1) -> Job:
    fields = "JobName,State,ExitCode,Partition,Timelimit,ReqTRES,AllocTRES"

    def ended() -> list[str] | None:
        lines = desk.slurm("sacct", "-X", "-n", "-P", "-j", job, "-o", fields).splitlines()
        waits = any(word in line for line in lines for word in ("PENDING", "RUNNING", "allocation"))
        return lines if len(lines) == members and not waits else None

    accounted: list[str] = until(ended, f"the end of {job}")
    return Job(files(desk, job), sorted(accounted))


def files(desk: Desk, job: str) -> dict[str, str]:
    """The files of a folder but for castoff's, without the numbers of jobs."""
    found = {}
    for path in desk.folder.rglob("*"):
        name = path.relative_to(desk.folder)
        if path.is_file() and name.parts[0] not in ("castoff-runs", "state", "job.yaml"):
            found[re.sub(job, "JOB", str(name))] = re.sub(f"JOB {job} ON .*", "JOB", path.read_text())
    return found


@pytest.mark.parametrize("kind", ["kept", "lifted"])
def test_the_same_job(slurm: SlurmCluster, tmp_path: Path, kind: str) -> None:
    started = []
    for name, text in {"kept": KEPT, "lifted": LIFTED}[kind].items():
        desks = [fresh(slurm, tmp_path / f"{name}-{of}") for of in ("original", "conversion")]
        script = written(desks[0], f"{name}.sbatch", text)
        written(desks[1], script, text)
        jobs = [as_original(desks[0], script), as_conversion(desks[1], script, kind == "lifted")]
        started.append((name, desks, jobs))
    for name, desks, jobs in started:
        original, conversion = (
            over(desk, job, 2 if name == "array" else 1) for desk, job in zip(desks, jobs, strict=True)
        )
        own = {path for path in original.files if kind == "lifted" and path == "slurm-JOB.out"}
        assert conversion.files == {path: text for path, text in original.files.items() if path not in own}, (
            name
        )
        assert conversion.accounted == original.accounted, name
        assert len(original.files) > 2, "it wrote something"


SIGNALLED = """#SBATCH --time=1
trap 'echo asked >asked; exit 9' TERM USR1
: >ready
sleep 600 &
wait
"""


@pytest.mark.parametrize("by", ["scancel", "signal"])
def test_signals_reach_its_traps(slurm: SlurmCluster, tmp_path: Path, by: str) -> None:
    text = SIGNALLED if by == "scancel" else f"#SBATCH --signal=B:USR1@59\n{SIGNALLED}"
    found = []
    for name in ("original", "conversion"):
        desk = fresh(slurm, tmp_path / name)
        script = written(desk, "caught.sbatch", text)
        job = as_original(desk, script) if name == "original" else as_conversion(desk, script, False)
        until((desk.folder / "ready").exists, "the start of the script")
        if by == "scancel":
            desk.slurm("scancel", job)
        found.append((desk, job))
    ended = [over(desk, job) for desk, job in found]
    for one in ended:
        assert one.files.pop("asked") == "asked\n"
        said = one.files.pop("slurm-JOB.out")  # where slurmstepd and the script write over one another
        assert "castoff" not in said
    assert ended[1] == ended[0]
