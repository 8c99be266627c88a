"""A job resolved on a site: all data that its script depends on.

`castoff.launcher.planning` makes it; the modules that submit, watch and resume runs read it.
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
from castoff.launcher.config.parameters import Table
from castoff.launcher.runs.records import Facts

OF_EVERY_SCRIPT = frozenset(
    {
        *("command", "script", "shell", "setup", "teardown", "env", "workdir", "python", "templates"),
        *("snapshot.paths", "snapshot.link", "snapshot.limit", "sample_use"),
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
        *("notify.to", "notify.on"),
        *("container.args", "stage.from", "stage.to", "stage.unpack", "stage.sha256", "stage.activate"),
    }
)
"""Job fields that the script itself handles under any scheduler; the others are left to the scheduler."""

AS_THEY_ARE = (
    *("command", "script", "setup", "teardown", "env_from", "python", "stage", "templates"),
    "sample_use",
)
"""Plan fields with the value of the job's field of the same name."""


class Devices(msgspec.Struct, frozen=True):
    """Which devices the local ranks of a node use."""

    visible: str | None = None
    """One mask for all ranks of a node. A rank uses the device of this mask whose index is the local rank."""
    per_rank: list[str] = []
    """A mask for each local rank, if ranks share a device or have several devices."""
    step: int | None = None
    """The index of a rank's first visible device is its local rank times `step`; None: not known."""
    indices: list[int] = []
    """The index of each local rank's first device, instead of `step`, if ranks see the same devices."""
    near: list[str] = []
    """The CPUs near each local rank's devices. Each rank checks at its start that it runs on them, if only
    the launcher knows which CPUs it gets.
    """
    better: str | None = None
    """The value of the job's field `binding` that would put each rank near its devices."""


class RestartPlan(msgspec.Struct, frozen=True):
    """When a job starts its ranks again, and on which hosts."""

    max: int
    """The maximum number of restarts; 0: none."""
    spare_nodes: int
    """The number of nodes beyond `Plan.nodes`."""
    hang: int | None
    """Seconds without output or progress after which ranks count as hung; None: not checked."""
    never: list[int]
    """Exit codes after which there is no restart."""


class SignalPlan(msgspec.Struct, frozen=True):
    """A signal, and the time at which it is sent."""

    name: str
    """The signal's name without SIG."""
    before: int
    """Seconds before the walltime."""


class PreflightPlan(msgspec.Struct, frozen=True):
    """What each host must have before ranks start there."""

    checks: list[str]
    """The job's own checks: shell lines that fail on an unfit host."""
    devices: int
    memory: int
    """The memory that a host must have, in KiB."""


class ContainerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The container in which each rank's program runs."""

    runtime: RuntimeName
    image: str
    """A path, under CASTOFF_STAGE_DIR if the image is staged."""
    staged: bool
    argv: list[str]
    """The runtime's command line up to the binds and the image; for pyxis, further flags of srun."""
    shared: list[str]
    """Folders mounted at the same path inside the container; the job adds the run's folders."""
    mounts: list[str]
    """Other mounts, as SOURCE:TARGET, with :ro if read-only."""
    gpus: Gpus
    env: dict[str, str]
    """Variables that are set only inside the container."""


class Plan(Facts, frozen=True, kw_only=True):
    """A JobSpec resolved on a Site. Serialises to JSON; a script's bytes follow from it alone."""

    ranks: int
    launcher: LauncherName
    directives: list[tuple[str, str | bool]]
    command: list[str]
    script: str | None
    """The batch script that `command` runs instead of a program."""
    function: bool
    """Whether the ranks run submitit's `_submit` on the run directory instead of `command`."""
    nodes: int
    own_distribution: OwnDistribution | None
    """How the job's own flags for srun distribute the ranks: `arbitrary` (by a host file) or `own` (in
    another order); `layout` then follows these flags. None: no such flags.
    """
    start: list[str]
    """The launcher's argv, up to the program."""
    start_timeout: int | None
    """Seconds after which ranks that have not started end the job; None: they are only reported."""
    torchrun: bool
    driver: bool
    """Whether the command runs once, on the first host, and starts its own workers. `ranks` is then 1, and
    cores_per_rank and devices_per_rank are those of a whole node.
    """
    cpu_lists: list[str]
    """The CPUs of each local rank; empty if Slurm binds the ranks, or if the launcher chooses the CPUs
    when it runs on the host.
    """
    bound: bool
    """Whether castoff or the launcher binds each rank to its cores, as far as castoff knows."""
    cores_per_node: int | None
    """The cores of a node for its ranks, if the job has whole nodes and castoff chooses the
    cores; else None.
    """
    devices_per_node: int
    """The devices of each node of the job."""
    device_variable: str | None
    devices: Devices
    grace: int
    """Seconds."""
    margin: int | None
    """Seconds before the walltime at which ranks are ended so that the run can be requeued; None: never."""
    signal: SignalPlan | None
    """The signal that the ranks' programs get before the walltime."""
    progress: str | None
    """What shows that an attempt made progress: a path, or `none`; None: the metrics that the program
    reports.
    """
    inherit: str | list[str]
    setup: list[str]
    teardown: list[str]
    """The job's shell lines to run after the ranks have ended."""
    site_teardown: list[str]
    """The site's shell lines, which follow the job's."""
    default_env: dict[str, str]
    """The site's and castoff's variables, set before `setup`, which may change them."""
    env: dict[str, str | None]
    """The variables of the job and of its options, set after `setup`; None: unset."""
    parameters: Table | None
    """The parameters of the array's members; `command`, `env` and `workdir` refer to them as `{lr}`."""
    member_name: str | None
    """The job's name, if it refers to parameters; `name` is then the name without these references."""
    workdir: str | None
    """An absolute path, or `./` and a path relative to the folder of submission."""
    snapshot: Snapshot | None
    """The copy of the code, taken at submission, in which the ranks run; None: they run in the original
    folder.
    """
    python: str | None
    master_suffix: str
    after: dict[str, list[str]]
    refers_to: list[str]
    """The names in `after` whose run directories the job's texts contain, as in `{prepare.dir}`."""
    container: ContainerPlan | None
    stage: list[Stage]
    """The files to stage, all defaults resolved; `source` is absolute, or `./` and a path relative to the
    folder of submission.
    """
    stage_start: list[str]
    """The argv that starts one process per node; empty on the local scheduler, and without `stage`."""
    restart: RestartPlan | None
    preflight: PreflightPlan | None
    """None: hosts are not checked."""
    each_host: list[str]
    """The argv that starts one process per host, to be followed by the hosts' number and names; empty if
    hosts are not checked.
    """
    preload: list[str]
    """Modules that one process of each node imports for its ranks; on the local scheduler, `start` contains
    these modules.
    """
    preload_start: list[str]
    """The argv that starts these processes; empty without `preload`."""
    local_storage: str | None
    """The folder in which `stage` makes its folder; None: TMPDIR, else /tmp."""
    templates: str | None
    sample_use: bool
    """Whether a process on each node records what the job uses."""
    notes: list[str]
    """Sentences on what castoff decided for the user."""

    @property
    def variables(self) -> dict[str, str]:
        """`default_env` and `env` together: the variables of the ranks, unless `setup` changes them."""
        both = {**self.default_env, **self.env}
        return {name: value for name, value in both.items() if value is not None}

    @property
    def first_member(self) -> int:
        """The smallest member number."""
        return self.members[0]

    @property
    def node_hours(self) -> float | None:
        """The requested node-hours of all members; None without a walltime."""
        if self.walltime is None:
            return None
        hours, members = self.walltime / 3600, self.array_count or 1
        if self.sharing:
            return self.sharing.jobs(members) * self.sharing.nodes * hours
        return (self.held_nodes or self.nodes) * hours * members
