"""The rank of a process according to its environment (`RankEnv`), and the variables to clear before ranks
start.
"""

from __future__ import annotations

import os
from collections import namedtuple

from castoff.launcher.errors import PlacementError
from castoff.launcher.ranks.decision import MARKS, decide
from castoff.launcher.ranks.families import PLACE, Around, read_text
from castoff.launcher.ranks.rendezvous import address, port
from castoff.launcher.ranks.visible import within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

STALE_NAMES: frozenset[str] = frozenset(
    (
        # castoff's variables, and those of torch.distributed
        *MARKS,
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
        *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
        *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
        *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"),
        # Hydra, Intel MPI, and PMI in general; not PMI_NO_FORK and the like, which users set
        *("PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "PMI_ID", "PMI_JOBID", "PMI_SPAWNED"),
        *("PMI_HOSTNAME", "I_MPI_HYDRA_UUID", "PMIX_RANK", "PMIX_ID", "PMIX_NAMESPACE", "PMIX_HOSTNAME"),
        # PALS's variables; not its inputs (PALS_PMI, PALS_NRANKS, PALS_PPN, PALS_PING_PERIOD …)
        *("PALS_RANKID", "PALS_NODEID", "PALS_SIZE", "PALS_APID", "FLUX_JOB_SIZE", "FLUX_JOB_NNODES"),
        # A task's rank in Slurm, which a job inherits from the step it was submitted in. srun sets these
        # again; variables that it reads (SLURM_JOB_ID, SLURM_NTASKS …) stay.
        *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_STEPID"),
    )
)
"""Variables that a script unsets before it starts ranks, so that ranks do not inherit leftovers.

Launchers set these variables for their ranks, and read none of them. `castoff_clear_stale_env` in
templates/machinery/environment.sh has the same list.
"""

STALE_PREFIXES: tuple[str, ...] = (
    *("PMI_LOCAL_", "PMI_CONTROL_", "PMI_UNIVERSE_", "PMI_SHARED_", "PMI_APP_"),
    *("PMIX_LOCAL_", "PMIX_SERVER_"),
    *("OMPI_COMM_WORLD_", "MPI_LOCAL", "HYDI_", "HYDRA_BSTRAP_", "PALS_LOCAL_", "JSM_NAMESPACE_"),
    *("FLUX_TASK_", "SLURM_STEP_", "SLURM_LAUNCH_", "SLURM_SRUN_COMM_"),
)
"""Prefixes of further variables to unset."""


def is_stale(name: str) -> bool:
    """Whether launchers set this variable for their ranks, so that ranks of another launcher must not
    see it.
    """
    return name in STALE_NAMES or name.startswith(STALE_PREFIXES)


# Not typing.NamedTuple, because importing typing would take longer than all of castoff.launcher.ranks.
_Fields = namedtuple(
    "_Fields",
    "rank world_size local_rank local_world_size node_rank master_addr master_port device launcher sources",
    defaults=(0, 1, 0, 1, None, None, None, None, "single", {}),
)
FIELDS = _Fields._fields[:7]


class RankEnv(_Fields):
    """This process's rank and its place among the ranks of its job. Immutable.

    Two instances are equal if all fields except `sources` are equal.
    """

    __slots__ = ()

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    """Number of ranks on this node."""
    node_rank: int | None
    """The number of this node; None if unknown: Hydra and Open MPI set no node index."""
    master_addr: str | None
    master_port: int | None
    device: int | None
    """Index of this rank's device among the devices that it sees, from CASTOFF_DEVICE.

    None: use the local rank modulo the number of devices.
    """
    launcher: str
    """srun, pals, hydra, intelmpi, openmpi, torchrun or flux; local: castoff's own; environment: RANK and
    related variables that something else set; single: no launcher.
    """
    sources: dict[str, str]
    """For each field, the variable it came from."""

    @classmethod
    def detect(
        cls, environ: Mapping[str, str] | None = None, *, read_file: Callable[[str], str] = read_text
    ) -> RankEnv:
        """Find this process's rank from `environ`; None: from its own environment.

        Raises PlacementError if the rank is unknown or the variables contradict each other: a guess of "rank
        0 of 1" would silently turn one job of many ranks into many jobs of one rank.
        """
        around = Around(os.environ if environ is None else environ, read_file)
        placement = decide(around)
        values = {field: getattr(placement, field) for field in PLACE}
        sources = dict(placement.sources)
        for field, value_and_source in (
            ("master_addr", address(placement, around)),
            ("master_port", port(placement, around)),
        ):
            if value_and_source is not None:
                values[field], sources[field] = value_and_source
        device = around.number("CASTOFF_DEVICE")
        if device is not None and (shown := within(around, device)) is not None:
            values["device"], sources["device"] = shown, "CASTOFF_DEVICE"
        return cls(**values, launcher=placement.launcher, sources=sources)

    def variables(self) -> dict[str, str]:
        """The variables that torch.distributed's `env://` reads, as far as they are known."""
        values = {field.upper(): getattr(self, field) for field in FIELDS}
        return {name: str(value) for name, value in values.items() if value is not None}

    def export(self, environ: MutableMapping[str, str] | None = None) -> None:
        """Set the variables that torch.distributed's `env://` reads, in `environ` or this process.

        Under torchrun, MASTER_ADDR and MASTER_PORT are not changed. castoff's marks of an outer task, and
        NODE_RANK if this process's node is unknown, are removed.
        Raises PlacementError if MASTER_ADDR is needed but unknown.
        """
        target: MutableMapping[str, str] = os.environ if environ is None else environ
        variables = self.variables()
        if self.launcher == "torchrun":
            variables.pop("MASTER_ADDR", None)
            variables.pop("MASTER_PORT", None)
        elif self.master_addr is None or self.master_port is None:
            raise PlacementError(
                f"no variable gives the host of rank 0 ({self.launcher} sets none, and no"
                " scheduler lists the hosts), and these ranks are on several. Where the ranks"
                " are started: export MASTER_ADDR=<host of rank 0> MASTER_PORT=<a free port>"
            )
        if self.node_rank is None:
            target.pop("NODE_RANK", None)
        if self.sources.get("launcher") != "CASTOFF_LAUNCHER":
            for name in MARKS:
                target.pop(name, None)
        target.update(variables)

    def __eq__(self, other: object) -> bool:
        return self[:-1] == other[:-1] if isinstance(other, RankEnv) else NotImplemented

    def __hash__(self) -> int:
        return hash(self[:-1])
