"""submit(spec, site) for Python programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from castoff.launcher.api.run import Run
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Array
from castoff.launcher.config.parameters import Values
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError
from castoff.launcher.schedulers.choice import site_named
from castoff.launcher.submission import submit as submission
from castoff.launcher.text.python_words import speaks_python


@speaks_python()
def submit(
    spec: JobSpec | str | Path,
    site: Site | str,
    *,
    parameters: Values | Sequence[Values] | None = None,
    runs_dir: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Run:
    """Make the run directory, submit the script once, and return the run.

    `spec`: a job, or the path of a job file. `site`: a site, or its name. `parameters`: the values of an
    array's members, as the field `array.parameters` has them. `runs_dir`: the folder of run directories;
    None: CASTOFF_RUNS_DIR, else castoff-runs in the working directory. `environ`: the submitter's
    environment; None: this process's.

    >>> from castoff import JobSpec, Run, submit
    >>> job = JobSpec(command=["echo", "hello"], ranks_per_node=2)
    >>> run = submit(job, "local")
    >>> run.wait().ending
    'done'
    >>> print(run.logs(rank=0), end="")
    hello
    >>> Run.find(run.id).status().state
    'ended'
    >>> job = JobSpec(command=["echo", "rate {lr}"], ranks_per_node=1)
    >>> run = submit(job, "local", parameters=[{"lr": 0.1}, {"lr": 0.01}])
    >>> run.wait().counts
    {'done': 2}
    >>> print(run.logs(member=1, rank=0), end="")
    rate 0.01

    Raises:
        InvalidInput: the job cannot run on this site.
        NotSent: the scheduler rejects it, or cannot be reached.
        Unclear: it is not known yet whether the scheduler accepted the job; `castoff status` finds out.
        CastoffError: the job cannot be submitted from this host.
    """
    spec = JobSpec.load(spec) if isinstance(spec, (str, Path)) else spec
    if parameters is not None:
        array = msgspec.structs.replace(spec.array or Array(), count=None, indices=None)
        spec = spec.changed(array={**msgspec.to_builtins(array), "parameters": parameters})
    return Run(submission.submit(spec, as_site(site), runs_dir=runs_dir, environ=environ).path)


def as_site(site: Site | str) -> Site:
    """A site, or the one of that name.

    Raises:
        CastoffError: there is none of that name, or the argument is something else.
    """
    if isinstance(site, str):
        return site_named(site)
    if not isinstance(site, Site):
        raise CastoffError(f"site is {site!r}, but takes a Site or a site's name, as in 'slurm'")
    return site
