"""castoff launch: start ranks here and now."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.here import modules, run, with_given
from castoff.launcher.cli.offers import set_option, site_option
from castoff.launcher.cli.output import report
from castoff.launcher.cli.program import TakesProgram
from castoff.launcher.config.workdir import as_path
from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.local.start import NOT_FOUND, CannotStart, Hosts, StartRequest
from castoff.launcher.process.linux import check_linux
from castoff.launcher.ranks.rendezvous import derived_port
from castoff.launcher.runs.run import inherited_lock
from castoff.launcher.schedulers.registry import OWN, in_allocation, is_own, queued_of

if TYPE_CHECKING:
    from castoff.launcher.config.job import JobSpec
    from castoff.launcher.config.site import Site
    from castoff.launcher.runs.plan import Plan
    from castoff.launcher.schedulers.base_allocation import Allocation

_LEFT_OUT_HERE = (
    "setup",
    "teardown",
    "options",
    "inherit",
    "snapshot",
    "array",
    "after",
    "requeue",
    "launcher",
)
"""Fields of a job file that have no effect on ranks that castoff's own launcher starts on this host."""

_MASTER_PORT = derived_port("")
"""The default rendezvous port for hosts that the user names, which have no job id in common."""

_NOT_HERE = ("container", "stage")
"""Fields that only a job's script can apply, and that the program needs: its container and its staged files.
"""


@click.command(
    "launch",
    cls=TakesProgram,
    epilog=examples(
        "castoff launch -n 2 python train.py --lr 0.1",
        "castoff launch job.yaml -n 2",
    ),
)
@click.argument("job", required=False, type=click.Path(), metavar="[JOB | [--] COMMAND...]")
@click.option(
    "-n", "--ranks", type=click.IntRange(min=1), help="Ranks in all, as for srun and mpiexec; default 1."
)
@click.option("--ranks-per-node", type=click.IntRange(min=1), help="Ranks on each host, instead of --ranks.")
@click.option("-N", "--nodes", type=click.IntRange(min=1), help="Hosts of the allocation; default all.")
@click.option(
    "--node-rank",
    type=click.IntRange(min=0),
    help="Without a scheduler: this host's number, from 0, among the --nodes hosts that run this command.",
)
@click.option("--master-addr", metavar="HOST", help="With --node-rank: name or address of host 0.")
@click.option(
    "--master-port",
    type=click.IntRange(1024, 65535),
    help=f"With --node-rank: a free port of host 0; default {_MASTER_PORT}.",
)
@click.option("--cores-per-rank", type=click.IntRange(min=1), help="Default: an equal share of the cores.")
@click.option(
    "--devices-per-rank", type=click.IntRange(min=0), help="Default: as for the site; on this host none."
)
@set_option
@click.option("--member", type=click.IntRange(min=0), help="Run this member of a job with array.parameters.")
@click.option("--here", is_flag=True, help="Use this host alone, also inside an allocation.")
@site_option("The allocation's site; see `castoff sites`.")
@click.option("--runs-dir", type=click.Path(path_type=Path), help="In an allocation: where runs go.")
@click.option("--log-dir", type=click.Path(path_type=Path), help="On this host: write ranks' logs there.")
@click.option(
    "--failure-file", type=click.Path(path_type=Path), help="On this host: record the first failure there."
)
@click.option(
    "--preload",
    metavar="MODULES",
    help="On this host: modules that one process imports for all ranks, joined by commas, or none; "
    "default torch, if several ranks run a script that imports it.",
)
@click.option("--agent-for", type=click.IntRange(min=1), hidden=True)  # for job scripts, when they restart
@click.option("--given", "given_names", hidden=True)  # for job scripts: see `with_given`
@click.option("--job-id", help="On this host: a text from which the rendezvous port is derived.")
def command(
    job: str | None,
    overrides: tuple[str, ...],
    member: int | None,
    here: bool,
    site_name: str | None,
    runs_dir: Path | None,
    log_dir: Path | None,
    failure_file: Path | None,
    job_id: str | None,
    preload: str | None,
    agent_for: int | None,
    given_names: str | None,
    node_rank: int | None,
    master_addr: str | None,
    master_port: int | None,
    **layout: int | None,
) -> int:
    """Start ranks here and now, and show what they write.

    Inside an allocation (salloc, qsub -I, flux alloc) they start on its hosts, through the site's launcher,
    as a run with its own directory. Anywhere else, and with --here, castoff starts the ranks on this host;
    the setup lines of a job file are then skipped, since the ranks get your shell's environment. With
    --node-rank, castoff starts this host's ranks of a job on several hosts: call the same command on each
    host, with the host's number.

    The program follows --, or is the command of a job file. Ctrl-C asks it to save and stop; a second Ctrl-C
    kills it, and so does the end of a job file's walltime. The exit code is that of the first rank to fail;
    75 if the program has saved its state and can be resumed by the same command, as castoff's trainers can; 0
    if the program is done.
    """
    check_linux()
    context = click.get_current_context()
    if here:
        _refuse({"--site": site_name}, "names an allocation's site, but --here uses this host alone")
    flags = {name: value for name, value in layout.items() if value is not None}
    hosts = _hosts_by_hand(node_rank, master_addr, master_port, flags)
    allocated = None if here or hosts is not None else _allocation(site_name)
    of_this_host = {"--log-dir": log_dir, "--failure-file": failure_file, "--job-id": job_id}
    of_this_host["--preload"] = preload
    if allocated is not None:
        allocation, site = allocated
        _refuse(of_this_host, f"is for ranks on this host alone (--here), but this shell is in {allocation}")
        from castoff.launcher.cli.job_options import load_job
        from castoff.launcher.config.references import of_member

        spec = of_member(load_job(job, overrides, flags), member)
        return _run_script(spec, site, allocation, runs_dir)
    if job is None and not overrides and not context.obj:
        context.fail("name a program or a job file, as in castoff launch -n 2 python train.py")
    if hosts is not None and (job is not None or overrides or site_name is not None):
        context.fail("--node-rank is for a program after --, without job file and site")
    planned = "nodes" in flags or {"ranks", "ranks_per_node"} <= flags.keys()
    job_here = None
    if job is not None or overrides or site_name is not None or planned:
        job_here = _planned_here(job, overrides, flags, site_name or OWN, member)
        if job_here.by_mpiexec:
            _refuse(
                of_this_host, f"is for castoff's own launcher, but {job_here.plan.launcher} starts this job"
            )
            return _run_script(job_here.spec, job_here.site, _this_machine(), runs_dir)
    _refuse(
        {"--runs-dir": runs_dir},
        "applies to runs in an allocation or by an mpiexec; here --log-dir names the folder of logs",
    )
    request = StartRequest(
        command=context.obj or [],
        ranks=flags.get("ranks_per_node") or flags.get("ranks") or 1,
        cores_per_rank=flags.get("cores_per_rank"),
        devices_per_rank=flags.get("devices_per_rank"),
        environment=with_given(os.environ, given_names),
        log_dir=log_dir,
        failure_file=failure_file,
        job_id=job_id or os.urandom(8).hex(),
        preload=modules(preload),
        agent_for=agent_for,
        hosts=hosts,
        inherited=inherited_lock(os.environ),  # keeps the run locked while a rank lives
    )
    if not here:
        _report_shell_words(job_here, request.command)
    if job_here is not None:
        request = _with_job(request, job_here, job or "the command line")
    elif not flags.keys() & {"ranks", "ranks_per_node"}:
        _report_idle_devices(request)
    try:
        return run(request)
    except CannotStart as error:
        if error.exit_code == NOT_FOUND and job_here is None and not (here or _is_suspect(request.command)):
            _report_mistake(request.command)
        raise


class _JobHere(NamedTuple):
    """A job file planned for this host."""

    spec: JobSpec
    site: Site
    plan: Plan

    @property
    def by_mpiexec(self) -> bool:
        """Whether the job needs its script: it is a batch script, or its launcher is not castoff's own."""
        from castoff.launcher.launchers.commands import LAUNCHERS

        return self.plan.script is not None or not (self.plan.driver or LAUNCHERS[self.plan.launcher].here)


def _planned_here(
    job: str | None,
    overrides: tuple[str, ...],
    flags: dict[str, int],
    site_name: str,
    member: int | None,
) -> _JobHere:
    from castoff.launcher.cli.job_options import load_job
    from castoff.launcher.config.references import of_member
    from castoff.launcher.planning.planner import plan
    from castoff.launcher.schedulers.choice import site_named

    spec, site = of_member(load_job(job, overrides, flags), member), site_named(site_name)
    return _JobHere(spec, site, plan(spec, site))


def _run_script(spec: JobSpec, site: Site, allocation: Allocation, runs_dir: Path | None) -> int:
    """Run the job in the foreground, with a run directory and the script that a submission would send."""
    from castoff.launcher.interactive.in_allocation import submission_only
    from castoff.launcher.interactive.launch import run_in_foreground

    _report_ignored(spec, submission_only(spec))
    return run_in_foreground(
        spec,
        site,
        allocation,
        runs_dir=runs_dir,
        environ=os.environ,
        output=sys.stdout.buffer,
        messages=sys.stderr,
    )


def _this_machine() -> Allocation:
    from castoff.launcher.schedulers.local.allocation import ThisMachine

    return ThisMachine(f"local-{os.getpid()}", [socket.gethostname()])


def _report_shell_words(job: _JobHere | None, command: Sequence[str]) -> None:
    """Warn of a word of the command that only a shell understands."""
    if job is not None:
        from castoff.launcher.preflight.warnings import report_shell_words

        report_shell_words(job.spec)
    elif _is_suspect(command):  # other words need no import
        from castoff.launcher.preflight.shell_words import shell_warning

        if found := shell_warning(command, typed=True):
            report(f"warning: the program: {found[1]}")


def _is_suspect(command: Sequence[str]) -> bool:
    return any(letter in word for word in command for letter in "&|<>;$`")


def _report_mistake(command: Sequence[str]) -> None:
    """Warn of the likely mistake in the name of a program that was not found."""
    from castoff.launcher.preflight.shell_words import near_miss, shell_warning

    if found := shell_warning(command, typed=True):
        report(f"warning: the program: {found[1]}")
    elif meant := near_miss(command[0]):
        report(f"warning: the program: is {command[0]!r}, which is not on PATH here; did you mean {meant}?")


def _report_idle_devices(request: StartRequest) -> None:
    """Warn that a single rank leaves GPUs of this host idle: libraries that see RANK use one device each."""
    from castoff.launcher.launchers.local.this_host import gpus_here

    if request.world_size == 1 and (count := gpus_here(request.environment)) > 1:
        report(
            f"this host shows {count} GPUs, and one rank uses one of them: castoff launch -n {count} starts "
            "a rank for each; a program that uses all of them by itself needs --set launcher.driver=true"
        )


def _hosts_by_hand(
    number: int | None, address: str | None, port: int | None, flags: dict[str, int]
) -> Hosts | None:
    """The hosts that the user named by flags, without a scheduler. Removes these flags from `flags`."""
    context = click.get_current_context()
    if number is None:
        _refuse({"--master-addr": address, "--master-port": port}, "needs --node-rank and --nodes")
        return None
    if "nodes" not in flags:
        context.fail(f"--node-rank {number} is this host's number; give the number of all hosts with --nodes")
    count = flags.pop("nodes")
    if "ranks" in flags:
        ranks = flags.pop("ranks")
        if ranks % count or "ranks_per_node" in flags:
            context.fail(
                f"--ranks {ranks} cannot be divided equally among {count} hosts: use --ranks-per-node instead"
            )
        flags["ranks_per_node"] = ranks // count
    if number >= count:
        context.fail(
            f"--node-rank is {number}, but with --nodes {count} the hosts are numbered 0 to {count - 1}"
        )
    if not address and count > 1:
        context.fail("--master-addr is missing: name the host whose --node-rank is 0, as all hosts reach it")
    return Hosts(count, number, address or "127.0.0.1", port or _MASTER_PORT)


def _refuse(flags: Mapping[str, object], why: str) -> None:
    for flag, value in flags.items():
        if value is not None:
            click.get_current_context().fail(f"{flag} {why}")


def _with_job(request: StartRequest, job: _JobHere, where: str) -> StartRequest:
    """The request completed from a job file; flags keep precedence."""
    import msgspec

    from castoff.launcher.cli.job_options import asked_fields

    spec, _, decided = job
    if needed := asked_fields(spec, _NOT_HERE):
        cleared = " ".join(f"--set {name}=null" for name in needed)
        raise CastoffError(
            f"{where}: launch starts the program as it is, without {' and '.join(needed)}; "
            f"use castoff submit --site local, or add {cleared}"
        )

    preload = spec.launcher.preload
    others = msgspec.structs.replace(spec.launcher, preload=None, driver=False)
    _report_ignored(msgspec.structs.replace(spec, launcher=others), _LEFT_OUT_HERE)
    kept = {name: value for name, value in request.environment.items() if name not in decided.env}
    environment = {**kept, **decided.variables}
    if decided.python:
        folder = Path(decided.python).parent
        environment["PATH"] = f"{folder}{os.pathsep}{environment.get('PATH', os.defpath)}"
    return request._replace(
        command=decided.command,
        ranks=decided.ranks,
        cores_per_rank=decided.cores_per_rank,
        devices_per_rank=decided.devices_per_rank or None,
        environment=environment,
        preload=preload if request.preload is None else request.preload,
        workdir=as_path(decided.workdir) if decided.workdir else None,
        driver=decided.driver,
        walltime=decided.walltime,
    )


def _report_ignored(spec: JobSpec, fields: Iterable[str]) -> None:
    from castoff.launcher.cli.job_options import asked_fields

    if unused := asked_fields(spec, fields):
        report(f"launch ignores {', '.join(unused)}, which only castoff submit uses")


def _allocation(site_name: str | None) -> tuple[Allocation, Site] | None:
    """The allocation to use and its site; None if ranks start on this host only. Raises an error if this
    process is already a rank in the allocation.
    """
    if site_name is None and not in_allocation(os.environ):
        return None  # the usual case, which imports nothing more
    from castoff.launcher.interactive.in_allocation import find, rank_here
    from castoff.launcher.schedulers.choice import choose_site, site_named

    site = None if site_name is None else site_named(site_name)
    if site is not None and is_own(site.scheduler):
        return None
    allocations = find(os.environ)
    if site is None:
        if not allocations:
            return None
        site, why = choose_site(inside=allocations[0].scheduler)
        report(f"site {site.name}: {why}")
        if is_own(site.scheduler):
            return None
    allocation = next((item for item in allocations if item.scheduler == site.scheduler), None)
    if allocation is None:
        get = queued_of(site.scheduler).interactive
        hint = f"this shell is not in an allocation: get one with {get}, or use castoff submit"
        if allocations:
            hint = f"this is {allocations[0]}: name the site of this machine with --site"
        raise CastoffError(f"site {site.name} runs {site.scheduler}, but {hint}; --here uses this host alone")
    rank = rank_here(os.environ)
    if rank is not None:
        size = "" if rank.world_size is None else f" of {rank.world_size}"
        sources = [rank.sources.get(field, "") for field in ("rank", "world_size", "local_rank")]
        names = " ".join(name for name in sources if name.isidentifier())  # omit descriptions
        raise CastoffError(
            f"this process is rank {rank.rank}{size} already, started by {rank.launcher}, and each rank "
            f"would start ranks on all hosts of {allocation}.\n"
            "Call it once, in the allocation's shell; for this host alone: castoff launch --here\n"
            f"If no launcher has started this process: unset {names}"
        )
    return allocation, site
