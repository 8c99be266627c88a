"""A job decided for a site: all data that its script depends on.

`castoff.launcher.planning` fills it; what sends, watches and starts a run again reads it.
"""

from __future__ import annotations

import msgspec

from castoff.launcher.config.job_fields import (
    Gpus,
    LauncherName,
    OwnDistribution,
    RuntimeName,
    Snapshot,
    Stage,
)
from castoff.launcher.runs.records import Facts

OF_EVERY_SCRIPT = frozenset(
    {
        *("command", "script", "shell", "setup", "teardown", "env", "workdir", "python", "templates"),
        *("snapshot.paths", "snapshot.link", "snapshot.limit"),
        *(
            "ranks",
            "ranks_per_node",
            "launcher.torchrun",
            "launcher.driver",
            "launcher.timeout",
            "launcher.preload",
        ),
        *("container.image", "container.runtime", "container.binds", "container.env", "container.gpus"),
        *("restart.max", "restart.hang", "restart.never", "restart.progress", "requeue.progress", "signal"),
        *("container.args", "stage.from", "stage.to", "stage.unpack", "stage.sha256", "stage.activate"),
    }
)
"""Fields of a job that the script itself handles, whatever scheduler gets it; others are a scheduler's."""

AS_THEY_ARE = ("command", "script", "setup", "teardown", "env_from", "python", "stage", "templates")
"""Fields of a plan that hold what the job says in the field of that name."""


class Devices(msgspec.Struct, frozen=True):
    """Which devices the local ranks of a node use."""

    visible: str | None = None
    """One mask for every rank of a node; a rank's device is then its local rank among these."""
    per_rank: list[str] = []
    """A mask for each local rank, where ranks share a device or own several."""
    step: int | None = None
    """A rank's first device among the visible ones is so many times its local rank; None: it is not known."""
    indices: list[int] = []
    """That index of each local rank, instead of `step`: where the launcher shows some ranks the same ones."""
    near: list[str] = []
    """The CPUs beside each local rank's devices, where only the launcher knows which ones it gives the rank,
    which therefore looks at its start."""
    better: str | None = None
    """The job's `binding` that would put each rank beside its devices."""


class RestartPlan(msgspec.Struct, frozen=True):
    """When a job starts its ranks again, and on which hosts."""

    max: int
    """How often; 0: never."""
    spare_nodes: int
    """Nodes beyond `Plan.nodes`."""
    hang: int | None
    """Seconds without output or progress that are a hang; None: nobody looks."""
    never: list[int]
    """Exit codes after which there is no restart."""


class SignalPlan(msgspec.Struct, frozen=True):
    """A signal, and when it is sent."""

    name: str
    """Without SIG."""
    before: int
    """Seconds before the walltime."""


class PreflightPlan(msgspec.Struct, frozen=True):
    """What each host has to have before ranks start there."""

    checks: list[str]
    """The job's own: shell lines that fail on a host that is not fit."""
    devices: int
    memory: int
    """KiB."""


class ContainerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The container round each rank's program."""

    runtime: RuntimeName
    image: str
    """Under CASTOFF_STAGE_DIR if it is staged."""
    staged: bool
    argv: list[str]
    """The runtime's command line up to the binds and the image; for pyxis, further flags of srun."""
    shared: list[str]
    """Folders that the job wants inside at their own place; in the job, those of the run join them."""
    mounts: list[str]
    """Other binds, as SOURCE:TARGET and :ro where nothing may be written."""
    gpus: Gpus
    env: dict[str, str]
    """Set inside alone."""


class Plan(Facts, frozen=True, kw_only=True):
    """A JobSpec resolved on a Site. Serialises to JSON; a script's bytes follow from it alone."""

    ranks: int
    launcher: LauncherName
    directives: list[tuple[str, str | bool]]
    command: list[str]
    script: str | None
    """The batch script, which `command` runs in place of a program."""
    function: bool
    """Whether the program is submitit's `_submit` on the run directory instead of `command`."""
    nodes: int
    own_distribution: OwnDistribution | None
    """Whether the job's own flags for srun say where each rank starts, and whether that follows a host file;
    `layout` is then what it asks for."""
    start: list[str]
    """The launcher's argv, up to the program."""
    start_timeout: int | None
    """Seconds after which ranks that have not started end the job; None: they are only reported."""
    torchrun: bool
    driver: bool
    """Whether the command runs once, on the first host, and starts its own workers: `ranks` is then 1, and
    cores_per_rank and devices_per_rank are those of each node."""
    cpu_lists: list[str]
    """Of each local rank; empty where Slurm binds or the launcher decides on the host."""
    bound: bool
    """Whether each rank keeps to its cores, as far as castoff knows: by castoff, or by its launcher."""
    devices_per_rank: int
    cores_per_node: int | None
    """Those for its ranks, where it has whole nodes and castoff chooses; else None."""
    devices_per_node: int
    """Those of each node that the job has."""
    device_variable: str | None
    devices: Devices
    grace: int
    """Seconds."""
    margin: int | None
    """Seconds before the walltime, when ranks that are still running are ended so that the run can be
    requeued; None: they are not."""
    signal: SignalPlan | None
    """What the ranks' programs get before the walltime."""
    progress: str | None
    """What shows it: a path; `none`; None: what the program reports."""
    inherit: str | list[str]
    setup: list[str]
    teardown: list[str]
    """Shell lines after the ranks have ended: the job's."""
    site_teardown: list[str]
    """The same of the site, which follow."""
    default_env: dict[str, str]
    """Variables set before `setup`, which may change them: the site's, and castoff's own."""
    env: dict[str, str | None]
    """The job's own and those of its options, set after `setup`; None: unset."""
    workdir: str | None
    """Absolute, or `./` and a path from where the job was submitted."""
    snapshot: Snapshot | None
    """The copy of the code that a submission takes and the ranks run in; None: they run in the original."""
    python: str | None
    master_suffix: str
    after: dict[str, list[str]]
    container: ContainerPlan | None
    stage: list[Stage]
    """What each says in full; `source` is absolute, or `./` and a path from the folder of submission."""
    stage_start: list[str]
    """The argv that starts one process a node; empty on the local scheduler, and without `stage`."""
    restart: RestartPlan | None
    preflight: PreflightPlan | None
    """None: hosts are not checked."""
    each_host: list[str]
    """The argv that starts one process on each of some hosts, without their number and names; empty where
    nothing is asked of hosts."""
    preload: list[str]
    """What one process of each node imports for its ranks; on the local scheduler `start` has it."""
    preload_start: list[str]
    """The argv that starts these processes; empty without."""
    local_storage: str | None
    """Where `stage` makes its folder; None: TMPDIR, else /tmp."""
    templates: str | None
    notes: list[str]
    """What was decided for the user, in words."""

    @property
    def variables(self) -> dict[str, str]:
        """What ranks get of both kinds, unless setup changes it."""
        both = {**self.default_env, **self.env}
        return {name: value for name, value in both.items() if value is not None}

    @property
    def first_member(self) -> int:
        """The smallest number of a member."""
        return self.members[0]

    @property
    def node_hours(self) -> float | None:
        """Node-hours asked for, over all members; None without a walltime."""
        if self.walltime is None:
            return None
        return (self.held_nodes or self.nodes) * self.walltime / 3600 * (self.array_count or 1)
