"""Where the ranks meet: the host of rank 0, a port, and the hosts of the allocation."""

from __future__ import annotations

from launcher.errors import PlacementError
from launcher.ranks.families import Placement, number, slurm_in_step, value
from launcher.ranks.hostlist import HostlistError, expand, short_name
from launcher.ranks.scheduler import node_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PORTS = range(20000, 30000)
"""Below Linux's range for outgoing connections (32768 on), so that none of them is in the way."""

JOB_VARIABLES = (
    ("SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "FLUX_JOB_ID"),
    ("SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX"),
    ("SLURM_RESTART_COUNT",),
)
"""What sets one start of one job apart from all others, alike in all of its ranks."""

START_VARIABLES = {
    "srun": "SLURM_STEP_ID",
    "openmpi": "PMIX_NAMESPACE",
    "intelmpi": "I_MPI_HYDRA_UUID",
}
"""What sets one start apart from others in the same job, where a starter tells."""


def derived_port(key: str) -> int:
    """The port that a job's id stands for, which nobody has tried; never the last of `PORTS`."""
    import zlib  # only here: it is a shared library, and most ranks are told their port

    return PORTS[zlib.crc32(key.encode(errors="surrogateescape")) % (len(PORTS) - 1)]


def first_host(
    starter: str, environ: Mapping[str, str], read_file: Callable[[str], str]
) -> tuple[str, str] | None:
    """Find the host of rank 0 and the variable that tells it.

    Never SLURM_LAUNCH_NODE_IPADDR: that is where srun runs, often a login node.
    """
    lists = ["SLURM_JOB_NODELIST"]
    # Open MPI runs its daemons on all hosts but the first in a step; that step's list lacks the
    # host of rank 0. Hydra's step has all of its hosts.
    if starter != "openmpi" and slurm_in_step(environ):
        lists.insert(0, "SLURM_STEP_NODELIST")
    for name in lists:
        try:
            hosts = expand(value(environ, name) or "")
        except HostlistError as error:
            raise PlacementError(f"{name}: {error} Or set MASTER_ADDR.") from error
        if hosts:
            return hosts[0], name
    hosts = node_hosts(environ, read_file)
    return (short_name(hosts[0]), "PBS_NODEFILE") if hosts else None


def address(
    placement: Placement,
    environ: Mapping[str, str],
    read_file: Callable[[str], str],
    *,
    inherited: bool,
) -> tuple[str, str] | None:
    """Find MASTER_ADDR and where it comes from; None when nothing tells it.

    One that is set is kept, right or wrong: only its owner knows why. `inherited` says that the
    one in the environment is that of the task around this one; torchrun always sets its own.
    """
    kept = value(environ, "MASTER_ADDR")
    if kept and (placement.starter == "torchrun" or not inherited):
        return kept, "MASTER_ADDR"
    if placement.starter == "torchrun":
        return None
    if placement.local_world_size == placement.world_size:
        return "127.0.0.1", "all ranks are on this node"
    return first_host(placement.starter, environ, read_file)


def port(placement: Placement, environ: Mapping[str, str], *, inherited: bool) -> tuple[int, str] | None:
    """Find MASTER_PORT and where it comes from.

    Without one, all ranks derive the same from the job's id. Nobody tried whether it is free:
    castoff's job script does that, a rank alone cannot. Two starts in one job differ where the
    starter tells them apart (START_VARIABLES); two of MPICH's mpiexec on one laptop do not.
    """
    kept = number(environ, "MASTER_PORT")
    if kept is not None and not 0 < kept < 65536:
        raise PlacementError(
            f"MASTER_PORT={kept} is no port. Set it to a free one of 1024 to 65535, the same for"
            " all ranks, or unset it: unset MASTER_PORT"
        )
    if kept and (placement.starter == "torchrun" or not inherited):
        return kept, "MASTER_PORT"
    if placement.starter == "torchrun":
        return None
    names = [next((n for n in group if value(environ, n)), "") for group in JOB_VARIABLES]
    names.append(START_VARIABLES.get(placement.starter, ""))
    told = [(name, environ[name]) for name in names if value(environ, name)]
    derived = derived_port("/".join(text for _, text in told))
    if inherited and kept and derived >= kept:
        derived += 1  # never the port of the ranks around this one
    return derived, "derived from " + (", ".join(name for name, _ in told) or "nothing but itself")
