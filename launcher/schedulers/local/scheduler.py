"""castoff's own scheduler, as other code uses it; `daemon` runs the jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, get_args

from castoff.launcher.config.job_fields import Condition
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.schedulers.table import OF_SHARED_JOBS


class Local(Scheduler):
    """castoff's own scheduler, for one machine, without queue and directives."""

    name = "local"
    title = "castoff's own scheduler"
    launchers = ("local", "hydra", "openmpi", "intelmpi")
    default_inherit = "all"
    handles = frozenset(
        {
            *("name", "nodes", "cores_per_rank", "devices_per_rank", "walltime", "grace", "env_from"),
            *("inherit", "array.count", "array.indices", "array.max_concurrent"),
            *("array.parameters", "array.commands"),
            *("after", "requeue.max", "requeue.on", "launcher.name", "launcher.args"),
        }
    )
    # These fields are ignored, not refused, so that a cluster's job file can be tried on one machine
    # unchanged.
    ignores = frozenset({"options", "directives", "binding", *OF_SHARED_JOBS})
    conditions = get_args(Condition)
    ignores_requests = True
    instead: ClassVar[Mapping[str, str]] = {
        "requeue.how": "drop it, since it restarts the same job by itself",
        "restart.spare_nodes": "drop it, since there is only one machine",
    }

    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """Return a reason in any case: it works everywhere, and is the last that castoff looks for."""
        return "no scheduler that castoff knows is on PATH"


SCHEDULER = Local()
