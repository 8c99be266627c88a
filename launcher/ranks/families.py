"""What each starter tells its ranks, in variables of its own: one function a family.

A family is the set of variables that one kind of starter sets. Rank, world size and local rank
are only ever taken from one family: `PMI_RANK` appears under Hydra, Intel MPI and srun,
`PMIX_RANK` under Open MPI, srun and PALS, and `PALS_*` under srun on Cray machines, so a mixture
names a rank that does not exist. `launcher.ranks.environment` decides which family is believed.
"""

from __future__ import annotations

from launcher.errors import PlacementError

TYPE_CHECKING = False  # typing itself would cost more than all of this module
if TYPE_CHECKING:
    from collections.abc import Mapping

VERIFIED = ("srun", "hydra", "intelmpi", "openmpi", "flux", "torchrun", "local", "environment", "single")
"""Starters whose recognition is tested against environments recorded from real runs.

The other one, pals, follows its documentation only.
"""

MPI_RANKS = (
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "PALS_RANKID",
    "FLUX_TASK_RANK",
    "JSM_NAMESPACE_RANK",
)
MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "FLUX_JOB_SIZE", "JSM_NAMESPACE_SIZE")
MPI_OTHERS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID")
"""Variables only a starter sets: one of them without its family means a rank that cannot tell."""

SPECIAL_STEPS = 4294967290
"""Slurm's step ids from here on are the batch script, `salloc`'s shell and the like: no ranks.

Source: slurm.h, SLURM_INTERACTIVE_STEP is 0xfffffffa.
"""


class Placement:
    """Where a family of variables puts this process; None is what it does not tell."""

    __slots__ = ("local_rank", "local_world_size", "node_rank", "rank", "sources", "starter", "world_size")

    def __init__(self, starter: str):
        self.starter = starter
        self.rank = 0
        self.world_size: int | None = None
        self.local_rank = 0
        self.local_world_size: int | None = None
        self.node_rank: int | None = None
        self.sources: dict[str, str] = {}
        """From which variable each field was read."""

    def take(self, field: str, what: int | None, source: str) -> None:
        """Set a field, and say where it comes from."""
        setattr(self, field, what)
        self.sources[field] = source


def value(environ: Mapping[str, str], name: str) -> str | None:
    """Read a variable; one that is set but empty tells nothing and counts as absent."""
    return environ.get(name) or None


def number(environ: Mapping[str, str], name: str) -> int | None:
    """Read a count or an index; None when the variable is absent, an error when it is neither."""
    text = value(environ, name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise PlacementError(
            f"{name}={text!r} is not a whole number of 0 or more, so it cannot place a rank."
            f" Find what sets it (a job script, a shell start-up file) and mend or unset it:"
            f" unset {name}"
        )
    return int(text)


def _read(environ: Mapping[str, str], starter: str, how: str, **names: str) -> Placement:
    """Read fields from variables that a starter sets together.

    Raises PlacementError for one that is missing: half a family is a leftover or a wrapper that
    drops variables, and neither places a rank.
    """
    placement = Placement(starter)
    for field, name in names.items():
        read = number(environ, name)
        if read is None:
            there = ", ".join(f"{n}={environ[n]}" for n in names.values() if value(environ, n))
            raise PlacementError(
                f"{there} looks like a rank started by {how}, but {name} is not set, and that"
                f" starter sets both. Start the program with {how} itself and without a wrapper"
                f" that drops variables, or, if nothing should have started it, unset"
                f" {' '.join(names.values())}"
            )
        placement.take(field, read, name)
    return placement


def torchrun(environ: Mapping[str, str]) -> Placement | None:
    """Read what torchrun tells its workers. Source: recorded, torch 2.13."""
    if not value(environ, "TORCHELASTIC_RUN_ID"):
        return None
    return _read(
        environ,
        "torchrun",
        "torchrun",
        rank="RANK",
        world_size="WORLD_SIZE",
        local_rank="LOCAL_RANK",
        local_world_size="LOCAL_WORLD_SIZE",
        node_rank="GROUP_RANK",
    )


def flux(environ: Mapping[str, str]) -> Placement | None:
    """Read what flux run tells its tasks. Source: recorded, flux-core 0.88."""
    if not value(environ, "FLUX_TASK_RANK"):
        return None
    placement = _read(
        environ,
        "flux",
        "flux run",
        rank="FLUX_TASK_RANK",
        world_size="FLUX_JOB_SIZE",
        local_rank="FLUX_TASK_LOCAL_ID",
    )
    nodes, size = number(environ, "FLUX_JOB_NNODES"), placement.world_size
    if nodes and size and size >= nodes:
        few, fuller = divmod(size, nodes)  # it fills node after node, the first ones with one more
        before = fuller * (few + 1)
        on_fuller = placement.rank < before
        place = placement.rank % (few + 1) if on_fuller else (placement.rank - before) % few
        if not fuller or place == placement.local_rank:  # unless --taskmap says otherwise
            placement.local_world_size = few + on_fuller
            placement.sources["local_world_size"] = "FLUX_JOB_SIZE / FLUX_JOB_NNODES"
    return placement


def openmpi(environ: Mapping[str, str]) -> Placement | None:
    """Read what Open MPI tells its ranks. Source: recorded, 4.1.4.

    Not OMPI_COMM_WORLD_NODE_RANK: in spite of its name it counts ranks, not nodes.
    """
    if not value(environ, "OMPI_COMM_WORLD_RANK"):
        return None
    return _read(
        environ,
        "openmpi",
        "Open MPI's mpiexec",
        rank="OMPI_COMM_WORLD_RANK",
        world_size="OMPI_COMM_WORLD_SIZE",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
        local_world_size="OMPI_COMM_WORLD_LOCAL_SIZE",
    )


def hydra(environ: Mapping[str, str]) -> Placement | None:
    """Read what Hydra (MPICH's mpiexec) and Intel MPI, its relative, tell their ranks.

    Source: recorded, MPICH 4.0.2 and Intel MPI 2021.18.
    """
    # PMI_RANK alone may be srun's or PALS's.
    if not (value(environ, "PMI_RANK") and value(environ, "MPI_LOCALRANKID")):
        return None
    intel = value(environ, "I_MPI_HYDRA_UUID") is not None
    placement = _read(
        environ,
        "intelmpi" if intel else "hydra",
        "Intel MPI's mpiexec" if intel else "MPICH's mpiexec",
        rank="PMI_RANK",
        world_size="PMI_SIZE",
        local_rank="MPI_LOCALRANKID",
        local_world_size="MPI_LOCALNRANKS",
    )
    if intel and value(environ, "HYDRA_BSTRAP_NODE_ID"):
        placement.take("node_rank", number(environ, "HYDRA_BSTRAP_NODE_ID"), "HYDRA_BSTRAP_NODE_ID")
    elif slurm_in_step(environ) and one_task_a_node(environ):
        # Inside a Slurm job Hydra starts one proxy a node through srun; its ranks inherit that
        # proxy's place.
        placement.take("node_rank", number(environ, "SLURM_NODEID"), "SLURM_NODEID")
    return placement


def slurm(environ: Mapping[str, str]) -> Placement | None:
    """Read what srun tells its tasks, plain, with pmi2 or on a Cray. Source: recorded, 22.05.8."""
    if not slurm_in_step(environ):
        return None
    placement = _read(
        environ,
        "srun",
        "srun",
        rank="SLURM_PROCID",
        world_size="SLURM_STEP_NUM_TASKS",
        local_rank="SLURM_LOCALID",
        node_rank="SLURM_NODEID",
    )
    ranks_here = (value(environ, "SLURM_GTIDS") or "").split(",")
    counts = value(environ, "SLURM_STEP_TASKS_PER_NODE")
    if counts:
        here = tasks_on_node(counts, placement.node_rank or 0)
        placement.take("local_world_size", here, "SLURM_STEP_TASKS_PER_NODE at SLURM_NODEID")
    elif ranks_here != [""]:
        placement.take("local_world_size", len(ranks_here), "count of SLURM_GTIDS")
    local = placement.local_rank
    if ranks_here != [""] and ranks_here[local : local + 1] != [str(placement.rank)]:
        raise PlacementError(
            f"SLURM_PROCID={placement.rank} with SLURM_LOCALID={local} does not fit"
            f" SLURM_GTIDS={environ['SLURM_GTIDS']}, the ranks of this node: the variables come"
            " from different places. Something outside of srun sets or keeps some of them;"
            " start the program with srun, and keep SLURM_* out of setup scripts."
        )
    return placement


def slurm_in_step(environ: Mapping[str, str]) -> bool:
    """Tell a task of srun from a batch script or `salloc`'s shell, which are no ranks.

    A script submitted from inside a step inherits that step's variables (seen in 22.05.8), while
    Slurm says again that it is task 0 alone on its node: then they contradict one another.
    """
    step = value(environ, "SLURM_STEP_ID") or value(environ, "SLURM_STEPID") or ""
    if not value(environ, "SLURM_STEP_NUM_TASKS"):
        return False
    if step.isdigit() and int(step) >= SPECIAL_STEPS:
        return False
    return not slurm_step_is_inherited(environ)


def slurm_step_is_inherited(environ: Mapping[str, str]) -> bool:
    """Say whether SLURM_STEP_* is left over from the step out of which this job was submitted."""
    places = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS")
    counts = value(environ, "SLURM_STEP_TASKS_PER_NODE")
    if counts is None or any(environ.get(name) != "0" for name in places):
        return False
    if tasks_on_node(counts, 0) != 1:
        return True  # a task that shared its node would find the others in SLURM_GTIDS
    of_step = (environ.get("SLURM_STEP_NUM_TASKS"), counts)
    of_job = (environ.get("SLURM_NPROCS"), environ.get("SLURM_TASKS_PER_NODE"))
    return None not in of_job and of_step[0] != of_job[0] and of_step[1] != of_job[1]


def tasks_on_node(counts: str, node: int) -> int:
    """Look a node's number of tasks up in Slurm's short form: node 2 of `4(x2),2` has 2."""
    passed = 0
    for part in counts.split(","):
        tasks, bracket, repeat = part.partition("(x")
        repeated = repeat.removesuffix(")") if bracket else "1"
        if not (tasks.isdigit() and repeated.isdigit()) or bool(bracket) != part.endswith(")"):
            raise PlacementError(
                f"SLURM_STEP_TASKS_PER_NODE={counts!r}: {part!r} is no count of tasks such as"
                " 4 or 4(x2). Slurm writes this variable itself; do not set it."
            )
        passed += int(repeated)
        if node < passed:
            return int(tasks)
    raise PlacementError(
        f"SLURM_NODEID={node}, but SLURM_STEP_TASKS_PER_NODE={counts!r} lists only {passed}"
        " nodes: the two come from different steps. Start the program with srun, and keep"
        " SLURM_* out of setup scripts."
    )


def one_task_a_node(environ: Mapping[str, str]) -> bool:
    """Say whether the Slurm step has the shape that an mpiexec asks srun for."""
    counts = (value(environ, "SLURM_STEP_TASKS_PER_NODE") or "1").split(",")
    return all(part == "1" or part.startswith("1(x") for part in counts)


def pals(environ: Mapping[str, str]) -> Placement | None:
    """Read what PALS tells its ranks, in its Cray PMI and its PMIx form.

    Source: ALCF's user guides, RADICAL-Pilot #2836, torchcomms #79; not recorded. Under
    `PALS_PMI=pmix` no variable tells the world size. PALS_NRANKS is not one: it is an input of
    mpiexec, and may well be another job's.
    """
    if not value(environ, "PALS_RANKID"):
        return None
    how = "PALS's mpiexec"
    placement = _read(environ, "pals", how, rank="PALS_RANKID", local_rank="PALS_LOCAL_RANKID")
    for field, names in (
        ("world_size", ("PMI_SIZE",)),
        ("local_world_size", ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE")),
        ("node_rank", ("PALS_NODEID",)),
    ):
        for name in names:
            if value(environ, name) and field not in placement.sources:
                placement.take(field, number(environ, name), name)
    return placement


FAMILIES = (torchrun, flux, openmpi, hydra, slurm, pals)
"""Innermost first. An mpiexec inside a Slurm job starts its proxies through srun, so its ranks
see the proxy's SLURM_PROCID too; srun on a Cray sets PALS_* too. torchrun is the starter most
often started by another one."""


def innermost(environ: Mapping[str, str]) -> Placement | None:
    """Find the family of the starter nearest to this process; None when there is none."""
    return next(filter(None, (family(environ) for family in FAMILIES)), None)


def orphans(environ: Mapping[str, str]) -> list[str]:
    """List the variables of starters that are set though no family is complete."""
    return [name for name in MPI_RANKS + MPI_SIZES + MPI_OTHERS if value(environ, name)]
