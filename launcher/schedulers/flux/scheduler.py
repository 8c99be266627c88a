"""Flux, as the rest of castoff sees it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from launcher.config.job import JobSpec
from launcher.config.site import Site
from launcher.errors import CastoffError
from launcher.runs.plan import Plan
from launcher.schedulers.base import Configuration, QueuedScheduler
from launcher.schedulers.command import PATIENCE, Silent, answer_of, version_of
from launcher.schedulers.directives import Directives, Resources
from launcher.schedulers.flux import directives, submit

if TYPE_CHECKING:
    from launcher.schedulers.allocation import Allocation
    from launcher.schedulers.machine import Question, Told
    from launcher.schedulers.orders import Restart, Sending
    from launcher.schedulers.queue import Queue


class Flux(QueuedScheduler):
    """https://flux-framework.readthedocs.io; seen on flux-core 0.88."""

    name = "flux"
    title = "Flux"
    starters = ("flux",)
    dialect = directives.DIALECT
    starts_again = False
    interactive = "flux alloc"
    ids_change = True
    lacks: ClassVar[Mapping[str, str]] = {
        "array": "drop it, and submit its members one by one; Flux has no arrays",
        "qos": "drop it, or use a queue that stands for it",
        "exclude": "drop it, or say it in constraint, as in -host:name7",
        "reservation": "drop it, or use the queue that stands for it",
        "memory": "drop it; Flux hands out cores and devices",
        "mail": "drop it; Flux sends none",
    }
    lacks_of_site = ("qos", "default_qos", "gpu_type", "gpu_bind", "select", "array")

    def directives(self, spec: JobSpec, site: Site, resources: Resources) -> Directives:
        """Those of flux batch."""
        return directives.directives(spec, site, resources)

    def refused(self, script: str) -> str | None:
        """What flux batch would not take."""
        return directives.refused(script)

    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """Others have a program of that name, too; and without an instance that answers it is of no use."""
        flux = shutil.which("flux", path=environ.get("PATH", ""))
        if flux is None or "\nbroker:" not in version_of(flux, environ):
            return None
        return f"{flux} is on PATH, and a Flux instance answers"

    def check_reachable(self, environ: Mapping[str, str]) -> None:
        """flux is needed."""
        if shutil.which("flux", path=environ.get("PATH")) is None:
            raise CastoffError(
                "flux is not on PATH here: submit where the scheduler's commands are, as on a login node; "
                "`castoff render` needs none"
            )

    def check_run_dir(self, run_dir: str) -> None:
        """As flux batch's --output takes it."""
        submit.check_run_dir(run_dir)

    def configuration(self, environ: Mapping[str, str]) -> Configuration:
        """Which instance this is, by the jobs round it: `/` is the machine's own."""
        try:
            return Configuration(
                answer_of(["flux", "getattr", "jobid-path"], PATIENCE, environ).strip() or None
            )
        except Silent:
            return Configuration()

    def first(self, plan: Plan, run_dir: str, dependency: str | None, largest: int | None) -> list[Sending]:
        """flux batch, once for each job of a chain."""
        return submit.first(plan, run_dir, dependency)

    def again(self, restart: Restart, largest: int | None) -> list[Sending]:
        """The same."""
        return submit.again(restart)

    def parse_submit(self, answer: str) -> str | None:
        """What flux batch prints."""
        return submit.parse_submit(answer)

    def was_refused(self, code: int, words: str) -> bool:
        """Unless flux batch lost its instance on the way."""
        return submit.was_refused(code, words)

    def queue(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE) -> Queue:
        """flux jobs."""
        from launcher.schedulers.flux.queue import FluxQueue

        return FluxQueue(environ, patience)

    def cancel_command(self, jobs: Sequence[str]) -> list[str]:
        """flux cancel."""
        return ["flux", "cancel", *jobs]

    def is_array(self, job: str, planned: int | None) -> bool:
        """Flux has none."""
        return False

    @property
    def questions(self) -> Sequence[Question]:
        """flux queue and flux resource."""
        from launcher.schedulers.flux.machine import QUESTIONS

        return QUESTIONS

    def told(self, answers: Mapping[str, str]) -> Told:
        """What those say."""
        from launcher.schedulers.flux.machine import parse

        return parse(answers)

    def allocation(self, environ: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
        """None: a shell of flux alloc is in a Flux instance of its own, to which castoff submits."""
        return None


SCHEDULER = Flux()
