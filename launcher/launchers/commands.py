"""What starts processes inside an allocation: a Layout to the argv of srun or of an mpiexec.

What is known only inside the job, such as its hosts, is not here: a part of templates/machinery/launchers
adds the host file. Under torchrun the launcher starts one process per node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from launcher.config.job import LauncherName, OwnDistribution
from launcher.config.quantities import cpus
from launcher.config.site import Site


class Layout(NamedTuple):
    """Processes on nodes, block by block."""

    groups: list[tuple[int, int]]
    """(processes on a node, how many such nodes in a row), in node order."""

    @classmethod
    def of(cls, processes: int, nodes: int) -> Layout:
        """As evenly as possible: nodes differ by at most one, the fuller ones first."""
        few, fuller = divmod(processes, nodes)
        groups = [(few + 1, fuller), (few, nodes - fuller)]
        return cls([(count, times) for count, times in groups if times])

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return sum(times for _, times in self.groups)

    @property
    def processes(self) -> int:
        """How many processes."""
        return sum(count * times for count, times in self.groups)

    @property
    def max_per_node(self) -> int:
        """Processes on the fullest node."""
        return max(count for count, _ in self.groups)

    @property
    def is_uniform(self) -> bool:
        """Whether every node has the same number."""
        return len(self.groups) == 1

    @property
    def block_filled(self) -> bool:
        """Whether filling node after node gives this layout, which `mpiexec --ppn` does."""
        return self.is_uniform or self.groups[1:] == [(self.groups[1][0], 1)]


class Request(NamedTuple):
    """What a launcher and the scheduler are asked for."""

    layout: Layout
    cores: int | None
    """Cores of each process, where they were asked for or are known."""
    cpu_lists: list[str]
    """The CPU list of each process of a node; empty where Slurm or nobody binds."""
    devices: int
    """Devices of each process."""
    node_devices: int
    """Devices of each node that the job has: all of them where it has the node for itself."""
    site: Site
    own_distribution: OwnDistribution | None = None
    """Whether further flags of the job say where srun starts each process."""
    explicit_binding: bool = False
    """Whether the job itself names the cores of each process."""
    whole_nodes: bool = False
    """Whether the job has its nodes for itself, with all their devices."""
    name: str = ""
    walltime: int | None = None
    """Seconds."""
    grace: int = 0
    """Seconds."""
    after: str | None = None
    """A dependency of scheduler ids alone, in the scheduler's words."""


def srun(request: Request) -> list[str]:
    """https://slurm.schedmd.com/srun.html."""
    layout = request.layout
    argv = ["srun", f"--nodes={layout.nodes}", f"--ntasks={layout.processes}"]
    if not request.own_distribution:
        # An uneven layout follows the host file; srun would warn that it cannot do both.
        argv.append(
            f"--ntasks-per-node={layout.max_per_node}" if layout.is_uniform else "--distribution=arbitrary"
        )
    if request.cores is not None:
        # srun does not inherit it from sbatch since Slurm 22.05.
        argv.append(f"--cpus-per-task={request.site.cpus_of(request.cores)}")
    if request.explicit_binding:
        # Numbers of CPUs as the kernel has them, for Slurm takes masks as they are on a job's whole nodes.
        argv.append(f"--cpu-bind=mask_cpu:{','.join(_masks(request))}")
    return [*argv, *_srun_devices(request), "--kill-on-bad-exit=1", "--wait=0", "--export=ALL"]


def _masks(request: Request) -> list[str]:
    return [hex(sum(1 << cpu for cpu in cpus(one))) for one in request.cpu_lists]


def _srun_devices(request: Request) -> list[str]:
    """What the step asks for beyond the job: with --gpus-per-node or --gres it has the job's devices."""
    if not request.devices:
        return []
    argv = []
    if request.site.gpu_request == "gpus-per-task":
        if request.node_devices > request.devices * request.layout.max_per_node:
            # A step that leaves devices out may miss those nearest to its cores (OLCF, Frontier's guide).
            argv.append(f"--gpus-per-node={request.site.gpus_asked(request.node_devices)}")
        else:
            argv.append(f"--gpus-per-task={request.site.gpus_asked(request.devices)}")
    if request.site.gpu_bind:
        argv.append(f"--gpu-bind={request.site.gpu_bind}")
    return argv


def pals(request: Request) -> list[str]:
    """HPE's PALS mpiexec: https://docs.alcf.anl.gov/aurora/running-jobs-aurora/."""
    layout = request.layout
    argv = [request.site.mpiexec, "-n", str(layout.processes), "--ppn", str(layout.max_per_node)]
    if request.cpu_lists:
        argv += ["--cpu-bind", "list:" + ":".join(request.cpu_lists)]
    return [*argv, "--line-buffer"]  # or lines of several ranks come out mixed


def hydra(request: Request) -> list[str]:
    """MPICH's mpiexec; the host file holds the processes of each host."""
    argv = [request.site.mpiexec, "-n", str(request.layout.processes)]
    if request.explicit_binding:  # seen on MPICH 4.0.2: an entry for each process of a host
        own = ["+".join(map(str, cpus(one))) for one in request.cpu_lists]
        argv += ["-bind-to", f"user:{','.join(own)}"]
    return argv


def intelmpi(request: Request) -> list[str]:
    """Intel MPI's mpiexec, a Hydra; the machine file holds the processes of each host."""
    argv = [request.site.mpiexec, "-n", str(request.layout.processes)]
    # Its -bind-to is MPICH's and does nothing; the masks bind any program (seen on Intel MPI 2021).
    return (
        [*argv, "-genv", "I_MPI_PIN_DOMAIN", f"[{','.join(_masks(request))}]"]
        if request.explicit_binding
        else argv
    )


def openmpi(request: Request) -> list[str]:
    """Open MPI's mpiexec. Its own binding, to one core each, would starve loader workers."""
    return [request.site.mpiexec, "-n", str(request.layout.processes), "--bind-to", "none"]


def flux(request: Request) -> list[str]:
    """flux run in the instance that a batch job is: https://flux-framework.readthedocs.io, flux-run(1)."""
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
    # It would let the others run on for 30 s, and then kill them, also where the first to end has done well.
    return [*argv, "--setopt=exit-on-error", "--setopt=exit-timeout=none"]


def local(request: Request) -> list[str]:
    """castoff's own launcher, on one host, also where that host is part of an allocation."""
    argv = ["launch", "--here", "--ranks-per-node", str(request.layout.processes)]
    if request.cores is not None:
        argv += ["--cores-per-rank", str(request.cores)]
    if request.devices:
        argv += ["--devices-per-rank", str(request.devices)]
    return argv


class Launcher(NamedTuple):
    """A launcher's argv and what the job script must do around it."""

    argv: Callable[[Request], list[str]]
    tells: str
    """Which part of the machinery reads who a rank is: `nodes/launchers/…`."""
    tells_node: bool = True
    """Whether a rank gets its node's number; else node after node is filled."""
    survives_rank_failure: bool = False
    """Whether it lets the other ranks run on when one exits non-zero."""
    ends_by_usr1: bool = False
    """Whether it hands on USR1, and on TERM kills its ranks: srun (22.05.8) at once, Open MPI soon."""
    is_mpiexec: bool = True
    """Whether another one may go by its name."""
    here: bool = False
    """Whether it is castoff itself, on this host: it sets each rank's variables, and shows its lines."""
    bind_flags: tuple[str, ...] = ()
    """Its own flags that bind processes to cores."""
    takes_lists: bool = False
    """Whether it takes a list of cores for each process."""
    most_words: int | None = None
    """How many words of a command it takes; None: any number."""
    fills_in: bool = False
    """Whether it puts something of its own in the place of `{{…}}` in a word."""


LAUNCHERS: dict[LauncherName, Launcher] = {
    "srun": Launcher(
        *(srun, "srun"),
        ends_by_usr1=True,
        is_mpiexec=False,
        bind_flags=("--cpu-bind", "--cpu_bind"),
        takes_lists=True,
    ),
    "pals": Launcher(pals, "pals", survives_rank_failure=True, bind_flags=("--cpu-bind",), takes_lists=True),
    # MPICH 4.0.2 takes 999 words and dies of SIGSEGV at one more (HYD_NUM_TMP_STRINGS in its hydra.h);
    # the three that look for rank.sh, and that itself, are four, and a command with a lone : takes four.
    "hydra": Launcher(
        *(hydra, "pmi"),
        tells_node=False,
        survives_rank_failure=True,
        bind_flags=("-bind-to", "--bind-to"),
        takes_lists=True,
        most_words=991,
    ),
    "intelmpi": Launcher(intelmpi, "pmi", tells_node=False, survives_rank_failure=True, takes_lists=True),
    "openmpi": Launcher(
        *(openmpi, "openmpi"),
        tells_node=False,
        ends_by_usr1=True,
        bind_flags=("--bind-to", "-bind-to"),
    ),
    "flux": Launcher(flux, "flux", tells_node=False, is_mpiexec=False, fills_in=True),
    "local": Launcher(local, "", is_mpiexec=False, here=True),
}
"""The launchers by name."""


def start(name: LauncherName, request: Request, of_site: list[str], of_job: list[str]) -> list[str]:
    """A launcher's argv with the further flags of the site and of the job; only one of them binds."""
    flags = LAUNCHERS[name].bind_flags
    argv = LAUNCHERS[name].argv(request)
    if binds(name, of_job):
        argv, of_site = _without(flags, argv), _without(flags, of_site)
    elif request.explicit_binding:
        of_site = _without(flags, of_site)
    elif binds(name, of_site):
        argv = _without(flags, argv)
    return [*argv, *of_site, *of_job]


def binds(name: LauncherName, words: list[str]) -> bool:
    """Whether flags for this launcher say how processes are bound to cores."""
    return any(word.partition("=")[0] in LAUNCHERS[name].bind_flags for word in words)


def shows_devices(words: list[str]) -> bool | None:
    """Whether these flags have srun show each rank its own GPUs alone; None where they say nothing of it."""
    shows = None
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--gpu-bind":
            kind = (value if equals else next(iter(words[at + 1 :]), "")).removeprefix("verbose,")
            shows = kind != "none"
        elif name in ("--gpus-per-task", "--ntasks-per-gpu") and shows is None:
            shows = True  # unless --gpu-bind says otherwise
    return shows


def _without(flags: tuple[str, ...], words: list[str]) -> list[str]:
    left, after = [], False
    for word in words:
        if not after and word.partition("=")[0] not in flags:
            left.append(word)
        after = not after and word in flags  # its value is a word of its own
    return left


MERGING = frozenset(name for name, launcher in LAUNCHERS.items() if launcher.here)
"""The launchers that show the lines of all ranks in one stream."""
