"""plan(spec, site) -> Plan: every decision made, nothing left to guess. Pure.

The only place where a job and a site meet. Whatever a scheduler would refuse, and this site's
profile knows of, is said here before anything is queued.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from launcher.config.document import Document, FieldPath, dotted
from launcher.config.job import Container, Directives, JobSpec, Snapshot, StarterName, check, program_name
from launcher.config.options import fixed_ranks, option_problems, with_options
from launcher.config.quantities import cpulist, cpus, seconds
from launcher.config.site import Site
from launcher.config.structure import fields_of
from launcher.errors import InvalidInput, Problem
from launcher.planning import binding
from launcher.planning.binding_by_hand import binding_problems, lists_of
from launcher.planning.containers import container_problems
from launcher.planning.containers import decide as decide_container
from launcher.planning.limits import requeue_way, sharing_queue, site_problems
from launcher.planning.staging import decide as decide_stage
from launcher.planning.staging import stage_problems
from launcher.runs.plan import ContainerPlan, Devices, Plan
from launcher.schedulers import directives, given_directives
from launcher.schedulers.choice import check_profile
from launcher.schedulers.directives import of_scheduler
from launcher.schedulers.registry import queued, scheduler_of
from launcher.starters.registry import STARTERS, Layout, Request, start

T = TypeVar("T", bound=msgspec.Struct)

DEFAULT_GRACE = 120
"""Seconds between the request to stop and the walltime, where the job does not say."""

PER_RANK_LOGS = 256
"""Up to so many ranks, each has a log file of its own; more would hurt a parallel file system."""


def plan(spec: JobSpec, site: Site, *, function: bool = False) -> Plan:
    """Resolve a job on a site.

    With `function`, the job runs a Python function that submitit has pickled, and `spec.command`
    is ignored.

    Raises:
        InvalidInput: with every reason why this job cannot run there.
    """
    source = spec.source
    if function:
        spec = msgspec.structs.replace(spec, command=["function"], name=spec.name or "function")
    retyped = JobSpec.of(msgspec.to_builtins(spec))
    wanted = spec.options or site.defaults.options
    check_profile(site)
    changed = with_options(site, wanted)
    planner = _Planner(_with_defaults(retyped, changed), changed, source, retyped.directives)
    return planner.plan(function=function)


def _with_defaults(spec: JobSpec, site: Site) -> JobSpec:
    """The job with the site's `defaults:` where it says nothing; mappings merge, setup lines add up."""
    chosen = _filled(spec, site.defaults)
    setup = [*site.setup, *site.defaults.setup, *spec.setup, *site.setup_last]
    named = given_directives.merged(site.defaults.directives, spec.directives, site.scheduler)
    chosen = msgspec.structs.replace(chosen, setup=setup, env={**site.env, **chosen.env}, directives=named)
    if chosen.container.image is None and spec.container == Container():
        chosen = msgspec.structs.replace(chosen, container=Container())  # a runtime for those who want one
    if spec.ranks is not None:
        return msgspec.structs.replace(chosen, ranks_per_node=None)
    if spec.ranks_per_node is not None:
        return msgspec.structs.replace(chosen, ranks=None)
    return chosen


def _filled(mine: T, default: T) -> T:
    """One struct with another's values where it has no own; mappings and structs in it likewise."""
    chosen: dict[str, Any] = {}
    for field in fields_of(type(mine)).values():
        own, other = getattr(mine, field.name), getattr(default, field.name)
        if isinstance(own, dict):
            chosen[field.name] = {**other, **own}
        elif isinstance(field.default, msgspec.Struct):
            chosen[field.name] = _filled(own, other)
        elif own == field.default or (own == [] and field.default_factory is not msgspec.NODEFAULT):
            chosen[field.name] = other
    return msgspec.structs.replace(mine, **chosen)


def _from_here(folder: str | None) -> str | None:
    """A folder as `cd` takes it: a bare `-`, `-P` or a name that CDPATH holds would mean another."""
    return folder if folder is None or folder.startswith("/") else f"./{folder}"


def default_grace(walltime: int | None) -> int:
    """Seconds between the request to stop and the walltime: of a short walltime no more than a quarter."""
    return DEFAULT_GRACE if walltime is None else min(DEFAULT_GRACE, walltime // 4)


class _Planner:
    """The decisions, one method each; each may add problems and notes."""

    def __init__(self, spec: JobSpec, site: Site, source: Document | None, given: Directives):
        self.spec = spec
        self.site = site
        self.scheduler = scheduler_of(site.scheduler)
        self.queued = queued(site.scheduler) is not None
        self.source = source
        self.given = given
        self.name = spec.name or program_name(spec.command)
        self.walltime = seconds(spec.walltime) if spec.walltime else None
        self.shared = sharing_queue(spec, site)
        self.grace = seconds(spec.grace) if spec.grace else default_grace(self.walltime)
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def plan(self, *, function: bool) -> Plan:
        spec, site = self.spec, self.site
        layout = self._layout()
        starter = self._starter(layout)
        self._check_ranks_of_options(layout)
        per_rank = self._devices_per_rank()
        devices = self._devices(layout, per_rank)
        cores, cpu_lists = self._cores(layout, per_rank)
        for field, message in (
            *container_problems(spec, starter, [item.to for item in decide_stage(spec.stage)]),
            *stage_problems(spec.stage),
            *(option_problems(spec.options, site) if self.queued else ()),
            *given_directives.section_problems(self.given),
            *((dotted(path), message) for path, message in check(spec)),
            *site_problems(spec, site, self.name, self.walltime, self.grace),
        ):
            self._report(field, message)
        self._check_given_directives(layout, per_rank)
        if not self.queued and spec.binding is not None:
            self.notes.append("binding: is for a scheduler's job, and has no effect here")
        else:
            for message in binding_problems(spec, site, starter, layout, whole_nodes=self._whole_nodes):
                self._report("binding", message)
        if self.problems:
            raise InvalidInput(self.problems)
        processes = self._processes(starter, layout, cores, cpu_lists, per_rank)
        return Plan(
            name=self.name,
            site=site.name,
            scheduler=site.scheduler,
            shell=site.shell,
            directives=self._directives(processes),
            command=spec.command,
            function=function,
            nodes=layout.nodes,
            ranks=layout.processes,
            layout=layout.groups,
            own_distribution=processes.own_distribution,
            starter=starter,
            start=self._start(starter, processes),
            torchrun=spec.start.torchrun,
            cores_per_rank=cores,
            cpu_lists=cpu_lists,
            devices_per_rank=per_rank,
            device_variable=site.node.device_variable if site.node else None,
            devices=devices,
            walltime=self.walltime,
            grace=self.grace,
            inherit=self.scheduler.default_inherit if spec.inherit is None else spec.inherit or "none",
            setup=spec.setup,
            teardown=site.teardown,
            env=self._environment(cores),
            env_from=spec.env_from,
            workdir=_from_here(spec.workdir),
            snapshot=Snapshot() if spec.snapshot is True else spec.snapshot or None,
            python=spec.python,
            master_suffix=site.master_suffix,
            array_count=spec.array.count if spec.array else None,
            array_at_most=spec.array.at_most if spec.array else None,
            after={str(condition): names for condition, names in spec.after.items()},
            requeue_max=spec.requeue.max,
            requeue_how=self._requeue_how(),
            per_rank_logs=layout.processes <= PER_RANK_LOGS and not spec.start.torchrun,
            container=self._container(per_rank),
            stage=decide_stage(spec.stage),
            stage_start=self._stage_start(starter, layout) if spec.stage else [],
            local_storage=site.local_storage if spec.stage else None,
            templates=spec.templates,
            notes=self.notes,
        )

    def _report(self, field: str, message: str) -> None:
        field = given_directives.place(field, self.given, self.site.scheduler)
        self.problems.append(Problem(self._where(field), field, message))

    def _where(self, field: str) -> str:
        """Where a field's value comes from: the job file's line, a flag, or the site's defaults."""
        if self.source is None:
            return f"{self.name} on {self.site.name}"
        path: FieldPath = tuple(int(key) if key.isdecimal() else key for key in field.split("."))
        mine = self.source.data.get(path[0]) if isinstance(self.source.data, dict) else None
        if mine is None and path[0] in msgspec.to_builtins(self.site.defaults):
            return f"defaults of site {self.site.name}"
        return self.source.where(path)

    def _requeue_how(self) -> Literal["requeue", "copy", "chain"] | None:
        if not self.spec.requeue.max:
            return None
        return "requeue" if self.scheduler.starts_again else requeue_way(self.spec)

    def _report_ranks(self, layout: Layout, message: str) -> None:
        """What is wrong with how many there are, said of the field that says so."""
        if self.spec.ranks is not None:
            self._report("ranks", f"is {layout.processes}, but {message}")
        else:
            self._report("ranks_per_node", f"is {layout.most}, but {message}")

    def _layout(self) -> Layout:
        spec, site = self.spec, self.site
        nodes = spec.nodes or 1
        self.notes += [
            f"{name}: {site.options[name].description}" for name in spec.options if name in site.options
        ]
        if not self.queued and nodes > 1:
            self._report("nodes", f"is {nodes}, but this machine is one node; use --set nodes=1")
            nodes = 1
        if spec.ranks is not None:
            return Layout.of(spec.ranks, min(nodes, spec.ranks))
        if spec.ranks_per_node is not None:
            return Layout([(spec.ranks_per_node, nodes)])
        if fixed := fixed_ranks(spec.options, site):
            self.notes.append(f"{fixed[1]} ranks per node: what {fixed[0]} is made for")
            return Layout([(fixed[1], nodes)])
        if site.node and site.node.device_count and spec.devices_per_rank != 0:
            devices = site.node.device_count
            why = f"the node has {devices} devices"
            if self.shared is not None and self.shared.max_devices < devices:
                devices = self.shared.max_devices
                why = f"{self.shared.name} gives a job {devices} of a node's devices"
            each = max(devices // (spec.devices_per_rank or 1), 1)
            self.notes.append(f"{each} ranks per node: {why}")
            return Layout([(each, nodes)])
        self.notes.append("1 rank per node: set ranks_per_node or ranks for more")
        return Layout([(1, nodes)])

    def _check_ranks_of_options(self, layout: Layout) -> None:
        if (fixed := fixed_ranks(self.spec.options, self.site)) and layout.groups != [
            (fixed[1], layout.nodes)
        ]:
            made = f"the option {fixed[0]} is made for {fixed[1]} ranks on each node"
            self._report_ranks(layout, f"{made}: drop one")

    def _starter(self, layout: Layout) -> StarterName:
        allowed = self.scheduler.starters
        starter = self.spec.start.starter or self.site.starter
        if not self.queued:
            (starter,) = allowed
            for field, given in (
                ("start.starter", self.spec.start.starter not in (None, starter)),
                ("options", self.spec.options),
                ("start.args", self.spec.start.args),
                ("directives", of_scheduler(self.spec.directives, self.scheduler.name)),
            ):
                if given:
                    self.notes.append(f"{field}: is for a scheduler's job, and has no effect here")
        elif starter not in allowed:
            kind = self.scheduler.title
            message = f"is {starter}, but a {kind} job's ranks start with one of {', '.join(allowed)}"
            if self.spec.start.starter:
                self._report("start.starter", message)
            else:
                self.problems.append(Problem(f"site {self.site.name}", "starter", message))
        most = STARTERS[starter].most_words
        if most is not None and len(self.spec.command) > most:
            message = f"has {len(self.spec.command)} words, but {starter} takes {most} at the most"
            self._report("command", f"{message}: write them to a file that the program reads")
        if starter == "pals" and not layout.filled and not self.spec.start.torchrun:
            low = layout.processes - layout.processes % layout.nodes
            message = (
                f"is {layout.processes} on {layout.nodes} nodes, and PALS fills node after node with "
                f"{layout.most}, which leaves the last with too few; use {low} or {low + layout.nodes}"
            )
            self._report("ranks", message)
        return starter

    def _devices_per_rank(self) -> int:
        """1 where the site's nodes are known to have devices, else what is asked for."""
        if self.spec.devices_per_rank is not None:
            return self.spec.devices_per_rank
        return 1 if self.site.node and self.site.node.device_count else 0

    @property
    def _whole_nodes(self) -> bool:
        """Whether the job has its nodes for itself."""
        if self.shared is not None:
            return False
        return bool(self.spec.exclusive or (self.site.node and self.site.node.exclusive))

    def _node_devices(self, layout: Layout, per_rank: int) -> int:
        """Devices of a node that the job asks for."""
        needed = layout.most * per_rank
        total = self.site.node.device_count if self.site.node else 0
        if not total or not needed:
            return needed
        return total if self._whole_nodes else min(needed, total)

    def _devices(self, layout: Layout, per_rank: int) -> Devices:
        node = self.site.node
        if node is None or not node.device_count:
            if self.spec.start.torchrun:
                return Devices()
            return binding.scheduler_devices(per_rank, per_task=self.site.binds_devices)
        try:
            devices = binding.devices(node, layout.most, per_rank)
        except ValueError as error:
            self._does_not_fit("devices_per_rank", self.spec.devices_per_rank, layout, error)
            return Devices()
        if self.shared is not None and layout.most * per_rank > self.shared.max_devices:
            given = f"{self.shared.name} gives a job {self.shared.max_devices} of a node's devices"
            fits = f"use up to {self.shared.max_devices // max(per_rank, 1)} ranks a node"
            fix = f"{fits}, or another {self.shared.field}"
            self._report_ranks(layout, f"{given} {self.shared.source}; {fix}")
        numbered = self._numbers_of_node(layout, per_rank)
        if self.spec.start.torchrun:  # the shim runs once a node, so no rank is given its own
            if devices.per_rank:
                self.notes.append("torchrun hands out no devices: each rank sees all those of its node")
            return Devices(visible=devices.visible) if numbered else Devices()
        if numbered:
            return devices
        if self.site.binds_devices and per_rank:
            shows = f"{self.scheduler.starters[0]} shows each rank its own devices alone"
            self.notes.append(f"{shows}: the first is 0 (CASTOFF_DEVICE)")
        return binding.scheduler_devices(per_rank, per_task=self.site.binds_devices)

    def _numbers_of_node(self, layout: Layout, per_rank: int) -> bool:
        """Whether a rank sees the devices under the node's own numbers.

        A scheduler that hands out some of a node's devices numbers those alone, from 0.
        """
        site, node = self.site, self.site.node
        if site.binds_devices or node is None:
            return False
        handed_out = self.scheduler.hands_out_devices(site)
        return not handed_out or self._node_devices(layout, per_rank) == node.device_count

    def _does_not_fit(self, field: str, asked: int | None, layout: Layout, error: ValueError) -> None:
        """Blame the field that was set for what binding refuses."""
        node = self.site.node
        source = f"({self.site.name}: {node.source}, {node.date})" if node else ""
        if asked is not None and asked > 1:
            self._report(field, f"is {asked}, but {error} {source}")
        else:
            self._report_ranks(layout, f"{error} {source}")

    def _cores(self, layout: Layout, per_rank: int) -> tuple[int | None, list[str]]:
        """Cores of each rank, where they are known, and the CPU list of each local rank."""
        if by_hand := lists_of(self.spec):
            return min(len(cpus(one)) for one in by_hand), by_hand
        asked, node = self.spec.cores_per_rank, self.site.node
        if node is None or not node.sockets:
            return asked, []
        if self.shared is not None and asked is None:  # of the cores as much as of the devices
            usable = sum(len(socket) for socket in node.usable_cores())
            asked = max(usable * per_rank // max(node.device_count, 1), 1)
        try:
            lists = binding.cores(node, layout.most, asked)
        except ValueError as error:
            self._does_not_fit("cores_per_rank", self.spec.cores_per_rank, layout, error)
            return asked, []
        cores = len(lists[0])
        if self.scheduler.counts_cpus and node.cpus_per_core > 1 and not self.spec.start.torchrun:
            counted = f"--cpus-per-task={self.site.cpus_of(cores)}"
            self.notes.append(f"{counted}: a rank's {cores} cores, which have {node.cpus_per_core} CPUs each")
        # Which cores a job gets of a node that it shares is not known before.
        return cores, [] if self.shared else [cpulist(numbers) for numbers in lists]

    def _processes(
        self, starter: StarterName, layout: Layout, cores: int | None, cpu_lists: list[str], per_rank: int
    ) -> Request:
        """What the starter starts: the ranks, or one torchrun a node that owns all of it."""
        devices = self._node_devices(layout, per_rank)
        if not self.spec.start.torchrun:
            own = starter == "srun" and self._own_distribution()
            by_hand = self.spec.binding is not None
            return Request(layout, cores, cpu_lists, per_rank, devices, self.site, own, by_hand)
        node = self.site.node
        whole = binding.core_lists(node, 1, None) if node else []
        return Request(
            Layout([(1, layout.nodes)]),
            cores and cores * layout.most,
            whole,
            per_rank * layout.most,
            devices,
            self.site,
        )

    def _own_distribution(self) -> bool:
        flags = [*self._site_args("srun"), *self.spec.start.args]
        of_site, of_job = self.site.directives, self.spec.directives
        named = given_directives.merged(of_site, of_job, self.site.scheduler)
        return any(flag.startswith(("--dist", "-m")) for flag in flags) or any(
            named.get(name) for name in ("distribution", "m")
        )

    def _start(self, starter: StarterName, processes: Request) -> list[str]:
        if not self.queued:
            return STARTERS[starter].argv(processes)
        return start(starter, processes, self._site_args(starter), self.spec.start.args)

    def _site_args(self, starter: StarterName) -> list[str]:
        """The site's own flags, which are those of its own starter."""
        return self.site.start_args if starter == self.site.starter else []

    def _stage_start(self, starter: StarterName, layout: Layout) -> list[str]:
        if not self.queued:
            return []
        one_a_node = Request(Layout([(1, layout.nodes)]), None, [], 0, 0, self.site)
        return [*STARTERS[starter].argv(one_a_node), *self._site_args(starter)]

    def _container(self, devices: int) -> ContainerPlan | None:
        decided = decide_container(self.spec.container, self.site, devices)
        if decided is not None and devices and self.spec.container.gpus is None and decided.gpus == "none":
            self.notes.append(
                "the container is given no GPUs: this site does not say whose they are; set container.gpus"
            )
        return decided

    def _check_given_directives(self, layout: Layout, per_rank: int) -> None:
        """What is given as the scheduler's own words may not contradict what was decided, or slip past it."""
        for field, message in given_directives.site_directive_problems(self.spec, self.site):
            self.problems.append(Problem(f"site {self.site.name}", field, message))
        per_task = per_rank * layout.most if self.spec.start.torchrun else per_rank
        asked = self._resources(layout, None, per_task, self._node_devices(layout, per_rank))
        for field, message in self.scheduler.contradictions(self.spec, self.site, asked):
            self._report(field, message)

    def _directives(self, processes: Request) -> directives.Directives:
        limit, array = self.site.array, self.spec.array
        if limit and array and array.count > limit.max_count:
            self.notes.append(
                f"array of {array.count}: castoff submit sends it in parts; sbatch alone takes "
                f"{limit.max_count} members at the most"
            )
        asked = self._resources(processes.layout, processes.cores, processes.devices, processes.node_devices)
        return self.scheduler.directives(self.spec, self.site, asked)

    def _resources(
        self, layout: Layout, cores: int | None, devices_per_task: int, devices_per_node: int
    ) -> directives.Resources:
        return directives.Resources(
            name=self.name,
            nodes=layout.nodes,
            tasks_per_node=layout.most,
            cores_per_task=cores,
            devices_per_task=devices_per_task,
            devices_per_node=devices_per_node,
            whole_nodes=self._whole_nodes,
            walltime=self.walltime,
            grace=self.grace,
            after=directives.dependency(dict(self.spec.after)),
        )

    def _environment(self, cores: int | None) -> dict[str, str]:
        env = dict(self.spec.env)
        if "OMP_NUM_THREADS" not in env and self.queued:
            env["OMP_NUM_THREADS"] = str(cores or 1)
            why = "a rank's cores" if cores else "a rank has one core unless cores_per_rank says more"
            self.notes.append(f"OMP_NUM_THREADS={cores or 1}: {why}")
        return env
