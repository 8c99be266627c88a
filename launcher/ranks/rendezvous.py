"""Find in the scheduler's variables what launchers do not set: sizes, and the rendezvous of the ranks."""

from __future__ import annotations

from castoff.launcher.errors import PlacementError
from castoff.launcher.ranks.families import PLACE, Around, Placement, slurm_in_step
from castoff.launcher.ranks.hostlist import HostlistError, expand, read_nodefile, short_name

PORTS = range(20000, 30000)
"""Ports for the rendezvous, below those that Linux uses for outgoing connections (from 32768)."""

JOB_VARIABLES = (
    ("SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "FLUX_JOB_ID"),
    ("SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX"),
    ("SLURM_RESTART_COUNT",),
)
"""Variables that identify one start of a job: they have the same values in all its ranks."""

START_VARIABLES = {"srun": "SLURM_STEP_ID", "openmpi": "PMIX_NAMESPACE", "intelmpi": "I_MPI_HYDRA_UUID"}
"""Variables by which a launcher distinguishes its starts within a job."""

TRIPLE = tuple(field.upper() for field in PLACE[:3])
"""The variables that suffice to place a rank without a launcher."""


def complete(placement: Placement, around: Around) -> Placement:
    """Complete a family's placement from the scheduler's variables; raise PlacementError if they do not
    suffice.
    """
    if placement.world_size is None:
        _complete_pals_size(placement, around)
    if placement.local_world_size is None and placement.launcher == "environment":
        _guess_local_size(placement, around)
    if placement.local_world_size is None:
        raise PlacementError(
            f"{placement.sources['rank']}={placement.rank} was set by {placement.launcher}, but no"
            " variable gives the number of ranks on this node. Export LOCAL_WORLD_SIZE beside RANK, "
            "WORLD_SIZE"
            " and LOCAL_RANK in a wrapper around the program, or let castoff start it."
        )
    if placement.node_rank is None and placement.local_world_size == placement.world_size:
        placement.take("node_rank", 0, "all ranks are on this node")
    return placement


def _complete_pals_size(placement: Placement, around: Around) -> None:
    """Find the world size under PALS with PMIx: from WORLD_SIZE if the job sets it, else hosts times
    ranks.
    """
    by_job = around.number("WORLD_SIZE")
    if by_job is not None and "RANK" not in around:
        placement.take("world_size", by_job, "WORLD_SIZE")
        return
    hosts = node_hosts(around)
    if not hosts or placement.local_world_size is None:
        raise PlacementError(
            f"PALS_RANKID={placement.rank} was set by PALS's mpiexec, but no variable gives the"
            " world size (PALS_PMI=pmix sets no PMI_SIZE), and PBS_NODEFILE and PALS_LOCAL_SIZE"
            " are not both set to compute it. Start the ranks with: mpiexec --env"
            " WORLD_SIZE=<number of ranks> …"
        )
    size = len(hosts) * placement.local_world_size
    placement.take("world_size", size, "hosts in PBS_NODEFILE x PALS_LOCAL_SIZE")


def node_hosts(around: Around) -> list[str]:
    """The hosts of a PBS job; empty without a readable nodefile."""
    try:
        return read_nodefile(around.read_file(around["PBS_NODEFILE"])) if "PBS_NODEFILE" in around else []
    except OSError:
        return []


def _guess_local_size(placement: Placement, around: Around) -> None:
    """Compute LOCAL_WORLD_SIZE if only RANK, WORLD_SIZE and LOCAL_RANK are set and the number of nodes is
    known.
    """
    size = placement.world_size or 1
    nodes = around.number("SLURM_JOB_NUM_NODES") or len(node_hosts(around))
    if size == 1 or nodes == 1 or (not nodes and placement.rank == placement.local_rank):
        placement.take("local_world_size", size, "WORLD_SIZE: one node")
    elif nodes and size % nodes == 0:
        placement.take("local_world_size", size // nodes, f"WORLD_SIZE / {nodes} nodes of the job")


def alone(around: Around) -> Placement:
    """Place a process that no launcher started: rank 0 of 1; an error in a job of several tasks."""
    tasks = around.number("SLURM_NTASKS") or around.number("SLURM_NPROCS") or 1
    nodes = around.number("SLURM_JOB_NUM_NODES") or around.number("SLURM_NNODES") or 1
    if in_slurm_job(around) and (tasks > 1 or nodes > 1 or around.number("SLURM_PROCID")):
        raise PlacementError(
            f"this process runs in Slurm job {job_id(around) or '?'} of {tasks} tasks on {nodes}"
            " nodes (SLURM_NTASKS, SLURM_JOB_NUM_NODES), but in its batch script or shell, not in"
            " a step: srun did not start it, so it is not a rank. Start it with: srun <program>."
            " For a single process on purpose: srun -N1 -n1 <program>"
        )
    path = around.get("PBS_NODEFILE")
    if path is not None:
        try:
            text = around.read_file(path)
        except OSError as error:
            raise PlacementError(
                f"PBS_NODEFILE={path} cannot be read ({error}), so the number of"
                " processes of this PBS job is not known. In a container, bind that file; for a single"
                " process on purpose: unset PBS_NODEFILE PBS_JOBID"
            ) from error
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > 1:
            raise PlacementError(
                f"this process runs in PBS job {around.get('PBS_JOBID', '?')}. Its nodefile"
                f" ({path}) has {len(lines)} lines on {len(read_nodefile(text))} host(s), one per process"
                " asked for, but no launcher has set variables for this process: it is not a rank."
                f" Start it with: mpiexec -n {len(lines)} <program>. For a single process on purpose: RANK=0"
                " WORLD_SIZE=1 LOCAL_RANK=0 <program>"
            )
    elif "PBS_JOBID" in around:
        raise PlacementError(
            f"PBS_JOBID={around['PBS_JOBID']} is set without PBS_NODEFILE, so the number of"
            " processes of this PBS job is not known. Pass PBS_NODEFILE on too; outside of a job:"
            " unset PBS_JOBID"
        )
    placement = Placement("single")
    for field, value in zip(PLACE, (0, 1, 0, 1, 0), strict=True):
        placement.take(field, value, "no launcher")
    return placement


def in_slurm_job(around: Around) -> bool:
    """Whether this is a batch script or a shell of a Slurm job, not a task of a step."""
    inside = job_id(around) or "SLURM_PROCID" in around or "SLURM_STEP_ID" in around
    return bool(inside) and not slurm_in_step(around)


def job_id(around: Around) -> str:
    """The Slurm job's number; empty outside of a job."""
    return around.get("SLURM_JOB_ID") or around.get("SLURM_JOBID", "")


def derived_port(key: str) -> int:
    """A port derived from a job's id, which may be in use."""
    import zlib  # late: it loads a shared library, and most ranks get their port from a variable

    return PORTS[zlib.crc32(key.encode(errors="surrogateescape")) % len(PORTS)]


def first_host(launcher: str, around: Around) -> tuple[str, str] | None:
    """The host of rank 0, and the variable that gives it.

    Never SLURM_LAUNCH_NODE_IPADDR: that is the host of srun itself, often a login node.
    """
    is_arbitrary = launcher == "srun" and around.get("SLURM_DISTRIBUTION", "").startswith("arbitrary")
    if is_arbitrary and (path := around.get("SLURM_HOSTFILE")):
        return _first_of_host_file(path, around), "SLURM_HOSTFILE"
    lists = ["SLURM_JOB_NODELIST"]
    # The Slurm step of Open MPI's daemons has all hosts except the first, where rank 0 runs. Hydra's step has
    # all hosts.
    if launcher != "openmpi" and slurm_in_step(around):
        lists.insert(0, "SLURM_STEP_NODELIST")
    for name in lists:
        try:
            hosts = expand(around.get(name, ""))
        except HostlistError as error:
            raise PlacementError(f"{name}: {error} Or set MASTER_ADDR.") from error
        if hosts:
            return hosts[0], name
    hosts = node_hosts(around)
    return (short_name(hosts[0]), "PBS_NODEFILE") if hosts else None


def _first_of_host_file(path: str, around: Around) -> str:
    """The host of rank 0 in srun's arbitrary distribution; a line of the file is a host list, perhaps with
    *COUNT.
    """
    try:
        lines = [line.split() for line in around.read_file(path).splitlines()]
    except OSError:
        lines = []
    hosts = [words[0].partition("*")[0] for words in lines if words and not words[0].startswith("#")]
    if not hosts:
        raise PlacementError(
            f"srun placed these ranks by a host file (SLURM_HOSTFILE={path}), which names no host or cannot"
            " be read here, so the host of rank 0 is not known. Set MASTER_ADDR to its host, the "
            "same for all."
        )
    return expand(hosts[0])[0]


def address(placement: Placement, around: Around) -> tuple[str, str] | None:
    """MASTER_ADDR and its source; None if it is unknown.

    MASTER_ADDR is kept if it is set, even if it looks wrong. torchrun always sets it.
    """
    if "MASTER_ADDR" in around:
        return around["MASTER_ADDR"], "MASTER_ADDR"
    if placement.launcher == "torchrun":
        return None
    if placement.local_world_size == placement.world_size:
        return "127.0.0.1", "all ranks are on this node"
    return first_host(placement.launcher, around)


def port(placement: Placement, around: Around) -> tuple[int, str] | None:
    """MASTER_PORT and its source; None under torchrun, which sets MASTER_PORT itself.

    If MASTER_PORT is not set, all ranks derive the same port from the job's id. No rank tests whether this
    port is free, since it could not agree with the others on another; castoff's job script can test it for
    all ranks. Two starts in one job get different ports if the launcher distinguishes them (START_VARIABLES),
    which MPICH's mpiexec does not.
    """
    kept = around.number("MASTER_PORT")
    if kept is not None and not 0 < kept < 65536:
        raise PlacementError(
            f"MASTER_PORT={kept} is not a port. Set it to a free port from 1024 to 65535, the same for"
            " all ranks, or unset it: unset MASTER_PORT"
        )
    if kept:
        return kept, "MASTER_PORT"
    if placement.launcher == "torchrun":
        return None
    names = [next((n for n in group if n in around), "") for group in JOB_VARIABLES]
    used = [name for name in (*names, START_VARIABLES.get(placement.launcher, "")) if name in around]
    derived = derived_port("/".join(around[name] for name in used))
    return derived, "derived from " + ", ".join(used) if used else "the default where no job id is set"
