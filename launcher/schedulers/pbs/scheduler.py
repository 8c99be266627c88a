"""PBS, as the rest of castoff sees it."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from launcher.config.job import JobSpec
from launcher.config.site import Site
from launcher.errors import CastoffError, shown
from launcher.runs.plan import Plan
from launcher.schedulers.base import QueuedScheduler
from launcher.schedulers.command import PATIENCE, version_of
from launcher.schedulers.directives import Directives, Resources
from launcher.schedulers.pbs import directives, submit

if TYPE_CHECKING:
    from launcher.schedulers.allocation import Allocation
    from launcher.schedulers.machine import Question, Told
    from launcher.schedulers.orders import Restart, Sending
    from launcher.schedulers.queue import Queue

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,199}")
"""OpenPBS's check_job_name() for -N: a letter, then letters, digits and -_.+. It takes 230, but the
name is also a part of file names."""


class Pbs(QueuedScheduler):
    """OpenPBS and PBS Pro; seen from 23.06 on."""

    name = "pbs"
    title = "PBS"
    starters = ("pals", "hydra", "intelmpi", "openmpi")
    dialect = directives.DIALECT
    starts_again = False
    interactive = "qsub -I"
    ids_change = True
    lacks: ClassVar[Mapping[str, str]] = {
        "qos": "drop it, or use a queue that stands for it",
        "constraint": "drop it, or use a queue of such nodes",
        "exclude": "drop it; PBS has no such request",
        "reservation": "drop it and give its name as queue, for a reservation is one there",
    }
    lacks_of_site = ("qos", "default_qos", "gpu_type", "gpu_bind", "gpu_request")

    def name_problem(self, name: str) -> str | None:
        """What -N takes."""
        if _NAME.fullmatch(name):
            return None
        rule = "starts with a letter and holds letters, digits, - _ . and +, 200 at the most"
        return f"is {shown(name)}, but a PBS job's name {rule}"

    def hands_out_devices(self, site: Site) -> bool:
        """Only where a chunk asks for ngpus."""
        return "ngpus" in site.select

    def directives(self, spec: JobSpec, site: Site, resources: Resources) -> Directives:
        """Those of qsub."""
        return directives.directives(spec, site, resources)

    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """Slurm's and Grid Engine's qsub share the name, but not the version's text."""
        qsub = shutil.which("qsub", path=environ.get("PATH", ""))
        if qsub is None or "pbs" not in version_of(qsub, environ):
            return None
        return f"{qsub} is on PATH and is PBS's"

    def check_reachable(self, environ: Mapping[str, str]) -> None:
        """A qsub is needed, and none of Slurm's."""
        found = shutil.which("qsub", path=environ.get("PATH"))
        if found is None:
            raise CastoffError(
                "qsub is not on PATH here: submit where the scheduler's commands are, as on a login node; "
                "`castoff render` needs none; `castoff render JOB.yaml | ssh LOGIN_NODE qsub` sends it there"
            )
        if _is_slurms_own(found):
            raise CastoffError(
                f"{found} is no PBS's, but Slurm's own stand-in (slurm-wlm-torque): choose a Slurm site with "
                "--site, or put PBS's commands first on PATH"
            )

    def check_run_dir(self, run_dir: str) -> None:
        """As qsub's -o takes it."""
        submit.check_run_dir(run_dir)

    def first(self, plan: Plan, run_dir: str, dependency: str | None, largest: int | None) -> list[Sending]:
        """qsub, once for each job of a chain."""
        return submit.first(plan, run_dir, dependency)

    def again(self, restart: Restart, largest: int | None) -> list[Sending]:
        """qsub, once for neighbours with the same attempt."""
        return submit.again(restart)

    def parse_submit(self, answer: str) -> str | None:
        """What qsub prints."""
        return submit.parse_submit(answer)

    def was_refused(self, code: int, words: str) -> bool:
        """Unless qsub waited for an answer in vain."""
        return submit.was_refused(code, words)

    def queue(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE) -> Queue:
        """qstat and qselect."""
        from launcher.schedulers.pbs.queue import PbsQueue

        return PbsQueue(environ, patience)

    def cancel_command(self, jobs: Sequence[str]) -> list[str]:
        """qdel, which ends whole arrays too."""
        return ["qdel", *jobs]

    def is_array(self, job: str, planned: int | None) -> bool:
        """PBS knows no array of one."""
        return "[" in job

    @property
    def questions(self) -> Sequence[Question]:
        """qstat and pbsnodes."""
        from launcher.schedulers.pbs.machine import QUESTIONS

        return QUESTIONS

    def told(self, answers: Mapping[str, str]) -> Told:
        """What those say."""
        from launcher.schedulers.pbs.machine import parse

        return parse(answers)

    def allocation(self, environ: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
        """By PBS_JOBID and PBS_NODEFILE."""
        from launcher.schedulers.pbs.allocation import find

        return find(environ, read_file)


def _is_slurms_own(qsub: str) -> bool:
    """Whether a command is one of those that Debian's slurm-wlm-torque puts on PATH, which are Perl."""
    with contextlib.suppress(OSError), Path(qsub).open("rb") as file:
        return b"\nuse Slurm" in file.read(16384)
    return False


SCHEDULER = Pbs()
