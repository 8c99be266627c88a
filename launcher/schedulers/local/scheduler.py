"""castoff's own scheduler, as the rest of castoff sees it; `daemon` is what runs."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.schedulers.base import Scheduler


class Local(Scheduler):
    """For one machine: no queue, no directives."""

    name = "local"
    title = "castoff's own scheduler"
    launchers = ("local",)
    default_inherit = "all"
    lacks_of_site = ("qos", "default_qos", "gpu_type", "gpu_bind", "gpu_request")

    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """It is everywhere, and the last to be looked for."""
        return "no sbatch, no qsub of PBS and no flux that answers is on PATH"


SCHEDULER = Local()
