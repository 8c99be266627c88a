"""A short job that reports a node's hardware: a run whose script queries its first host."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import seconds, units
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Range
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.machine_info import MachineInfo
from castoff.launcher.siting.check import is_node
from castoff.launcher.status.watch import wait
from castoff.launcher.submission.submit import submit

_WALLTIME = 120
"""Seconds: a node answers within some; where other hosts or modules do not, it takes up to a minute."""

_ANSWER = "probe"

# What fails in there is no failure of the job, and the job's own traps stay outside.
_SETUP = """(trap - ERR DEBUG; set +eETu
castoff_remote={remote}
castoff_hosts=$(castoff_scheduler_hosts 2>/dev/null)
{program}) >"$CASTOFF_ATTEMPT_DIR/{answer}" 2>/dev/null </dev/null || true"""


def remote_shell(site: Site) -> tuple[str, Sequence[str]]:
    """The scheduler's own way to another host of a job, and the setup lines that give it to mpiexec, if "
    "any."""
    machine = import_module(f"castoff.launcher.schedulers.{site.scheduler}.machine")
    return getattr(machine, "REMOTE_SHELL", ""), getattr(machine, "REMOTE_SETUP", ())


def probe_job(site: Site, info: MachineInfo, overrides: Sequence[str] = ()) -> JobSpec:
    """The job: on two nodes where the queue and the machine have them, for one to try to reach the other.

    Raises:
        InvalidInput: an override is wrong.
    """
    queue = site.queues.get(site.defaults.queue or site.default_queue or "")
    ranges = (queue.ranges if queue else None) or [Range()]
    count = sum(
        one.nodes for one in info.nodes if site.node is None or is_node(site.node, one, info.counts_threads)
    )
    wanted = 2 if count != 1 else 1
    best = min(ranges, key=lambda one: (one.min_nodes > wanted, one.min_nodes))
    nodes = max(best.min_nodes, min(wanted, best.max_nodes or wanted))
    program = Path(__file__).with_name("test_job.sh").read_text(encoding="utf-8")
    fields = {
        "name": "castoff-probe",
        # A rank starts and its log is written: so each host was reached, and sees the run's folder.
        "command": ["sh", "-c", 'test -e "$CASTOFF_RUN_DIR/job.sh"'],
        "setup": [_SETUP.format(remote=remote_shell(site)[0], program=program, answer=_ANSWER)],
        "nodes": nodes,
        "ranks_per_node": 1,
        "walltime": units(max(_WALLTIME, seconds(best.min_walltime or "0s"))),
        "grace": "5s",
        "launcher": {"timeout": "30s"},
    }
    return JobSpec.of(fields, overrides=overrides)


def start_probe(
    site: Site, info: MachineInfo, overrides: Sequence[str] = (), runs_dir: Path | None = None
) -> RunDirectory:
    """Submit it.

    Raises:
        InvalidInput: the site does not take such a job, as where it needs an account.
        CastoffError: it cannot be submitted.
    """
    return submit(probe_job(site, info, overrides), site, runs_dir=runs_dir)


def collect(run: RunDirectory, timeout: float) -> tuple[str | None, RunStatus]:
    """What a run of it has written, if anything, and its status, when it is over or after `timeout` seconds.

    Raises:
        CastoffError: something in its directory cannot be read.
    """
    now = wait(run, timeout)
    texts = sorted((run.path / "attempts").glob(f"0.*/{_ANSWER}"))
    try:
        return (texts[-1].read_text(encoding="utf-8", errors="replace") if texts else None), now
    except OSError as error:
        raise CastoffError(f"{texts[-1]}: cannot be read: {error.strerror}") from error
