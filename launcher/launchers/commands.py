"""The launchers that castoff knows: how a Layout becomes the command line of srun or of an mpiexec.

What is known only inside the job, such as its hosts, is not here: a file of templates/machinery/launchers
adds the host file.
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
"""srun's flags that exclude each other."""


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
        # An uneven layout follows the host file, beside which srun 26.05 refuses --nodes.
        uneven = not (own or layout.is_uniform)
        nodes = [] if uneven or own == "arbitrary" else [f"--nodes={layout.nodes}"]
        argv = ["srun", *nodes, f"--ntasks={layout.processes}"]
        if not own:
            argv.append("--distribution=arbitrary" if uneven else f"--ntasks-per-node={layout.max_per_node}")
        if request.by_list:
            # Numbers of CPUs as the kernel has them: Slurm takes masks as they are on a job's whole nodes.
            # With --cpus-per-task the step has so many CPUs, the first ones, and a mask of others ends it.
            argv.append(f"--cpu-bind=mask_cpu:{','.join(_masks(request))}")
        elif request.cores is not None:
            # srun does not inherit it from sbatch since Slurm 22.05.
            argv.append(f"--cpus-per-task={request.site.cpus_of(request.cores)}")
        return [*argv, *_srun_devices(request), "--kill-on-bad-exit=1", "--wait=0", "--export=ALL"]

    def beside(self, request: Request, of_site: list[str]) -> list[str]:
        """See `Launcher.beside`; where a step has the devices that it asks for, all those of the node."""
        argv = super().beside(request, without(_MEMORY, of_site))
        if request.node_devices and request.site.gpu_request == "gpus-per-task":
            argv.append(f"--gpus-per-node={request.gpus(request.node_devices)}")
        # Slurm 22.05 refuses a step that asks for memory which another one has, although they may overlap.
        beside = ["--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0"]
        return [*argv, *beside]

    def _bound(
        self, kind: str, listed: str, words: Sequence[str], ranks: int, usable: Sequence[int]
    ) -> list[list[int]] | None:
        if kind == "map_cpu":
            return _in_turn(listed, ranks, lambda one: [int(one, 0)])
        return _in_turn(listed, ranks, _in_mask) if kind == "mask_cpu" else None

    def own_distribution(self, words: Sequence[str], named: Mapping[str, object]) -> OwnDistribution | None:
        """By --distribution or -m."""
        asked = [
            f"{flag} {after}"
            for flag, after in zip_longest(words, words[1:])
            if flag.startswith(("--dist", "-m"))
        ]
        asked = asked or [str(named[name]) for name in ("distribution", "m") if named.get(name)]
        if not asked:
            return None
        return "arbitrary" if re.search(r"\barb", asked[-1]) else "own"

    def deals_over_sockets(self, words: Sequence[str], named: Mapping[str, object]) -> bool:
        """Unless flags or directives say how: Slurm's default is cyclic, socket after socket."""
        said = ("hint", "distribution", "m", *_SAY_HOW)
        flags = tuple(f"--{name}" for name in ("hint", "dist", *_SAY_HOW))
        return not any(word.startswith((*flags, "-m", "-B")) for word in words) and not named.keys() & {*said}

    def shows_devices(self, words: Sequence[str]) -> str | None:
        """By --gpu-bind, else by flags that ask for GPUs of each task."""
        asked = value_of(("--gpu-bind",), words)
        if asked is not None:
            return asked.removeprefix("verbose,")
        each = ("--gpus-per-task", "--ntasks-per-gpu")
        return "per_task" if any(word.partition("=")[0] in each for word in words) else None

    def shown_devices(self, rule: str, ranks: int) -> list[list[int]] | None:
        """By map_gpu and mask_gpu, whose lists begin anew where they are shorter than the ranks of a node."""
        kind, _, listed = rule.partition(":")
        if kind == "map_gpu":
            return _in_turn(listed, ranks, lambda one: [int(one, 0)])
        return _in_turn(listed, ranks, _in_mask) if kind == "mask_gpu" else None

    def heeds_cpus(self, argv: Sequence[str]) -> bool:
        """Unless `--overcommit` is among its options."""
        return not {"-O", "--overcommit"} & {*argv}

    def each_host(self, site: Site, of_site: list[str]) -> list[str]:
        """A step beside others, which one failing process does not end."""
        argv = ["srun", "--overlap", "--mem=0", "--ntasks-per-node=1", "--wait=0", "--export=ALL"]
        return [*argv, *without(_MEMORY, of_site)]

    def only_on(self, hosts: Sequence[str]) -> list[str]:
        """It would take whichever hosts are idle, and rank 0 might not be on the first."""
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
"""Options of srun and sbatch, beside the distribution, that decide which CPUs each task gets."""


def _in_mask(text: str) -> list[int]:
    mask = int(text, 16)
    return [place for place in range(mask.bit_length()) if mask >> place & 1]


_IN_TURN = re.compile(r"(?:0[xX])?[0-9a-fA-F]{1,999}(?:\*[1-9][0-9]{0,3})?")


def _in_turn(listed: str, ranks: int, read: Callable[[str], list[int]]) -> list[list[int]]:
    """What srun gives each local rank: `0x3*2,0xc` gives 0x3 twice, and a list that is too short starts
    again."""
    found: list[list[int]] = []
    for part in listed.split(","):
        entry, _, times = part.partition("*")
        try:
            if not _IN_TURN.fullmatch(part):
                raise ValueError
            found += [read(entry)] * int(times or 1)
        except ValueError:
            raise ValueError(f"which has {part!r} where a number or a mask belongs") from None
    return [found[rank % len(found)] for rank in range(ranks)]


def _of_lists(lists: list[str], ranks: int) -> list[list[int]]:
    """CPU lists, one for each local rank; there may be more of them."""
    for one in lists:
        if not re.fullmatch(CPULIST_PATTERN, one):
            raise ValueError(f"which has {one!r} where a CPU list such as 0-7 or 0,4 belongs")
        if part := descending(one):
            raise ValueError(f"which holds {part}, which descends: write the smaller number first")
    if len(lists) < ranks:
        raise ValueError(
            f"which has {len(lists)} CPU lists, but a node has {ranks} ranks: write one for each"
        )
    return [cpus(one) for one in lists[:ranks]]


def _srun_devices(request: Request) -> list[str]:
    """The devices that the step asks for beyond the job's: with --gpus-per-node or --gres it has the
    job's."""
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

    def argv(self, request: Request) -> list[str]:
        """See `Launcher.argv`."""
        layout = request.layout
        argv = [request.site.mpiexec, "-n", str(layout.processes), "--ppn", str(layout.max_per_node)]
        if request.cpu_lists:
            argv += ["--cpu-bind", "list:" + ":".join(request.cpu_lists)]
        return [*argv, "--line-buffer"]  # or lines of several ranks come out mixed

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
        """By --gpu-bind."""
        return value_of(("--gpu-bind",), words)


class Hydra(_Mpiexec):
    """MPICH's mpiexec; the host file holds the processes of each host."""

    says = r"HYDRA|MPICH"
    mpi_modules = r"mpich|mvapich2?"
    reaches_by_ssh = True
    survives_rank_failure = True
    bind_flags = ("-bind-to", "--bind-to")
    takes_lists = True
    leaves_unbound = True
    # MPICH 4.0.2 takes 999 words and dies of SIGSEGV at one more (HYD_NUM_TMP_STRINGS in its hydra.h);
    # the three that look for rank.sh, and that itself, are four, and a command with a lone : takes four.
    most_words = 991

    def argv(self, request: Request) -> list[str]:
        """See `Launcher.argv`."""
        argv = [request.site.mpiexec, "-n", str(request.layout.processes)]
        if request.by_list:  # seen on MPICH 4.0.2: an entry for each process of a host
            own = ["+".join(map(str, cpus(cpu_list))) for cpu_list in request.cpu_lists]
            argv += ["-bind-to", f"user:{','.join(own)}"]
        return argv

    def _bound(
        self, kind: str, listed: str, words: Sequence[str], ranks: int, usable: Sequence[int]
    ) -> list[list[int]] | None:
        if kind == "user":
            return _of_lists([one.replace("+", ",") for one in listed.split(",")], ranks)
        return _blocks(ranks, listed, usable) if kind == "core" else None


class IntelMpi(_Mpiexec):
    """Intel MPI's mpiexec, a Hydra; the machine file holds the processes of each host."""

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
            # Its -bind-to is MPICH's and does nothing; the masks bind any program (seen on Intel MPI 2021).
            argv += ["-genv", "I_MPI_PIN_DOMAIN", f"[{','.join(_masks(request))}]"]
        return argv


class OpenMpi(_Mpiexec):
    """Open MPI's mpiexec. Its own binding, to one core each, would starve loader workers."""

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
    """flux run in the instance that a batch job is: https://flux-framework.readthedocs.io, flux-run(1)."""

    fills_in = True
    cancels_on_int = True

    def argv(self, request: Request) -> list[str]:
        """See `Launcher.argv`."""
        layout, site = request.layout, request.site
        argv = ["flux", "run", f"--nodes={layout.nodes}", f"--ntasks={layout.processes}"]
        if request.cores is None:
            argv.append("--exclusive")  # all that the job has of its nodes
        else:
            argv += [f"--cores-per-task={request.cores}", "--setopt=cpu-affinity=per-task"]
        if request.devices and site.gpu_request == "gpus-per-task":
            argv += [f"--gpus-per-task={request.devices}", "--setopt=gpu-affinity=per-task"]
        else:
            argv.append("--setopt=gpu-affinity=off")  # or it would hide those that it was not asked for
        # It would let the others run on for 30 s, and then kill them, even if the first has done well.
        return [*argv, "--setopt=exit-on-error", "--setopt=exit-timeout=none"]

    def each_host(self, site: Site, of_site: list[str]) -> list[str]:
        """By the brokers themselves, which need no cores for it."""
        return ["flux", "exec", "--noinput"]

    def heeds_cpus(self, argv: Sequence[str]) -> bool:
        """Always: a job for more cores than the instance has is refused."""
        return True

    def only_on(self, hosts: Sequence[str]) -> list[str]:
        """It would take whichever hosts are idle."""
        return [f"--requires=host:{','.join(hosts)}"]


class Here(Launcher):
    """castoff's own launcher, on one host, also where that host is part of an allocation."""

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
    """Consecutive cores for one rank after the other; None if they are not known, or too few without
    threads."""
    each = int(width) if width and width.isdecimal() else 1
    if len(usable) < ranks * each:
        return None
    return [[*usable[rank * each : (rank + 1) * each]] for rank in range(ranks)]


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
    """The mpiexec that identifies itself in this text; None: none of these."""
    return next((name for name, one in LAUNCHERS.items() if one.says and re.search(one.says, version)), None)


MERGING = frozenset(name for name, launcher in LAUNCHERS.items() if launcher.here)
"""The launchers that merge the lines of all ranks into one stream."""
