"""A short job that tests nodes: its ranks connect, compute a sum and are timed.

`templates/nodes/all_reduce.py` is its program. Here it is submitted, watched to its end, and cancelled where
that does not come.
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
from castoff.launcher.diagnosis.finding import Findings
from castoff.launcher.diagnosis.subject import Subject
from castoff.launcher.planning.render import template_folder
from castoff.launcher.preflight.named_files import is_python
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.registry import queued, scheduler_of
from castoff.launcher.status.watch import poll
from castoff.launcher.submission.cancel import end
from castoff.launcher.submission.submit import submit

_WALLTIME = 180
"""Seconds: some ten are needed, more where torch comes from a slow file system."""

_OVERDUE = 120.0
"""Seconds behind the walltime in which a scheduler should have ended the job."""

_PROGRAM = "all_reduce.py"

_START = (
    'command -v "$0" >/dev/null || { echo "$0 is not on PATH" >&2; exit 127; }; '
    f'exec "$0" "$CASTOFF_RUN_DIR/{_PROGRAM}"'
)


def node_job(given: JobSpec, site: Site, nodes: int, walltime: str | None) -> JobSpec:
    """The job: where, for whom and with which environment `given` would run, one rank for each device.

    Raises:
        InvalidInput: its fields contradict each other.
    """
    python = given.command[0] if given.command and is_python(given.command[0]) else "python"
    own_ranks = given.ranks_per_node if given.devices_per_rank else None  # where the site knows no devices
    launcher = LauncherOptions(name=given.launcher.name, args=given.launcher.args, timeout="45s")
    queue = site.queues.get(given.queue or site.defaults.queue or site.default_queue or "")
    shortest = max((seconds(one.min_walltime or "0s") for one in (queue.ranges if queue else [])), default=0)
    # A list has checks of the user's own; castoff's own scheduler has one host, and no preflight.
    checks = (given.preflight or True) if "preflight" in scheduler_of(site.scheduler).handles else None
    return given.changed(
        command=["sh", "-c", _START, python],
        name="castoff-doctor",
        nodes=nodes,
        ranks=None,
        ranks_per_node=own_ranks,
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
    """Why the scheduler would never start it, as far as it says so beforehand.

    Raises:
        InvalidInput: the site does not take such a job.
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
        for one in scheduling.trial(scheduler, tried):
            if one.status == "problem":
                yield one._replace(about="nodes")


def start(subject: Subject, nodes: int, walltime: str | None) -> RunDirectory:
    """Submit it.

    Raises:
        InvalidInput: the site does not take such a job.
        CastoffError: it cannot be submitted.
    """
    job = node_job(subject.given, subject.site, nodes, walltime)

    def prepare(folder: Path) -> None:
        shutil.copyfile(Path(template_folder()) / "nodes" / _PROGRAM, folder / _PROGRAM)

    return submit(job, subject.site, runs_dir=subject.runs, environ=subject.environ, prepare=prepare)


def watch(run: RunDirectory, say: Callable[[str], None]) -> RunStatus:
    """Its status when it is over; `say` is called with how far it is, whenever that changes.

    One that is not over long after its walltime, or that can never begin, is cancelled.

    Raises:
        CastoffError: something in its directory cannot be read.
    """
    last, began = "", 0.0
    for (now,) in poll([run]):
        if (words := _progress(run, now)) != last:
            last = words
            say(words)
        began = began or (time.monotonic() if now.state == "running" else 0.0)
        late = began and time.monotonic() - began > (now.walltime or _WALLTIME) + _OVERDUE
        if late or now.never_begins:
            (request,) = end([run])
            return request.after or now
    return now


@contextlib.contextmanager
def cancelled_on_interrupt(run: RunDirectory) -> Iterator[None]:
    """Meanwhile Ctrl-C, TERM or HUP, which end this process, cancel the job before."""

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


def _progress(run: RunDirectory, now: RunStatus) -> str:
    """How far it is: in words that change as it comes further."""
    if now.state != "running":
        return now.state + (f": {now.reason}" if now.reason else "")
    begun = sorted((run.path / "attempts").glob("0.*/doctor/rank-*.jsonl"))
    planned = msgspec.json.decode((run.path / "plan.json").read_bytes()).get("ranks")
    return f"running: {len(begun)} of {planned} ranks have begun"
