"""A short job that tests nodes: its ranks connect, compute a sum and are timed.

`templates/nodes/all_reduce.py` is its program. This module submits the job and watches it to its end; it
cancels a job that does not end.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import LauncherOptions, Requeue, Restart
from castoff.launcher.config.quantities import seconds, units
from castoff.launcher.config.site import Site
from castoff.launcher.diagnosis import scheduling
from castoff.launcher.diagnosis.finding import Findings, Subject
from castoff.launcher.planning.render import template_folder
from castoff.launcher.preflight.shell_words import is_python
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.registry import queued, scheduler_of
from castoff.launcher.status.watch import poll
from castoff.launcher.submission.cancel import end
from castoff.launcher.submission.submit import submit

_WALLTIME = 180
"""Seconds: the job takes about ten, or longer if torch is on a slow file system."""

_OVERDUE = 120.0
"""Seconds after the walltime at which a running job is cancelled."""

_PROGRAM = "all_reduce.py"

_START = (
    'command -v "$0" >/dev/null || { echo "$0 is not on PATH" >&2; exit 127; }; '
    f'exec "$0" "$CASTOFF_RUN_DIR/{_PROGRAM}"'
)


def node_job(given: JobSpec, site: Site, nodes: int, walltime: str | None) -> JobSpec:
    """The test job, with the nodes, account and environment of `given`, and one rank for each device.

    Raises:
        InvalidInput: its fields contradict each other.
    """
    python = given.command[0] if given.command and is_python(given.command[0]) else "python"
    # Without devices in the profile, the number of ranks per node has no default.
    ranks_per_node = given.ranks_per_node if given.devices_per_rank else None
    launcher = LauncherOptions(name=given.launcher.name, args=given.launcher.args, timeout="45s")
    queue = site.queues.get(given.queue or site.defaults.queue or site.default_queue or "")
    ranges = queue.ranges if queue else []
    shortest = max((seconds(bounds.min_walltime or "0s") for bounds in ranges), default=0)
    # A list in `preflight` has the user's own checks. castoff's own scheduler has one host and no preflight.
    checks = (given.preflight or True) if "preflight" in scheduler_of(site.scheduler).handles else None
    return given.changed(
        command=["sh", "-c", _START, python],
        name="castoff-doctor",
        nodes=nodes,
        ranks=None,
        ranks_per_node=ranks_per_node,
        cores_per_rank=None,
        binding=None,
        memory=None,
        select={} if isinstance(given.select, list) else given.select,
        walltime=walltime or units(max(_WALLTIME, shortest)),
        grace="10s",
        mail=None,
        snapshot=None,
        stage=[],
        array=None,
        after={},
        requeue=Requeue(),
        restart=Restart(),
        preflight=checks,
        launcher=launcher,
    )


def refusals(subject: Subject, nodes: int, walltime: str | None) -> Findings:
    """The problems for which the scheduler would never start the test job, if it reports them in advance.

    Raises:
        InvalidInput: the site does not accept such a job.
    """
    scheduler = queued(subject.site.scheduler)
    if scheduler is not None:
        job = node_job(subject.given, subject.site, nodes, walltime)
        tried = Subject.of(
            subject.site,
            job,
            source=None,
            directory=subject.directory,
            runs=subject.runs,
            environ=subject.environ,
        )
        for finding in scheduling.trial(scheduler, tried):
            if finding.status == "problem":
                yield finding._replace(about="nodes")


def start(subject: Subject, nodes: int, walltime: str | None) -> RunDirectory:
    """Submit the test job.

    Raises:
        InvalidInput: the site does not accept such a job.
        CastoffError: the job cannot be submitted.
    """
    job = node_job(subject.given, subject.site, nodes, walltime)

    def prepare(folder: Path) -> None:
        shutil.copyfile(Path(template_folder()) / "nodes" / _PROGRAM, folder / _PROGRAM)

    return submit(job, subject.site, runs_dir=subject.runs, environ=subject.environ, prepare=prepare)


def watch(run: RunDirectory, say: Callable[[str], None]) -> RunStatus:
    """Wait for the end of the run, and return its status; `say` reports its progress.

    A run that is not over long after its walltime, or that can never begin, is cancelled.

    Raises:
        CastoffError: a file in the run directory cannot be read.
    """
    last, began = "", 0.0
    for (status,) in poll([run]):
        if (words := _progress(run, status)) != last:
            last = words
            say(words)
        began = began or (time.monotonic() if status.state == "running" else 0.0)
        is_late = began and time.monotonic() - began > (status.walltime or _WALLTIME) + _OVERDUE
        if is_late or status.never_begins:
            (request,) = end([run])
            return request.after or status
    return status


@contextlib.contextmanager
def cancelled_on_interrupt(run: RunDirectory) -> Iterator[None]:
    """Have Ctrl-C, TERM and HUP cancel the job before they end this process."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        end([run])
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _progress(run: RunDirectory, status: RunStatus) -> str:
    """The progress of a run, as text that changes with it."""
    if status.state != "running":
        return status.state + (f": {status.reason}" if status.reason else "")
    begun = sorted((run.path / "attempts").glob("0.*/doctor/rank-*.jsonl"))
    planned = msgspec.json.decode((run.path / "plan.json").read_bytes()).get("ranks")
    return f"running: {len(begun)} of {planned} ranks have begun"
