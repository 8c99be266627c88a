"""submit_all(jobs, site) for Python programs, and RunGroup: the runs that it submitted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from castoff.launcher.api.run import Run
from castoff.launcher.api.submit import as_site
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_group import JobGroup, load, made
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.groups import Group
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.status import watch
from castoff.launcher.status.poller import Poller
from castoff.launcher.submission import cancel, group
from castoff.launcher.text.python_words import speaks_python


class RunGroup:
    """Runs that were submitted together, as `submit_all` and `RunGroup.find` return them.

    Its methods print nothing. They raise CastoffError, with the message that `castoff` would print.
    """

    def __init__(self, of: Group):
        self._group = of
        self._poller = Poller()

    @classmethod
    @speaks_python()
    def find(cls, reference: str) -> RunGroup:
        """Find a group by its name (the newest such group), its id, or a unique beginning of its id.

        Raises:
            CastoffError: there is no such group.
        """
        found = Index.of(os.environ).group(reference)
        if found is None:
            raise CastoffError(f"{reference}: no such group")
        return cls(found)

    @property
    def id(self) -> str:
        """The group's id, as in `pipeline-20261129-101500-1f2e`."""
        return self._group.id

    @property
    def runs(self) -> dict[str, Run]:
        """The runs by the names of their jobs, each after those for which it waits."""
        jobs = self._group.jobs.values()
        return {job.job: Run(run.path) for job in jobs if (run := job.directory) is not None}

    @speaks_python()
    def status(self) -> dict[str, RunStatus]:
        """The state of each run, by the name of its job, with one query to the scheduler."""
        runs = self.runs
        return dict(zip(runs, watch.statuses(runs.values(), self._poller), strict=True))

    @speaks_python()
    def wait(self, timeout: float | None = None) -> dict[str, RunStatus]:
        """Wait until all runs are over, or can never begin, and return the status of each.

        Raises:
            StillRunning: a run is not over after `timeout` seconds. This is a TimeoutError.
        """
        runs = self.runs
        now: list[RunStatus] = []
        for now in watch.poll([*runs.values()], timeout):  # noqa: B007 - only the last states count
            pass
        watch.check_over(now, timeout)
        return dict(zip(runs, now, strict=True))

    @speaks_python()
    def cancel(self) -> dict[str, RunStatus]:
        """End all runs, those that wait for others first, and return the status of each."""
        self._group.close()
        requests = cancel.end(self.runs.values())
        if problems := [request.problem for request in requests if request.problem]:
            raise CastoffError("\n".join(problems))
        return self.status()

    @speaks_python()
    def resubmit(self) -> list[str]:
        """Start again what is not done, with what waits for it; return the names of the jobs.

        Raises:
            CastoffError: a job cannot be submitted.
        """
        return [step.job for step in group.resubmit_group(self._group).steps]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"


@speaks_python()
def submit_all(
    jobs: Iterable[JobSpec] | str | Path,
    site: Site | str,
    *,
    name: str | None = None,
    runs_dir: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> RunGroup:
    """Submit several jobs, which may name one another in `after`, in the order that this requires.

    `jobs`: jobs, each with a name, or the path of a file with several. `name`: the group's name, which
    `castoff status` and others take; None: that of the file, or `group`. The other arguments are those of
    `submit`.

    >>> from castoff import JobSpec, submit_all
    >>> prepare = JobSpec(name="prepare", command=["touch", "data"])
    >>> train = JobSpec(name="train", command=["cat", "data"], after={"afterok": ["prepare"]})
    >>> group = submit_all([prepare, train], "local", name="pipeline")
    >>> {job: now.ending for job, now in group.wait().items()}
    {'prepare': 'done', 'train': 'done'}

    Raises:
        InvalidInput: a job cannot run on this site, or jobs wait for one another in a circle.
        CastoffError: a job could not be submitted; the message tells how to submit the rest.
    """
    if isinstance(jobs, (str, Path)):
        loaded = load(jobs)
        of_file = JobGroup(loaded.name or "group", [loaded]) if isinstance(loaded, JobSpec) else loaded
        named, specs = name or of_file.name, of_file.jobs
    else:
        named, specs = name or "group", [*jobs]
    submitted = group.submit_group(made(named, specs), as_site(site), runs_dir=runs_dir, environ=environ)
    return RunGroup(submitted)
