"""plan(spec, site) -> Plan: every decision made, nothing left to guess. Pure.

The only place where a job and a site meet. Whatever a scheduler would refuse, and this site's
profile knows of, is said here before anything is queued.
"""

from __future__ import annotations

import msgspec

from launcher.config import directives
from launcher.config.defaults import EffectiveJob, effective_job
from launcher.config.directives import of_scheduler
from launcher.config.job import JobSpec, program_name
from launcher.config.job_fields import Directives, LauncherName, Snapshot
from launcher.config.options import fixed_ranks, option_problems
from launcher.config.quantities import cpulist, cpus, seconds
from launcher.config.site import Site
from launcher.errors import InvalidInput, shown
from launcher.launchers.base import Layout, Request
from launcher.launchers.commands import LAUNCHERS
from launcher.planning import binding, containers, limits, near, stage_in
from launcher.planning.findings import Findings
from launcher.planning.raw_directives import directive_problems, section_problems
from launcher.runs.plan import AS_THEY_ARE, ContainerPlan, Devices, Plan
from launcher.schedulers.base import Scheduler
from launcher.schedulers.choice import check_profile
from launcher.schedulers.directives import own_dependency
from launcher.schedulers.fields import ignored

DEFAULT_GRACE = 120
"""Seconds between the request to stop and the walltime, where the job does not say."""

START_TIMEOUT = 600
"""Seconds until ranks that have not started end the job, where the job does not say."""

PER_RANK_LOGS = 256
"""Up to so many ranks, each has a log file of its own; more would hurt a parallel file system."""


def plan(spec: JobSpec, site: Site, *, function: bool = False) -> Plan:
    """Resolve a job on a site.

    With `function`, the job runs a Python function that submitit has pickled, and `spec.command`
    is ignored.

    Raises:
        InvalidInput: with every reason why this job cannot run there.
    """
    return decide(spec, site, function=function)[0]


def decide(spec: JobSpec, site: Site, *, function: bool = False) -> tuple[Plan, Scheduler]:
    """The same, with the site's scheduler, for callers that need it for the script and its submission."""
    given = spec
    if function:
        spec = msgspec.structs.replace(spec, command=["function"], name=spec.name or "function")
    agreed, scheduler = effective_job(spec, site), check_profile(site)
    return _Planner(agreed, scheduler, given).plan(function=function), scheduler


def _from_here(folder: str | None) -> str | None:
    """A folder as `cd` takes it: a bare `-`, `-P` or a name that CDPATH holds would mean another."""
    return folder if folder is None or folder.startswith("/") else f"./{folder}"


class _Planner:
    """The decisions, one method each; each may add problems and notes."""

    def __init__(self, agreed: EffectiveJob, scheduler: Scheduler, given: JobSpec):
        """`given`: the job as it was read."""
        stage = [stage_in.decided(item) for item in agreed.spec.stage]
        self.spec = spec = msgspec.structs.replace(agreed.spec, stage=stage)
        self.site, self.scheduler, self.given = agreed.site, scheduler, given.directives
        self.contradictions, site = agreed.contradictions, agreed.site
        self.queued = scheduler.has_queue
        self.name = spec.name or program_name(spec.command)
        self.walltime = seconds(spec.walltime) if spec.walltime else None
        grace = DEFAULT_GRACE if self.walltime is None else min(DEFAULT_GRACE, self.walltime // 4)
        self.grace = seconds(spec.grace) if spec.grace else grace
        self.shared = next((kind for kind in limits.kinds(spec, site, scheduler) if kind.max_devices), None)
        self.whole_nodes = bool(spec.exclusive or (site.node and site.node.exclusive)) and not self.shared
        self.of_node = site.node.device_count if site.node else 0
        self.found = Findings(self.name, site, given.source, self.given)
        self._numbered: Devices | None = None  # those that castoff itself gives the ranks, by their numbers
        self.layout = self._layout()
        self.launcher = self._launcher()
        self.site_args = site.launcher_args if self.queued and self.launcher == site.launcher else []
        chosen = self._chosen_by_flags()
        self.binds_devices = site.binds_devices if chosen is None else chosen
        self.per_rank = int(self.of_node > 0) if spec.devices_per_rank is None else spec.devices_per_rank
        self.node_devices = self.layout.max_per_node * self.per_rank
        if self.of_node and self.node_devices:
            self.node_devices = self.of_node if self.whole_nodes else min(self.node_devices, self.of_node)

    def plan(self, *, function: bool) -> Plan:
        """Decide what is left, and check all of it."""
        devices = self._devices()
        cores, cpu_lists = self._cores()
        processes = self._processes(cores, cpu_lists)._replace(
            whole_nodes=self.whole_nodes,
            name=self.name,
            walltime=self.walltime,
            grace=self.grace,
            after=own_dependency(dict(self.spec.after)),
        )
        self._check(processes)
        self._check_devices(devices)
        if self.found.problems:
            raise InvalidInput(self.found.problems)
        return self._decided(processes, devices, cores, cpu_lists, function)

    def _decided(
        self, asked: Request, devices: Devices, cores: int | None, cpu_lists: list[str], function: bool
    ) -> Plan:
        """Each decision in its place; by now nothing can be wrong."""
        spec, site, layout, launcher = self.spec, self.site, self.layout, self.launcher
        one_a_node = Request(Layout([(1, layout.nodes)]), None, [], 0, 0, site)
        stage_start = [*LAUNCHERS[launcher].argv(one_a_node), *self.site_args]
        again = "requeue" if self.scheduler.requeues_in_place else spec.requeue.how or "copy"
        self.found.notes += limits.notes(spec, site, self.scheduler)
        return Plan(
            **{field: getattr(spec, field) for field in AS_THEY_ARE},
            name=self.name,
            site=site.name,
            scheduler=site.scheduler,
            shell=site.shell,
            directives=self.scheduler.directives(spec, site, asked),
            function=function,
            nodes=layout.nodes,
            ranks=layout.processes,
            layout=layout.groups,
            own_distribution=asked.own_distribution,
            launcher=launcher,
            start=LAUNCHERS[launcher].start(asked, self.site_args, spec.launcher.args if self.queued else []),
            start_timeout=self._start_timeout(),
            torchrun=spec.launcher.torchrun,
            cores_per_rank=cores,
            cpu_lists=cpu_lists,
            devices_per_rank=self.per_rank,
            cores_per_node=self._cores_per_node(),
            devices_per_node=self.of_node if self.whole_nodes else self.node_devices,
            device_variable=site.node.device_variable if site.node else None,
            devices=devices,
            walltime=self.walltime,
            submit_timeout=seconds(site.submit_timeout),
            grace=self.grace,
            inherit=self.scheduler.default_inherit if spec.inherit is None else spec.inherit or "none",
            teardown=site.teardown,
            env=self._environment(cores),
            workdir=_from_here(spec.workdir),
            snapshot=Snapshot() if spec.snapshot is True else spec.snapshot or None,
            master_suffix=site.master_suffix,
            array_count=spec.array.count if spec.array else None,
            array_max_concurrent=spec.array.max_concurrent if spec.array else None,
            after={str(condition): names for condition, names in spec.after.items()},
            requeue_max=spec.requeue.max or 0,
            requeue_how=again if spec.requeue.max else None,
            per_rank_logs=layout.processes <= PER_RANK_LOGS and not spec.launcher.torchrun,
            container=self._container(),
            stage_start=stage_start if self.queued and spec.stage else [],
            local_storage=site.local_storage if spec.stage else None,
            notes=self.found.notes,
        )

    def _check(self, asked: Request) -> None:
        """All that can be said of the job's fields one by one."""
        spec, site, layout, launcher = self.spec, self.site, self.layout, self.launcher
        if (fixed := fixed_ranks(spec.options, site)) and layout.groups != [(fixed[1], layout.nodes)]:
            made = f"the option {fixed[0]} is made for {fixed[1]} ranks on each node"
            self._report_ranks(f"{made}: drop one")
        explicit_binding = (
            binding.problems(spec, site, launcher, layout, self.whole_nodes) if self.queued else ()
        )
        for field, message in (
            *containers.container_problems(spec, launcher, [str(item.to) for item in spec.stage]),
            *stage_in.stage_problems(spec.stage),
            *(option_problems(spec.options, site) if self.queued else ()),
            *section_problems(self.given),
            *self.contradictions,
            *limits.site_problems(spec, site, self.scheduler, self.name, self.walltime, self.grace),
            *directive_problems(spec.directives, spec, site, self.scheduler, asked),
            *self.scheduler.contradictions(spec, site, asked),
            *(("binding", message) for message in explicit_binding),
        ):
            self.found.report(field, message)
        of_site = directive_problems(site.directives, spec, site, self.scheduler, asked, of_site=True)
        for field, message in of_site:
            field = directives.place(field, site.directives, site.scheduler)
            self.found.report_site(field, message)

    def _check_devices(self, devices: Devices) -> None:
        """Whether each rank gets a device beside its cores, and the job itself sets no other."""
        spec, node = self.spec, self.site.node
        masks = devices.per_rank or ([devices.visible] if devices.visible else [])
        if node and masks and node.device_variable in spec.env:
            problem = f"is {shown(spec.env[node.device_variable])}, but castoff sets it for each rank"
            fix = "drop it; or use `devices_per_rank: 0`, and castoff leaves the devices to you"
            self.found.report(f"env.{node.device_variable}", f"{problem} ({' '.join(masks)}): {fix}")
        explicit = near.explicit_binding(spec, self.launcher, self.site_args)
        if explicit is None or node is None or spec.launcher.torchrun or devices != self._numbered:
            return
        for message in near.problems(node, devices, self.layout.max_per_node, self.launcher, explicit):
            if explicit.field == "launcher_args":
                self.found.report_site(explicit.field, message)
            else:
                self.found.report(explicit.field, message)

    def _report_ranks(self, message: str) -> None:
        """What is wrong with how many there are, said of the field that says so."""
        in_all = self.spec.ranks is not None
        count = self.layout.processes if in_all else self.layout.max_per_node
        self.found.report("ranks" if in_all else "ranks_per_node", f"is {count}, but {message}")

    def _layout(self) -> Layout:
        spec, site, total = self.spec, self.site, self.of_node
        nodes = spec.nodes or 1
        self.found.notes += [
            f"{name}: {site.options[name].description}" for name in spec.options if name in site.options
        ]
        if not self.queued and nodes > 1:
            self.found.report("nodes", f"is {nodes}, but this machine is one node; use `nodes: 1`")
            nodes = 1
        if spec.ranks is not None:
            return Layout.of(spec.ranks, min(nodes, spec.ranks))
        if spec.ranks_per_node is not None:
            return Layout([(spec.ranks_per_node, nodes)])
        each = 1
        if fixed := fixed_ranks(spec.options, site):
            each = fixed[1]
            self.found.notes.append(f"{each} ranks per node: what {fixed[0]} is made for")
        elif total and spec.devices_per_rank != 0:
            why = f"the node has {total} devices"
            if self.shared and self.shared.max_devices < total:
                total = self.shared.max_devices
                why = f"{self.shared.name} gives a job {total} of a node's devices"
            each = max(total // (spec.devices_per_rank or 1), 1)
            self.found.notes.append(f"{each} ranks per node: {why}")
        else:
            self.found.notes.append("1 rank per node: set ranks_per_node or ranks for more")
        return Layout([(each, nodes)])

    def _cores_per_node(self) -> int | None:
        own = [*self.site_args, *self.spec.launcher.args]  # what binds by other words, castoff does not read
        bound = self.spec.binding or LAUNCHERS[self.launcher].binds(own)
        if not self.whole_nodes or self.site.node is None or bound:
            return None
        return sum(map(len, self.site.node.usable_cores())) or None

    def _launcher(self) -> LauncherName:
        spec, layout, allowed = self.spec, self.layout, self.scheduler.launchers
        launcher = spec.launcher.name or self.site.launcher
        if not self.queued:
            (launcher,) = allowed
            self._note_ignored(launcher)
        elif launcher not in allowed:
            kind = self.scheduler.title
            message = f"is {launcher}, but a {kind} job's ranks start with one of {', '.join(allowed)}"
            if spec.launcher.name:
                self.found.report("launcher.name", message)
            else:
                self.found.report_site("launcher", message)
        own = LAUNCHERS[launcher]
        most = own.most_words
        if most is not None and len(spec.command) > most:
            message = f"has {len(spec.command)} words, but {launcher} takes at most {most}"
            self.found.report("command", f"{message}: write them to a file that the program reads")
        if own.fills_nodes and not layout.block_filled and not spec.launcher.torchrun:
            low = layout.processes - layout.processes % layout.nodes
            message = (
                f"is {layout.processes} on {layout.nodes} nodes, and {launcher} fills node after node with "
                f"{layout.max_per_node}, which leaves the last with too few; use {low} or "
                f"{low + layout.nodes}"
            )
            self.found.report("ranks", message)
        return launcher

    def _note_ignored(self, launcher: LauncherName) -> None:
        """Note which fields have no effect here: those that say what is so anyway need no word."""
        spec = self.spec
        for field in ignored(spec, self.scheduler):
            is_so = field == "launcher.name" and spec.launcher.name == launcher
            of_others = field == "directives" and not of_scheduler(spec.directives, self.scheduler.name)
            if not is_so and not of_others:
                self.found.notes.append(f"{field}: is for a scheduler's job, and has no effect here")

    def _devices(self) -> Devices:
        site, node, layout, per_rank = self.site, self.site.node, self.layout, self.per_rank
        torchrun = self.spec.launcher.torchrun  # the shim runs once a node, so no rank is given its own
        # Of those that the scheduler chooses, each rank sees its own alone, or all of its node's.
        chosen = Devices(step=(0 if self.binds_devices else per_rank) if per_rank else None)
        if node is None or not self.of_node:
            return Devices() if torchrun else chosen
        try:
            devices = binding.devices(node, layout.max_per_node, per_rank)
        except ValueError as error:
            self._does_not_fit("devices_per_rank", error)
            return Devices()
        if (shared := self.shared) and layout.max_per_node * per_rank > (most := shared.max_devices):
            given = f"{shared.name} gives a job {most} of a node's devices {shared.known[shared.name].cited}"
            fits = f"use up to {most // max(per_rank, 1)} ranks a node"
            self._report_ranks(f"{given}; {fits}, or another {shared.field}")
        # A scheduler that hands out some of a node's devices numbers those alone, from 0.
        whole = not self.scheduler.hands_out_devices(site) or self.node_devices == self.of_node
        numbered = whole and not self.binds_devices
        if torchrun:
            if devices.per_rank:
                self.found.notes.append("torchrun hands out no devices: each rank sees all those of its node")
            return Devices(visible=devices.visible) if numbered else Devices()
        if numbered:
            self._numbered = devices if per_rank else None
            return devices
        if self.binds_devices and per_rank:
            shows = f"{self.scheduler.launchers[0]} shows each rank only its own devices"
            self.found.notes.append(f"{shows}: the first is 0 (CASTOFF_DEVICE)")
        return chosen

    def _does_not_fit(self, field: str, error: ValueError) -> None:
        """Blame the field that was set for what binding refuses."""
        node, asked = self.site.node, getattr(self.spec, field)
        source = f"({self.site.name}: {node.source}, {node.date})" if node else ""
        if asked is not None and asked > 1:
            self.found.report(field, f"is {asked}, but {error} {source}")
        else:
            self._report_ranks(f"{error} {source}")

    def _cores(self) -> tuple[int | None, list[str]]:
        """Cores of each rank, where they are known, and the CPU list of each local rank."""
        if self.queued and (explicit_binding := binding.lists_of(self.spec)):
            return min(len(cpus(one)) for one in explicit_binding), explicit_binding
        asked, node = self.spec.cores_per_rank, self.site.node
        if node is None or not node.sockets:
            return asked, []
        if self.shared and asked is None:  # of the cores as much as of the devices
            usable = sum(len(socket) for socket in node.usable_cores())
            asked = max(usable * self.per_rank // max(self.of_node, 1), 1)
        try:
            lists = binding.cores(node, self.layout.max_per_node, asked)
        except ValueError as error:
            self._does_not_fit("cores_per_rank", error)
            return asked, []
        cores = len(lists[0])
        if self.scheduler.counts_cpus and node.cpus_per_core > 1 and not self.spec.launcher.torchrun:
            counted = f"--cpus-per-task={self.site.cpus_of(cores)}"
            self.found.notes.append(
                f"{counted}: a rank's {cores} cores, which have {node.cpus_per_core} CPUs each"
            )
        # Which cores a job gets of a node that it shares is not known before.
        return cores, [] if self.shared else [cpulist(numbers) for numbers in lists]

    def _processes(self, cores: int | None, cpu_lists: list[str]) -> Request:
        """What the launcher starts: the ranks, or one torchrun a node that owns all of it."""
        spec, site, layout = self.spec, self.site, self.layout
        if not spec.launcher.torchrun:
            flags = [*self.site_args, *spec.launcher.args]
            own = LAUNCHERS[self.launcher].own_distribution(flags, self._named())
            explicit_binding = spec.binding is not None
            return Request(
                layout, cores, cpu_lists, self.per_rank, self.node_devices, site, own, explicit_binding
            )
        whole = [cpulist(numbers) for numbers in binding.cores(site.node, 1, None)] if site.node else []
        cores, devices = cores and cores * layout.max_per_node, self.per_rank * layout.max_per_node
        return Request(Layout([(1, layout.nodes)]), cores, whole, devices, self.node_devices, site)

    def _start_timeout(self) -> int | None:
        """None by default where the launcher itself makes each node's container, maybe of a large image."""
        if self.spec.launcher.timeout:
            return seconds(self.spec.launcher.timeout)
        container = self.spec.container
        of_launcher = container.runtime is not None and containers.RUNTIMES[container.runtime].of_launcher
        return None if container.image and of_launcher else START_TIMEOUT

    def _chosen_by_flags(self) -> bool | None:
        """Whether flags of the launcher show each rank its own devices alone; None where none says of it."""
        own = self._named().get("gpu-bind")
        of_directives = [f"--gpu-bind={own}"] if isinstance(own, str) else []
        return LAUNCHERS[self.launcher].shows_devices(
            [*of_directives, *self.site_args, *self.spec.launcher.args]
        )

    def _named(self) -> Directives:
        """The directives of site and job, by their names."""
        return directives.merged(self.site.directives, self.spec.directives, self.site.scheduler)

    def _container(self) -> ContainerPlan | None:
        decided = containers.decide(self.spec.container, self.site, self.per_rank)
        if decided and self.per_rank and self.spec.container.gpus is None and decided.gpus == "none":
            self.found.notes.append(
                "the container is given no GPUs: the site does not name their vendor; set container.gpus"
            )
        return decided

    def _environment(self, cores: int | None) -> dict[str, str]:
        env = dict(self.spec.env)
        if "OMP_NUM_THREADS" not in env and self.queued:
            env["OMP_NUM_THREADS"] = str(cores or 1)
            why = "a rank's cores" if cores else "a rank has one core unless cores_per_rank sets more"
            self.found.notes.append(f"OMP_NUM_THREADS={cores or 1}: {why}")
        return env
