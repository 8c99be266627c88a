"""The variables that each launcher sets in its ranks: a table with a row for each launcher.

A family is the set of variables that one launcher sets. Rank, world size and local rank are always taken from
the same family: `PMI_RANK` appears under Hydra, Intel MPI and srun, `PMIX_RANK` under Open MPI, srun and
PALS, and `PALS_*` under srun on Cray machines, so a mixture could be a rank that does not exist.
`castoff.launcher.ranks.decision` decides which family to believe.
"""

from __future__ import annotations

from castoff.launcher.errors import PlacementError

TYPE_CHECKING = False  # importing typing would take longer than this whole module
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PLACE = ("rank", "world_size", "local_rank", "local_world_size", "node_rank")
"""The numbers that place a rank: fields of `Placement` and of `RankEnv`."""

MPI_RANKS = ("PMI_RANK", "PMIX_RANK", "PALS_RANKID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK")
MPI_SIZES = ("PMI_SIZE", "FLUX_JOB_SIZE", "JSM_NAMESPACE_SIZE")
"""Variables that several or unknown launchers set: without a family's other variables they place no rank.
"""

SPECIAL_STEPS = 4294967290
"""The smallest of Slurm's special step ids, which are not steps of ranks but the batch script, `salloc`'s
shell and the like.

Source: slurm.h, SLURM_INTERACTIVE_STEP is 0xfffffffa.
"""


def read_text(path: str) -> str:
    """Read a small file, such as PBS's nodefile."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms
        return file.read()


class Placement:
    """The rank of a process as one family of variables gives it; None for numbers that the family lacks."""

    __slots__ = ("launcher", "local_rank", "local_world_size", "node_rank", "rank", "sources", "world_size")

    def __init__(self, launcher: str):
        self.launcher = launcher
        self.rank = 0
        self.world_size: int | None = None
        self.local_rank = 0
        self.local_world_size: int | None = None
        self.node_rank: int | None = None
        self.sources: dict[str, str] = {}
        """For each field, the variable it was read from."""

    def take(self, field: str, value: int | None, source: str) -> None:
        """Set a field and its source."""
        setattr(self, field, value)
        self.sources[field] = source


class Around(dict[str, str]):
    """The environment of a process, without variables that are set but empty."""

    def __init__(self, environ: Mapping[str, str], read_file: Callable[[str], str] = read_text):
        super().__init__((name, text) for name, text in environ.items() if text)
        self.read_file = read_file

    def number(self, name: str) -> int | None:
        """Read a count or an index; None if the variable is not set, an error if it is not a number."""
        text = self.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise PlacementError(
                f"{name}={text!r} is not a whole number of 0 or more, so it cannot place a rank."
                f" Find what sets it (a job script, a shell start-up file) and mend or unset it:"
                f" unset {name}"
            )
        return int(text)

    def shown(self, names: Iterable[str]) -> str:
        """Those of the named variables that are set, as `NAME=value, …`."""
        return ", ".join(f"{name}={self[name]}" for name in names if name in self)


def _read(around: Around, launcher: str, how: str, marks: list[str], names: list[str]) -> Placement:
    """Read fields from variables that a launcher sets together; raise an error if some are missing.

    An incomplete set does not determine a rank: it is left over, or a wrapper has dropped variables.
    """
    placement = Placement(launcher)
    fields = {field: name for field, name in zip(PLACE, names) if name != "-"}  # noqa: B905 - names may be fewer
    for field, name in fields.items():
        number = around.number(name)
        if number is None:
            present = [other for other in dict.fromkeys([*marks, *fields.values()]) if other in around]
            raise PlacementError(
                f"{around.shown(present)} looks like a rank started by {how}, but {name} is"
                f" not set, and that launcher sets both. Start the program with {how} itself and"
                f" without a wrapper that drops variables, or, if nothing should have started it: unset"
                f" {' '.join(present)}"
            )
        placement.take(field, number, name)
    return placement


def _flux(around: Around, placement: Placement) -> None:
    """Compute the number of ranks on this node, which flux run does not set."""
    nodes, size = around.number("FLUX_JOB_NNODES"), placement.world_size
    if nodes and size and size >= nodes:
        few, fuller = divmod(size, nodes)  # flux run fills node after node; the first nodes get one rank more
        before = fuller * (few + 1)
        on_fuller = placement.rank < before
        local_rank = placement.rank % (few + 1) if on_fuller else (placement.rank - before) % few
        if not fuller or local_rank == placement.local_rank:  # differs if --taskmap places ranks otherwise
            placement.local_world_size = few + on_fuller
            placement.sources["local_world_size"] = "FLUX_JOB_SIZE / FLUX_JOB_NNODES"


def _hydra(around: Around, placement: Placement) -> None:
    """Find the node's number, which Hydra itself does not set.

    Inside a Slurm job, Hydra starts one proxy per node with srun; its ranks inherit the proxy's variables.
    """
    intel = placement.launcher == "intelmpi"
    if intel and "HYDRA_BSTRAP_NODE_ID" in around:
        placement.take("node_rank", around.number("HYDRA_BSTRAP_NODE_ID"), "HYDRA_BSTRAP_NODE_ID")
    elif slurm_in_step(around) and one_task_a_node(around):
        placement.take("node_rank", around.number("SLURM_NODEID"), "SLURM_NODEID")


def _slurm(around: Around, placement: Placement) -> None:
    """Count the tasks on this node."""
    counts = around.get("SLURM_STEP_TASKS_PER_NODE")
    if counts:
        count = tasks_on_node(counts, placement.node_rank or 0)
        placement.take("local_world_size", count, "SLURM_STEP_TASKS_PER_NODE at SLURM_NODEID")


def slurm_in_step(around: Around) -> bool:
    """Whether this is a task of srun, not a batch script or `salloc`'s shell, which are not ranks.

    A script submitted from inside a step inherits that step's variables (seen in Slurm 22.05.8). But Slurm
    describes the script as task 0, the only task on its node, which contradicts the variables of the step.
    """
    step = around.get("SLURM_STEP_ID") or around.get("SLURM_STEPID") or ""
    if "SLURM_STEP_NUM_TASKS" not in around or (step.isdigit() and int(step) >= SPECIAL_STEPS):
        return False
    places = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS")
    counts = around.get("SLURM_STEP_TASKS_PER_NODE")
    if counts is None or any(around.get(name) != "0" for name in places):
        return True
    if tasks_on_node(counts, 0) != 1:
        return False  # if other tasks shared the node, SLURM_GTIDS would list them, too
    of_step = (around.get("SLURM_STEP_NUM_TASKS"), counts)
    of_job = (around.get("SLURM_NPROCS"), around.get("SLURM_TASKS_PER_NODE"))
    return None in of_job or of_step[0] == of_job[0] or of_step[1] == of_job[1]


def tasks_on_node(counts: str, node: int) -> int:
    """A node's number of tasks from Slurm's short form: node 2 of `4(x2),2` has 2."""
    nodes = 0
    for part in counts.split(","):
        tasks, bracket, repeat = part.partition("(x")
        repeated = repeat.removesuffix(")") if bracket else "1"
        if not (tasks.isdigit() and repeated.isdigit()) or bool(bracket) != part.endswith(")"):
            raise PlacementError(
                f"SLURM_STEP_TASKS_PER_NODE={counts!r}: {part!r} is not a count of tasks such as"
                " 4 or 4(x2). Slurm writes this variable itself; do not set it."
            )
        nodes += int(repeated)
        if node < nodes:
            return int(tasks)
    raise PlacementError(
        f"SLURM_NODEID={node}, but SLURM_STEP_TASKS_PER_NODE={counts!r} lists only {nodes}"
        " nodes: the two come from different steps. Start the program with srun, and keep"
        " SLURM_* out of setup scripts."
    )


def one_task_a_node(around: Around) -> bool:
    """Whether the Slurm step has one task per node, as an mpiexec requests from srun."""
    counts = around.get("SLURM_STEP_TASKS_PER_NODE", "1").split(",")
    return all(part == "1" or part.startswith("1(x") for part in counts)


def _pals(around: Around, placement: Placement) -> None:
    """Read the numbers that one of PALS's two modes does not set. With `PALS_PMI=pmix` no variable gives the
    world size.

    PALS_NRANKS is an input of mpiexec, and may be left over from another job.
    """
    for field, name in (
        ("world_size", "PMI_SIZE"),
        ("local_world_size", "PALS_LOCAL_SIZE"),
        ("local_world_size", "PMI_LOCAL_SIZE"),
        ("node_rank", "PALS_NODEID"),
    ):
        if name in around and field not in placement.sources:
            placement.take(field, around.number(name), name)


_HYDRA = "PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS"
_OPENMPI = " ".join(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
_SRUN = "SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID - SLURM_NODEID"
_TORCHRUN = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK"

FAMILIES: tuple[tuple[str, str, str, str, Callable[[Around, Placement], None] | None], ...] = (
    # Recorded with torch 2.13.
    ("torchrun", "torchrun", "TORCHELASTIC_RUN_ID", _TORCHRUN, None),
    # Recorded with flux-core 0.88.
    ("flux", "Flux", "FLUX_TASK_RANK", "FLUX_TASK_RANK FLUX_JOB_SIZE FLUX_TASK_LOCAL_ID", _flux),
    # Recorded with Open MPI 4.1.4. OMPI_COMM_WORLD_NODE_RANK counts ranks, not nodes, in spite of its name.
    ("openmpi", "Open MPI's mpiexec", _OPENMPI, _OPENMPI, None),
    # Recorded with Intel MPI 2021.18 and MPICH 4.0.2. PMI_RANK alone may be srun's or PALS's.
    ("intelmpi", "Intel MPI's mpiexec", "I_MPI_HYDRA_UUID", _HYDRA, _hydra),
    ("hydra", "MPICH's mpiexec (Hydra)", "MPI_LOCALRANKID MPI_LOCALNRANKS", _HYDRA, _hydra),
    # Recorded with Slurm 22.05.8: plain, with pmi2 or on a Cray.
    ("srun", "Slurm's srun", "SLURM_STEP_NUM_TASKS", _SRUN, _slurm),
    # From ALCF's user guides, RADICAL-Pilot #2836 and torchcomms #79; not recorded.
    ("pals", "PALS's mpiexec", "PALS_RANKID PALS_LOCAL_RANKID", "PALS_RANKID - PALS_LOCAL_RANKID", _pals),
)
"""For each launcher: its name for people, variables that only it sets, those for `PLACE`, and a function that
finds further numbers.

The innermost launcher is first. An mpiexec inside a Slurm job starts its proxies with srun, so its ranks also
have the proxy's SLURM_PROCID; srun on a Cray also sets PALS_*. torchrun is often started by another launcher.
"""


def innermost(around: Around) -> Placement | None:
    """Find the family of the launcher nearest to this process; None if there is none."""
    for launcher, how, marks, names, more in FAMILIES:
        if not any(name in around for name in marks.split()):
            continue
        if launcher == "srun" and not slurm_in_step(around):
            continue
        placement = _read(around, launcher, how, marks.split(), names.split())
        if more:
            more(around, placement)
        return placement
    return None
