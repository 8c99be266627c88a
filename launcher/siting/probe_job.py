"""The job of `castoff sites probe`, whose script queries its first host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import seconds, units
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Range
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.machine_info import MachineInfo
from castoff.launcher.schedulers.registry import queued_of
from castoff.launcher.siting.check import is_node
from castoff.launcher.status.watch import wait
from castoff.launcher.submission.submit import submit

_WALLTIME = 120
"""Seconds: a node answers within seconds, or within a minute if other hosts or modules do not answer."""

_ANSWER = "probe"

# The subshell drops the job's traps and options, so that a failing query does not fail the job.
_SETUP = """(trap - ERR DEBUG; set +eETu
castoff_remote={remote}
castoff_hosts=$(castoff_scheduler_hosts 2>/dev/null)
{program}) >"$CASTOFF_ATTEMPT_DIR/{answer}" 2>/dev/null </dev/null || true"""


def remote_shell(site: Site) -> tuple[str, Sequence[str]]:
    """The scheduler's command for another host of a job, and setup lines that make mpiexec use it."""
    scheduler = queued_of(site.scheduler)
    return scheduler.remote_shell, scheduler.remote_setup


def probe_job(site: Site, info: MachineInfo, overrides: Sequence[str] = ()) -> JobSpec:
    """Make the probe's job: on two nodes if the machine has two, so that one can try to reach the other.

    Raises:
        InvalidInput: an override is wrong.
    """
    queue = site.queues.get(site.defaults.queue or site.default_queue or "")
    ranges = (queue.ranges if queue else None) or [Range()]
    node = site.node
    kinds = [kind for kind in info.nodes if node is None or is_node(node, kind, info.counts_threads)]
    wanted_nodes = 1 if sum(kind.nodes for kind in kinds) == 1 else 2  # 0: the scheduler reports no nodes
    accepted = min(ranges, key=lambda bounds: (bounds.min_nodes > wanted_nodes, bounds.min_nodes))
    nodes = max(accepted.min_nodes, min(wanted_nodes, accepted.max_nodes or wanted_nodes))
    program = Path(__file__).with_name("probe_job.sh").read_text(encoding="utf-8")
    fields = {
        "name": "castoff-probe",
        # A rank on each host shows that the launcher reaches it and that it sees the run's folder.
        "command": ["sh", "-c", 'test -e "$CASTOFF_RUN_DIR/job.sh"'],
        "setup": [_SETUP.format(remote=remote_shell(site)[0], program=program, answer=_ANSWER)],
        "nodes": nodes,
        "ranks_per_node": 1,
        "walltime": units(max(_WALLTIME, seconds(accepted.min_walltime or "0s"))),
        "grace": "5s",
        "launcher": {"timeout": "30s"},
    }
    return JobSpec.of(fields, overrides=overrides)


def start_probe(
    site: Site, info: MachineInfo, overrides: Sequence[str] = (), runs_dir: Path | None = None
) -> RunDirectory:
    """Submit the probe's job.

    Raises:
        InvalidInput: the site does not accept such a job, for example without an account.
        CastoffError: the job cannot be submitted.
    """
    return submit(probe_job(site, info, overrides), site, runs_dir=runs_dir)


def collect(run: RunDirectory, timeout: float) -> tuple[str | None, RunStatus]:
    """Wait for the run's end, at most `timeout` seconds, and return the node's answer, if there is one, and
    the run's status.

    Raises:
        CastoffError: a file in the run directory cannot be read.
    """
    status = wait(run, timeout)
    answers = sorted((run.path / "attempts").glob(f"0.*/{_ANSWER}"))
    try:
        return (answers[-1].read_text(encoding="utf-8", errors="replace") if answers else None), status
    except OSError as error:
        raise CastoffError(f"{answers[-1]}: cannot be read: {error.strerror}") from error
