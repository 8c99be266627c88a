"""The launchers that castoff knows, each with the command line that it makes from a Request.

What is known only inside the job, such as its hosts, is added by the files of templates/machinery/launchers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from castoff.launcher.config.job_fields import LauncherName, OwnDistribution
from castoff.launcher.config.quantities import CPULIST_PATTERN, cpus, descending
from castoff.launcher.config.site import Site
from castoff.launcher.launchers.base import Launcher, Request, value_of, without

_MEMORY = ("--mem", "--mem-per-cpu", "--mem-per-gpu")
"""srun's flags for memory, which exclude each other."""


_OPEN_MPI = r"openmpi|ompi|(?:nvhpc-)?hpcx"


class Srun(Launcher):
    """https://slurm.schedmd.com/srun.html."""

    reports_node = True
    ends_by_usr1 = True
    pmix_flag = "--mpi=pmix"
    pmix_modules = _OPEN_MPI
    bind_flags = ("--cpu-bind", "--cpu_bind")
    takes_lists = True
    runs_containers = True

    def argv(self, request: Request) -> list[str]:
        """See `Launcher.argv`."""
        layout, own = request.layout, request.own_distribution
        # An uneven layout is in the host file; srun 26.05 refuses --nodes together with a host file.
        uneven = not (own or layout.is_uniform)
        nodes = [] if uneven or own == "arbitrary" else [f"--nodes={layout.nodes}"]
        argv = ["srun", *nodes, f"--ntasks={layout.processes}"]
        if not own:
            argv.append("--distribution=arbitrary" if uneven else f"--ntasks-per-node={layout.max_per_node}")
        if request.by_list:
            # The masks have the kernel's CPU numbers, which Slurm does not change on a job's whole nodes.
            # --cpus-per-task is left out: it would give the step only the first CPUs, and a mask of other
            # CPUs would end the step.
            argv.append(f"--cpu-bind=mask_cpu:{','.join(_masks(request))}")
        elif request.cores is not None:
            # srun does not inherit --cpus-per-task from sbatch since Slurm 22.05.
            argv.append(f"--cpus-per-task={request.site.cpus_of(request.cores)}")
        return [*argv, *_srun_devices(request), "--kill-on-bad-exit=1", "--wait=0", "--export=ALL"]

    def share(self, request: Request, *, nodes_too: bool) -> list[str]:
        """See `Launcher.share`; the script binds the ranks.

        Not --exact: when a job loses a node, Slurm 22.05 takes the cores of steps that run then for used as
        long as the job lives (_step_dealloc_lps: "due to job resizing"), and further steps wait for them.
        """
        if not nodes_too:
            return ["--overlap", "--mem=0"]
        gpus = [f"--gpus-per-node={request.gpus(request.node_devices)}"] if request.node_devices else []
        return ["--overlap", "--mem=0", "--cpu-bind=none", *gpus]

    def beside(self, request: Request, of_site: list[str]) -> list[str]:
        """See `Launcher.beside`; requests all of the node's devices if a step gets only devices that it
        requests.
        """
        argv = super().beside(request, without(_MEMORY, of_site))
        if request.node_devices and request.site.gpu_request == "gpus-per-task":
            argv.append(f"--gpus-per-node={request.gpus(request.node_devices)}")
        # Slurm 22.05 refuses a step that requests another step's memory, even with --overlap.
        beside = ["--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0"]
        return [*argv, *beside]

    def _bound(
        self, kind: str, listed: str, words: Sequence[str], ranks: int, usable: Sequence[int]
    ) -> list[list[int]] | None:
        if kind == "map_cpu":
            return _in_turn(listed, ranks, lambda one: [int(one, 0)])
        return _in_turn(listed, ranks, _in_mask) if kind == "mask_cpu" else None

    def own_distribution(self, words: Sequence[str], named: Mapping[str, object]) -> OwnDistribution | None:
        """See `Launcher.own_distribution`; reads --distribution or -m."""
        distributions = [
            f"{flag} {following}"
            for flag, following in zip_longest(words, words[1:])
            if flag.startswith(("--dist", "-m"))
        ]
        distributions = distributions or [
            str(named[name]) for name in ("distribution", "m") if named.get(name)
        ]
        if not distributions:
            return None
        return "arbitrary" if re.search(r"\barb", distributions[-1]) else "own"

    def deals_over_sockets(self, words: Sequence[str], named: Mapping[str, object]) -> bool:
        """See `Launcher.deals_over_sockets`: Slurm does so unless flags or directives set another
        distribution.
        """
        directives = {"hint", "distribution", "m", *_SAY_HOW}
        flags = tuple(f"--{name}" for name in ("hint", "dist", *_SAY_HOW))
        has_flag = any(word.startswith((*flags, "-m", "-B")) for word in words)
        return not has_flag and not named.keys() & directives

    def shows_devices(self, words: Sequence[str]) -> str | None:
        """See `Launcher.shows_devices`; reads --gpu-bind, or else flags that request GPUs for each task."""
        rule = value_of(("--gpu-bind",), words)
        if rule is not None:
            return rule.removeprefix("verbose,")
        per_task_flags = ("--gpus-per-task", "--ntasks-per-gpu")
        return "per_task" if any(word.partition("=")[0] in per_task_flags for word in words) else None

    def shown_devices(self, rule: str, ranks: int) -> list[list[int]] | None:
        """See `Launcher.shown_devices`. If a list of map_gpu or mask_gpu is too short, it starts again."""
        kind, _, listed = rule.partition(":")
        if kind == "map_gpu":
            return _in_turn(listed, ranks, lambda one: [int(one, 0)])
        return _in_turn(listed, ranks, _in_mask) if kind == "mask_gpu" else None

    def heeds_cpus(self, argv: Sequence[str]) -> bool:
        """See `Launcher.heeds_cpus`: srun does, unless `--overcommit` is among the options."""
        return not {"-O", "--overcommit"} & {*argv}

    def each_host(self, site: Site, of_site: list[str]) -> list[str]:
        """See `Launcher.each_host`; the step overlaps other steps, and one failing process does not end the
        step.
        """
        argv = ["srun", "--overlap", "--mem=0", "--ntasks-per-node=1", "--wait=0", "--export=ALL"]
        return [*argv, *without(_MEMORY, of_site)]

    def only_on(self, hosts: Sequence[str]) -> list[str]:
        """See `Launcher.only_on`; srun would take any idle hosts, and rank 0 might not be on the first."""
        return [f"--nodelist={','.join(hosts)}"]


def _masks(request: Request) -> list[str]:
    return [hex(sum(1 << cpu for cpu in cpus(cpu_list))) for cpu_list in request.cpu_lists]


_SAY_HOW = (
    "threads-per-core",
    "cores-per-socket",
    "sockets-per-node",
    "ntasks-per-core",
    "ntasks-per-socket",
)
"""Options of srun and sbatch, other than the distribution, that decide which CPUs each task gets."""


def _in_mask(text: str) -> list[int]:
    mask = int(text, 16)
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


_IN_TURN = re.compile(r"(?:0[xX])?[0-9a-fA-F]{1,999}(?:\*[1-9][0-9]{0,3})?")


def _in_turn(listed: str, ranks: int, read: Callable[[str], list[int]]) -> list[list[int]]:
    """Read srun's list for the local ranks: `0x3*2,0xc` gives 0x3 twice; a short list starts again."""
    entries: list[list[int]] = []
    for part in listed.split(","):
        entry, _, times = part.partition("*")
        try:
            if not _IN_TURN.fullmatch(part):
                raise ValueError
            entries += [read(entry)] * int(times or 1)
        except ValueError:
            raise ValueError(f"which has {part!r} where a number or a mask belongs") from None
    return [entries[rank % len(entries)] for rank in range(ranks)]


def _of_lists(lists: list[str], ranks: int) -> list[list[int]]:
    """Read CPU lists, one for each local rank; additional lists are ignored."""
    for cpu_list in lists:
        if not re.fullmatch(CPULIST_PATTERN, cpu_list):
            raise ValueError(f"which has {cpu_list!r} where a CPU list such as 0-7 or 0,4 belongs")
        if part := descending(cpu_list):
            raise ValueError(f"which holds {part}, which descends: write the smaller number first")
    if len(lists) < ranks:
        raise ValueError(
            f"which has {len(lists)} CPU lists, but a node has {ranks} ranks: write one for each"
        )
    return [cpus(cpu_list) for cpu_list in lists[:ranks]]


def _srun_devices(request: Request) -> list[str]:
    """Return the step's flags for devices."""
    if not request.devices:
        return []
    argv = []
    if request.site.gpu_request == "gpus-per-task":
        if request.node_devices > request.devices * request.layout.max_per_node:
            # A step that leaves devices out may miss those nearest to its cores (OLCF, Frontier's guide).
            argv.append(f"--gpus-per-node={request.gpus(request.node_devices)}")
        else:
            argv.append(f"--gpus-per-task={request.gpus(request.devices)}")
    if request.site.gpu_bind:
        argv.append(f"--gpu-bind={request.site.gpu_bind}")
    return argv


class _Mpiexec(Launcher):
    is_mpiexec = True


class Pals(_Mpiexec):
    """HPE's PALS mpiexec: https://docs.alcf.anl.gov/aurora/running-jobs-aurora/."""

    reports_node = True
    survives_rank_failure = True
    bind_flags = ("--cpu-bind",)
    says = r"(?i)\bpals\b"
    mpi_modules = r"cray-mpich|mpich"
    comes_with_mpi = False
    takes_lists = True
    bound_by_list = True
    fills_nodes = True

    def share(self, request: Request, *, nodes_too: bool) -> list[str]:
        """See `Launcher.share`; the script binds the ranks."""
        return ["--cpu-bind", "none"] if nodes_too else []

    def argv(self, request: Request) -> list[str]:
        """See `Launcher.argv`."""
        layout = request.layout
        argv = [request.site.mpiexec, "-n", str(layout.processes), "--ppn", str(layout.max_per_node)]
        if request.cpu_lists:
            argv += ["--cpu-bind", "list:" + ":".join(request.cpu_lists)]
        return [*argv, "--line-buffer"]  # otherwise lines of several ranks are mixed

    def each_host(self, site: Site, of_site: list[str]) -> list[str]:
        """See `Launcher.each_host`."""
        return [site.mpiexec, "--ppn", "1", "--line-buffer", *of_site]

    def _bound(
        self, kind: str, listed: str, words: Sequence[str], ranks: int, usable: Sequence[int]
    ) -> list[list[int]] | None:
        if kind == "list":
            return _of_lists(listed.split(":"), ranks)
        return _blocks(ranks, value_of(("-d", "--depth"), words), usable) if kind == "depth" else None

    def shows_devices(self, words: Sequence[str]) -> str | None:
        """See `Launcher.shows_devices`; reads --gpu-bind."""
        return value_of(("--gpu-bind",), words)


class Hydra(_Mpiexec):
    """MPICH's mpiexec; the host file sets the number of processes on each host."""

    says = r"HYDRA|MPICH"
    mpi_modules = r"mpich|mvapich2?"
    reaches_by_ssh = True
    survives_rank_failure = True
    bind_flags = ("-bind-to", "--bind-to")
    takes_lists = True
    leaves_unbound = True
    # MPICH 4.0.2 takes 999 words and dies of SIGSEGV at one more (HYD_NUM_TMP_STRINGS in its hydra.h).
    # rank.sh and the words that look for it count as four of these, and a command with a lone : needs four
    # more.
    most_words = 991

    def argv(self, request: Request) -> list[str]:
        """See `Launcher.argv`."""
        argv = [request.site.mpiexec, "-n", str(request.layout.processes)]
        if request.by_list:  # seen on MPICH 4.0.2: the file's pattern has an entry for each process of a host
            entries = ["+".join(map(str, cpus(cpu_list))) for cpu_list in request.cpu_lists]
            argv += ["-bind-to", f"user:{','.join(entries)}"]
        return argv

    def _bound(
        self, kind: str, listed: str, words: Sequence[str], ranks: int, usable: Sequence[int]
    ) -> list[list[int]] | None:
        if kind == "user":
            return _of_lists([entry.replace("+", ",") for entry in listed.split(",")], ranks)
        return _blocks(ranks, listed, usable) if kind == "core" else None


class IntelMpi(_Mpiexec):
    """Intel MPI's mpiexec, which is derived from Hydra; the machine file sets the number of processes on each
    host.
    """

    says = r"Intel\(R\) MPI"
    mpi_modules = r"impi|intel-?mpi|intel-oneapi-mpi"
    reaches_by_ssh = True
    survives_rank_failure = True
    takes_lists = True
    leaves_unbound = True

    def argv(self, request: Request) -> list[str]:
        """See `Launcher.argv`."""
        argv = [request.site.mpiexec, "-n", str(request.layout.processes)]
        if request.by_list:
            # Intel MPI accepts MPICH's -bind-to, which does nothing; the masks bind any program (seen on
            # Intel MPI 2021).
            argv += ["-genv", "I_MPI_PIN_DOMAIN", f"[{','.join(_masks(request))}]"]
        return argv

    def share(self, request: Request, *, nodes_too: bool) -> list[str]:
        """See `Launcher.share`; the script binds the ranks. By default each of several programs would pin its
        ranks as if it had the node for itself.
        """
        return ["-genv", "I_MPI_PIN", "off"] if nodes_too else []


class OpenMpi(_Mpiexec):
    """Open MPI's mpiexec. By default it binds each rank to one core, which would starve data loaders."""

    says = r"OpenRTE|Open MPI|PRRTE"
    mpi_modules = _OPEN_MPI
    reaches_by_ssh = True
    ends_by_usr1 = True
    bind_flags = ("--bind-to", "-bind-to")
    takes_lists = True
    leaves_unbound = True
    bound_by_script = True

    def argv(self, request: Request) -> list[str]:
        """See `Launcher.argv`."""
        return [request.site.mpiexec, "-n", str(request.layout.processes), "--bind-to", "none"]


class FluxRun(Launcher):
    """flux run in the instance of a batch job: https://flux-framework.readthedocs.io, flux-run(1)."""

    divides = True
    fills_in = True
    cancels_on_int = True

    def argv(self, request: Request) -> list[str]:
        """See `Launcher.argv`."""
        layout, site = request.layout, request.site
        argv = ["flux", "run", f"--nodes={layout.nodes}", f"--ntasks={layout.processes}"]
        if request.cores is None:
            argv.append("--exclusive")  # all resources that the job has on its nodes
        else:
            argv += [f"--cores-per-task={request.cores}", "--setopt=cpu-affinity=per-task"]
        if request.devices and site.gpu_request == "gpus-per-task":
            argv += [f"--gpus-per-task={request.devices}", "--setopt=gpu-affinity=per-task"]
        else:
            argv.append("--setopt=gpu-affinity=off")  # otherwise Flux hides devices that were not requested
        # By default, flux kills the other ranks 30 s after one rank has ended, even if that rank succeeded.
        return [*argv, "--setopt=exit-on-error", "--setopt=exit-timeout=none"]

    def each_host(self, site: Site, of_site: list[str]) -> list[str]:
        """See `Launcher.each_host`; the brokers themselves start the processes, which therefore need no
        cores.
        """
        return ["flux", "exec", "--noinput"]

    def heeds_cpus(self, argv: Sequence[str]) -> bool:
        """See `Launcher.heeds_cpus`: a job for more cores than the instance has is refused."""
        return True

    def only_on(self, hosts: Sequence[str]) -> list[str]:
        """See `Launcher.only_on`; flux run would take any idle hosts."""
        return [f"--requires=host:{','.join(hosts)}"]


class Here(Launcher):
    """castoff's own launcher, on one host, which may be part of an allocation."""

    reports_node = True
    here = True

    def argv(self, request: Request) -> list[str]:
        """See `Launcher.argv`."""
        argv = ["launch", "--here", "--ranks-per-node", str(request.layout.processes)]
        if request.cores is not None:
            argv += ["--cores-per-rank", str(request.cores)]
        if request.devices:
            argv += ["--devices-per-rank", str(request.devices)]
        return argv


def _blocks(ranks: int, width: str | None, usable: Sequence[int]) -> list[list[int]] | None:
    """Give each rank the next `width` cores; None if the cores are not known, or there are too few."""
    per_rank = int(width) if width and width.isdecimal() else 1
    if len(usable) < ranks * per_rank:
        return None
    return [[*usable[rank * per_rank : (rank + 1) * per_rank]] for rank in range(ranks)]


LAUNCHERS: dict[LauncherName, Launcher] = {
    "srun": Srun(),
    "pals": Pals(),
    "hydra": Hydra(),
    "intelmpi": IntelMpi(),
    "openmpi": OpenMpi(),
    "flux": FluxRun(),
    "local": Here(),
}
"""The launchers by name."""


def named_by(version: str) -> LauncherName | None:
    """Return the launcher whose mpiexec printed this version; None: no known launcher."""
    return next(
        (name for name, launcher in LAUNCHERS.items() if launcher.says and re.search(launcher.says, version)),
        None,
    )


MERGING = frozenset(name for name, launcher in LAUNCHERS.items() if launcher.here)
"""The names of the launchers that merge the output of all ranks into one stream."""
