"""Allocations: the hosts that a scheduler has given to this shell (salloc, qsub -I), and a job on them.

Nothing is asked of the scheduler: its variables tell all of it, and PBS's node file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from launcher.config.document import Document
from launcher.config.job import JobSpec
from launcher.config.site import Site
from launcher.errors import CastoffError, InvalidInput, PlacementError, Problem
from launcher.planning.planner import plan
from launcher.ranks import read_text
from launcher.ranks.decision import decide
from launcher.ranks.families import Placement, innermost, slurm_in_step, tasks_on_node, value
from launcher.ranks.hostlist import expand, read_nodefile
from launcher.ranks.scheduler import job_id
from launcher.runs.plan import Plan

_SUBMISSION_ONLY = (
    *("account", "queue", "qos", "constraint", "reservation", "exclude", "exclusive", "memory", "mail"),
    *("directives", "array", "after", "requeue"),
)
"""Fields that say what a scheduler is to give: here it has given already."""

_OF_ANOTHER_START = ("CASTOFF_ATTEMPT", "CASTOFF_ARRAY_OFFSET", "SLURM_RESTART_COUNT")
"""What a job around this shell was told of itself, and a script in it would take for its own."""

_OF_THE_STEP = ("SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_DISTRIBUTION")
"""Beginnings of what srun told the step that this shell is, and an srun in it would take for orders."""


class Allocation(NamedTuple):
    """Hosts that a scheduler has given to this shell."""

    scheduler: Literal["slurm", "pbs"]
    job: str
    """The scheduler's id."""
    hosts: list[str]
    """In the scheduler's order; the shell of `qsub -I` runs on the first."""
    cpus: tuple[int, ...] = ()
    """Of each host, as far as Slurm tells them and heeds them."""
    in_step: bool = False
    """This shell is the one task of a step (`srun --pty bash`), which holds the cores of the job."""

    def __str__(self) -> str:
        scheduler = {"slurm": "Slurm", "pbs": "PBS"}[self.scheduler]
        count = "1 host" if len(self.hosts) == 1 else f"{len(self.hosts)} hosts"
        shown = self.hosts if len(self.hosts) <= 4 else [*self.hosts[:3], "…", self.hosts[-1]]
        return f"{scheduler} job {self.job} ({count}: {', '.join(shown)})"


def find(environ: Mapping[str, str], read_file: Callable[[str], str] = read_text) -> list[Allocation]:
    """The allocations that this environment tells of: none, one, or one of each scheduler.

    Raises:
        CastoffError: the variables tell of one, but not which hosts it has.
    """
    found = [_slurm(environ, job)] if (job := job_id(environ)) else []
    if pbs_job := value(environ, "PBS_JOBID"):
        found.append(_pbs(environ, pbs_job, read_file))
    return found


def _slurm(environ: Mapping[str, str], job: str) -> Allocation:
    hosts = expand(value(environ, "SLURM_JOB_NODELIST") or "")
    if not hosts:
        raise _no_hosts(
            f"SLURM_JOB_ID={job} is set, but SLURM_JOB_NODELIST, which lists its hosts, is not",
            f'export SLURM_JOB_NODELIST="$(squeue --noheader --job {job} --format %N)"',
            "SLURM_JOB_ID SLURM_JOBID",
        )
    counts = value(environ, "SLURM_JOB_CPUS_PER_NODE")
    cpus: tuple[int, ...] = ()
    if counts is not None and value(environ, "SLURM_OVERCOMMIT") is None:
        cpus = tuple(tasks_on_node(counts, node) for node in range(len(hosts)))
    return Allocation("slurm", job, hosts, cpus, slurm_in_step(environ))


def _pbs(environ: Mapping[str, str], job: str, read_file: Callable[[str], str]) -> Allocation:
    path = value(environ, "PBS_NODEFILE")
    if path is None:
        why = "PBS_NODEFILE is not set"
    else:
        try:
            hosts, why = read_nodefile(read_file(path)), f"PBS_NODEFILE={path} is empty"
        except OSError as error:
            hosts, why = [], f"PBS_NODEFILE={path} cannot be read: {error.strerror}"
        if hosts:
            return Allocation("pbs", job, hosts)
    raise _no_hosts(
        f"PBS_JOBID={job} is set, but its hosts are not known: {why}",
        f"export PBS_NODEFILE=/var/spool/pbs/aux/{job}, or wherever your PBS keeps it",
        "PBS_JOBID",
    )


def _no_hosts(what: str, fix: str, names: str) -> CastoffError:
    return CastoffError(
        f"{what}.\nIn that job: {fix}\nOutside of it: unset {names}\n"
        "For ranks on this host alone: castoff launch --here"
    )


def rank_here(environ: Mapping[str, str], read_file: Callable[[str], str] = read_text) -> Placement | None:
    """The place of this process, if it is one of several ranks already; None if it is not.

    What was left over or set by hand, without a starter, makes no rank: a script clears it.
    """
    try:
        placement: Placement | None = decide(environ, read_file).placement
    except PlacementError:
        placement = None
    if placement is None or placement.starter in ("environment", "single"):
        spawned = placement is not None and value(environ, "CASTOFF_RANK") is not None
        try:
            placement = innermost(environ) or (placement if spawned else None)
        except PlacementError:
            return None
    return None if placement is None or placement.world_size == 1 else placement


def plan_in(allocation: Allocation, spec: JobSpec, site: Site, environ: Mapping[str, str]) -> Plan:
    """Resolve a job on the hosts of an allocation: on all of them unless it says otherwise.

    Raises:
        InvalidInput: it asks for more than there is, or cannot run on that site at all.
    """
    job, here = _job_in(allocation, spec, site, environ)
    decided = plan(job, here)
    share = _fair_share(allocation, decided)
    if decided.cores_per_rank is None and share:
        decided = plan(_changed(job, cores_per_rank=share), here)
    _check_cpus(allocation, decided)
    return decided


def _job_in(
    allocation: Allocation, spec: JobSpec, site: Site, environ: Mapping[str, str]
) -> tuple[JobSpec, Site]:
    """The job and the site without what a submission would ask for."""
    nodes = _nodes(allocation, spec)
    blank = {name: getattr(JobSpec(), name) for name in _SUBMISSION_ONLY}
    own = {**blank, "nodes": nodes, "inherit": "all"}
    if allocation.scheduler == "slurm":
        own["walltime"] = None  # Slurm tells the allocation's own end
    threads = environ.get("OMP_NUM_THREADS")
    set_by_pbs = allocation.scheduler == "pbs" and threads == environ.get("NCPUS")
    if threads and not set_by_pbs and "OMP_NUM_THREADS" not in {**site.env, **site.defaults.env, **spec.env}:
        own["env"] = {**spec.env, "OMP_NUM_THREADS": threads}
    if nodes < len(allocation.hosts) and (spec.start.starter or site.starter) == "srun":
        # srun would take whichever hosts are idle, and rank 0 might not be on the first.
        hosts = f"--nodelist={','.join(allocation.hosts[:nodes])}"
        own["start"] = msgspec.structs.replace(spec.start, args=[*spec.start.args, hosts])
    defaults = msgspec.structs.replace(site.defaults, **blank, walltime=None)
    return _changed(spec, **own), msgspec.structs.replace(
        site, required=[], queues={}, other_queues=True, array=None, directives={}, defaults=defaults
    )


def _changed(spec: JobSpec, **fields: Any) -> JobSpec:
    """A job with other fields, that still knows where it was read."""
    changed = msgspec.structs.replace(spec, **fields)
    changed.__dict__["document"] = spec.source
    return changed


def _nodes(allocation: Allocation, spec: JobSpec) -> int:
    count = len(allocation.hosts)
    if spec.nodes is None:
        return min(count, spec.ranks or count)
    if spec.nodes > count:
        source = spec.source or Document({}, "the job")
        larger = {"slurm": "salloc --nodes", "pbs": "qsub -I -l select="}[allocation.scheduler]
        message = (
            f"is {spec.nodes}, but {allocation} has no more: ask for {count} at the most "
            f"(--nodes {count}), or for a larger allocation ({larger} …)"
        )
        raise InvalidInput([Problem(source.where(("nodes",)), "nodes", message)])
    return spec.nodes


def _counts(decided: Plan) -> list[int]:
    """How many ranks each host gets."""
    return [count for count, times in decided.layout for _ in range(times)]


def _fair_share(allocation: Allocation, decided: Plan) -> int | None:
    """CPUs that every rank can have of those that Slurm has given; None where that is not told."""
    shares = [cpus // count for cpus, count in zip(allocation.cpus, _counts(decided), strict=False)]
    return min(shares, default=None)


def _check_cpus(allocation: Allocation, decided: Plan) -> None:
    """Refuse what srun would refuse, or lay out otherwise: more on a host than it has CPUs for."""
    if decided.starter != "srun" or {"-O", "--overcommit"} & {*decided.start}:
        return
    cores = decided.cores_per_rank or 1
    for host, cpus, count in zip(allocation.hosts, allocation.cpus, _counts(decided), strict=False):
        tasks = 1 if decided.torchrun and decided.cores_per_rank is None else count
        if tasks * cores > cpus:
            each = f" with {cores} cores each" if cores > 1 else ""
            message = (
                f"{count} {'rank' if count == 1 else 'ranks'} on a host{each} need {tasks * cores} CPUs, but "
                f"{allocation} has {cpus} on {host}: start fewer, or ask for more (salloc "
                f"--nodes={decided.nodes} --ntasks-per-node={count} --cpus-per-task={cores})"
            )
            raise InvalidInput([Problem(f"{decided.name} on {decided.site}", "", message)])


def script_environment(
    allocation: Allocation,
    nodes: int,
    environ: Mapping[str, str],
    *,
    run: Path,
    directory: str,
    nodefile: Path | None,
) -> dict[str, str]:
    """The environment in which a script that stands alone runs on the first `nodes` hosts.

    `run` is its run directory, `directory` the one it counts as submitted from, `nodefile` a file of
    these hosts, for PBS and where they are not all.
    """
    changed = {name: text for name, text in environ.items() if name not in _OF_ANOTHER_START}
    changed["CASTOFF_RUN_DIR"] = str(run)
    if allocation.scheduler == "pbs":
        changed["PBS_O_WORKDIR"] = directory
        if nodefile is not None:
            changed["PBS_NODEFILE"] = str(nodefile)
        return changed
    changed["SLURM_SUBMIT_DIR"] = directory
    changed["SLURM_JOB_ID"] = allocation.job
    if nodes < len(allocation.hosts):
        changed["SLURM_JOB_NODELIST"] = changed["SLURM_NODELIST"] = ",".join(allocation.hosts[:nodes])
        changed["SLURM_JOB_NUM_NODES"] = changed["SLURM_NNODES"] = str(nodes)
    if allocation.in_step:
        changed = {name: text for name, text in changed.items() if not name.startswith(_OF_THE_STEP)}
        changed["SLURM_OVERLAP"] = "1"  # else srun would wait for this shell to let go of its cores
    return changed
