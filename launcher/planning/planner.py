"""plan(spec, site) -> Plan: makes every decision, so that nothing is left to guess. Pure.

This is the only place where a job and a site meet. Planning reports, before anything is queued, whatever the
scheduler would refuse according to the site's profile.
"""

from __future__ import annotations

import msgspec

from castoff.launcher.config import chunks, directives, earlier_runs
from castoff.launcher.config.defaults import EffectiveJob, effective_job, fixed_ranks, option_problems
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Directives, LauncherName, Snapshot
from castoff.launcher.config.quantities import cpulist, seconds, signal_and_time
from castoff.launcher.config.site import Site
from castoff.launcher.errors import InvalidInput, Problem
from castoff.launcher.launchers.base import Layout, Request
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.planning import (
    binding,
    containers,
    drivers,
    limits,
    mpi_modules,
    needs,
    node_groups,
    parameters,
    placement,
    preloading,
    restarts,
    stage_in,
    together,
)
from castoff.launcher.planning.findings import Findings
from castoff.launcher.planning.placement import Placement
from castoff.launcher.planning.raw_directives import directive_problems, section_problems
from castoff.launcher.runs.plan import AS_THEY_ARE, ContainerPlan, Plan, SignalPlan
from castoff.launcher.runs.records import PER_RANK_FILES, Messages
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.schedulers.choice import check_profile
from castoff.launcher.schedulers.dialect import own_dependency
from castoff.launcher.schedulers.fields import ignored, launcher_named

DEFAULT_GRACE = 120
"""Seconds between the request to stop and the walltime, unless the job sets `grace`."""

START_TIMEOUT = 600
"""Seconds after which ranks that have not started end the job, unless the job sets another limit."""


def plan(spec: JobSpec, site: Site, *, function: bool = False) -> Plan:
    """Make the plan of a job on a site.

    With `function`, the job runs a Python function that submitit has pickled, and `spec.command`
    is ignored.

    Raises:
        InvalidInput: the job cannot run at this site; the text lists every reason.
    """
    return decide(spec, site, function=function)[0]


def decide(spec: JobSpec, site: Site, *, function: bool = False) -> tuple[Plan, Scheduler]:
    """Like `plan`, for callers that also need the site's scheduler."""
    given = spec
    if function:
        spec = msgspec.structs.replace(spec, command=["function"], name=spec.name or "function")
    scheduler = check_profile(site)
    agreed = drivers.as_driver(effective_job(spec, site), spec, scheduler)
    planner = _Planner(agreed, scheduler, given)
    if spec.array is None or spec.array.shared is None or not scheduler.has_queue:
        return planner.plan(function=function), scheduler
    return planner.plan_of_member(agreed, function=function), scheduler


class _Planner:
    """The decisions of a plan, each in one method, which may add problems and notes."""

    def __init__(self, agreed: EffectiveJob, scheduler: Scheduler, given: JobSpec):
        """`given`: the job without its site's defaults."""
        self.whole = given
        self.is_shared = False
        self.device_type = given.device_type if given.script is None else agreed.spec.device_type
        stage = [stage_in.decided(item) for item in agreed.spec.stage]
        self.groups = chunks.node_groups(agreed.spec.select) if "select" in scheduler.handles else []
        sized, notes = node_groups.with_nodes(agreed.spec, agreed.site)
        in_common = node_groups.together(sized if scheduler.has_queue else agreed.spec, self.groups)
        self.spec = spec = msgspec.structs.replace(in_common, stage=stage)
        self.site, self.scheduler, self.given = agreed.site, scheduler, given.directives
        self.contradictions, site = agreed.contradictions, agreed.site
        self.queued = scheduler.has_queue
        self.name = parameters.run_name(spec)
        self.walltime = seconds(spec.walltime) if spec.walltime else None
        grace = DEFAULT_GRACE if self.walltime is None else min(DEFAULT_GRACE, self.walltime // 4)
        self.grace = seconds(spec.grace) if spec.grace else grace
        self.queue_chosen = limits.chosen_queue(spec, site, scheduler, self.walltime)
        self.spec = spec = msgspec.structs.replace(spec, queue=spec.queue or self.queue_chosen)
        targets = [*limits.targets(spec, site, scheduler)]
        self.shared = next((target for target in targets if target.max_devices), None)
        exclusive = spec.exclusive or any(one.exclusive for one in targets)
        self.whole_nodes = bool(exclusive or (site.node and site.node.exclusive)) and not self.shared
        self.of_node = site.node.device_count if site.node else 0
        self.found = Findings(self.name, site, given.source, self.given)
        self.found.notes += notes if scheduler.has_queue else []
        self.layout = self._layout()
        self.launcher = self._launcher()
        self.site_args = site.launcher_args if self.queued and self.launcher == site.launcher else []
        self.per_rank = int(self.of_node > 0) if spec.devices_per_rank is None else spec.devices_per_rank
        if spec.launcher.driver or (self.layout.max_per_node == 1 and drivers.node_launcher(spec.command)):
            self.per_rank = drivers.devices(spec, site, self.shared)
        self.node_devices = self.layout.max_per_node * self.per_rank
        if self.of_node and self.node_devices:
            self.node_devices = self.of_node if self.whole_nodes else min(self.node_devices, self.of_node)

    def plan(self, *, function: bool) -> Plan:
        """Make the remaining decisions, check the whole job, and return the plan."""
        return self.decisions(function=function)[0]

    def decisions(self, *, function: bool) -> tuple[Plan, Request]:
        """Return the plan, and the processes that the launcher starts."""
        for field, message in (
            *drivers.driver_problems(self.spec, function=function),
            *drivers.node_launcher_problems(self.spec, self.layout.max_per_node),
            *preloading.problems(self.spec, self.launcher, function=function),
        ):
            self.found.report(field, message)
        placed = placement.place(self._question(), self.found)
        processes = msgspec.structs.replace(
            self._processes(placed),
            whole_nodes=self.whole_nodes,
            name=self.name,
            walltime=self.walltime,
            grace=self.grace,
            spare_nodes=self.spec.restart.spare_nodes or 0,
            outlives_hosts=bool(self.spec.restart.spare_nodes) or (self.is_shared and self.layout.nodes > 1),
            device_queue=self.shared.name if self.shared and self.shared.counts_devices else None,
            node_groups=node_groups.decided(
                self.groups,
                cores=placed.asked,
                memory=self.spec.memory,
                per_rank=self.per_rank,
                whole=self.of_node if self.whole_nodes else 0,
                most=self.of_node,
            ),
            after=own_dependency(dict(self.spec.after)),
            device_type=self.spec.device_type,
        )
        self._check(processes)
        if self.found.problems:
            raise InvalidInput(self.found.problems)
        return self._decided(processes, placed, function), processes

    def plan_of_member(self, agreed: EffectiveJob, *, function: bool) -> Plan:
        """Make the plan of a member that shares its job's nodes with others."""
        if not self.scheduler.shares_jobs:
            of = f"{self.scheduler.title}, which {self.site.name} runs"
            fix = "drop it, and each member has a job of its own"
            self.found.report("array.together", f"is not supported by {of}: {fix}")
        for field, message in parameters.problems(self.spec, self.launcher):
            self.found.report(field, message)
        layout, per_rank = self.layout, self.per_rank
        launchers = (self.launcher, self.scheduler.launchers[0])
        share = together.sharing(self.spec, self.site, layout, per_rank, launchers, self.found)
        if share is None or self.found.problems:
            self.found.problems += self._problems_alone(agreed, function=function)
            raise InvalidInput(self.found.problems)
        of_job = together.of_job(agreed.spec, share, layout, per_rank)
        of_job = msgspec.structs.replace(of_job, name=self.name)
        job = _Planner(msgspec.structs.replace(agreed, spec=of_job), self.scheduler, self.whole)
        job.is_shared = True
        job.found.notes += [note for note in self.found.notes if note.startswith("together: ")]
        try:
            plan, processes = job.decisions(function=function)
        except InvalidInput as error:
            if own := self._problems_alone(agreed, function=function):
                raise InvalidInput(own) from None
            for message in together.too_large(error.problems, self.spec, share, of_job):
                self.found.report("array.together", message)
            raise InvalidInput(self.found.problems) from None
        plan = together.of_member(plan, processes, self.spec, job.site_args, share, layout)
        return msgspec.structs.replace(plan, **parameters.of_members(self.spec))

    def _problems_alone(self, agreed: EffectiveJob, *, function: bool) -> list[Problem]:
        """Return the problems of a member that shares its job with none: of fields that the user has set."""
        alone = msgspec.structs.replace(agreed, spec=msgspec.structs.replace(agreed.spec, array=None))
        try:
            _Planner(alone, self.scheduler, self.whole).decisions(function=function)
        except InvalidInput as error:
            return error.problems
        return []

    def _decided(self, asked: Request, placed: Placement, function: bool) -> Plan:
        """Return the plan, from decisions that have passed all checks."""
        spec, site, layout, launcher = self.spec, self.site, self.layout, self.launcher
        one_a_node = Request(Layout([(1, layout.nodes)]), None, [], 0, 0, site, device_type=spec.device_type)
        stage_start = [*LAUNCHERS[launcher].argv(one_a_node), *self.site_args]
        restart, devices = restarts.restarts(spec), self.of_node if self.whole_nodes else self.node_devices
        preflight = restarts.preflight(spec, site, devices, whole_nodes=self.whole_nodes)
        each_host = LAUNCHERS[launcher].each_host(site, self.site_args)
        driver, of_castoff = spec.launcher.driver, LAUNCHERS[launcher].here
        preload = [] if of_castoff else spec.launcher.preload
        again = "requeue" if self.scheduler.requeues_in_place else spec.requeue.how or "copy"
        causes = spec.requeue.causes(by_scheduler=self.scheduler.reruns_jobs)
        self.found.notes += limits.notes(spec, site, self.scheduler)
        if self.queue_chosen:
            among = ", ".join(site.queue_choice)
            self.found.notes.append(f"queue {self.queue_chosen}: chosen from {among}, as the job names none")
        return Plan(
            **{field: getattr(spec, field) for field in AS_THEY_ARE},
            name=self.name,
            site=site.name,
            scheduler=site.scheduler,
            shell=spec.shell or site.shell,
            directives=self.scheduler.directives(spec, site, asked),
            function=function,
            account=spec.account,
            queue=spec.queue or (site.default_queue if self.queued else None),
            nodes=layout.nodes,
            held_nodes=layout.nodes + (restart.spare_nodes if restart else 0),
            ranks=1 if driver else layout.processes,
            layout=[(1, 1)] if driver else layout.groups,
            own_distribution=asked.own_distribution,
            launcher=launcher,
            start=[] if driver else self._start(asked),
            start_timeout=None if driver else self._start_timeout(),
            torchrun=spec.launcher.torchrun,
            driver=driver,
            cores_per_rank=placed.cores,
            cpu_lists=placed.cpu_lists,
            bound=placed.by_list or self._binds_itself(),
            devices_per_rank=self.per_rank,
            cores_per_node=self._cores_per_node(),
            devices_per_node=devices,
            device_variable=site.node.device_variable if site.node else None,
            devices=placed.devices,
            walltime=self.walltime,
            submit_timeout=seconds(site.submit_timeout),
            poll_interval=seconds(site.poll_interval),
            grace=self.grace,
            inherit=self.scheduler.default_inherit if spec.inherit is None else spec.inherit or "none",
            site_teardown=site.teardown,
            default_env=self._default_environment(placed.cores),
            env=dict(spec.env),
            **parameters.of_members(spec),
            snapshot=Snapshot() if spec.snapshot is True else spec.snapshot or None,
            master_suffix=site.master_suffix,
            array_count=spec.array.size if spec.array else None,
            array_indices=spec.array.own_indices if spec.array else None,
            array_max_concurrent=spec.array.max_concurrent if spec.array else None,
            sharing=None,
            after={str(condition): names for condition, names in spec.after.items()},
            refers_to=earlier_runs.referred(spec),
            requeue_max=spec.requeue.max or 0,
            requeue_how=again if {"stop", "walltime"}.intersection(causes) else None,
            requeue_on=list(causes),
            margin=restarts.margin(spec, self.scheduler, self.walltime, self.grace),
            signal=SignalPlan(*signal_and_time(spec.signal)) if spec.signal else None,
            progress=spec.restart.progress or spec.requeue.progress,
            per_rank_logs=layout.processes <= PER_RANK_FILES and not spec.launcher.torchrun,
            container=self._container(),
            stage_start=stage_start if spec.stage and not of_castoff else [],
            restart=restart,
            preflight=preflight if self.queued else None,
            each_host=each_host if self.queued and (preflight or restart) else [],
            preload=preload or [],
            preload_start=self._beside(one_a_node) if preload else [],
            notify=Messages(list(spec.notify.on), spec.notify.receivers) if spec.notify else None,
            local_storage=site.local_storage if spec.stage else None,
            notes=self.found.notes,
        )

    def _start(self, asked: Request) -> list[str]:
        own = LAUNCHERS[self.launcher]
        argv = own.start(asked, self.site_args, [] if own.here else self.spec.launcher.args)
        if not own.here or self.spec.launcher.preload is None:
            return argv
        return [*argv, "--preload", ",".join(self.spec.launcher.preload) or "none"]

    def _beside(self, one_a_node: Request) -> list[str]:
        request = msgspec.structs.replace(one_a_node, node_devices=self.node_devices)
        return LAUNCHERS[self.launcher].beside(request, self.site_args)

    def _check(self, asked: Request) -> None:
        """Check each of the job's fields and directives, and report every problem."""
        spec, site, layout, launcher = self.spec, self.site, self.layout, self.launcher
        fixed = None if spec.launcher.driver else fixed_ranks(spec.options, site)
        if fixed and layout.groups != [(fixed[1], layout.nodes)]:
            made = f"the option {fixed[0]} is made for {fixed[1]} ranks on each node"
            self.found.report_ranks(spec, layout, f"{made}: drop one")
        if self.device_type and self.queued and not asked.any_devices:
            none = f"is {self.device_type}, but the job asks for no devices"
            self.found.report("device_type", f"{none}: set devices_per_rank, or drop it")
        explicit_binding = (
            binding.problems(spec, site, launcher, layout, self.whole_nodes) if self.queued else ()
        )
        for field, message in (
            *containers.container_problems(spec, launcher, [str(item.to) for item in spec.stage]),
            *stage_in.stage_problems(spec.stage),
            *(option_problems(spec.options, site) if self.queued else ()),
            *(needs.problems(spec, site) if self.queued else ()),
            *section_problems(self.given),
            *self.contradictions,
            *node_groups.problems(self.groups, self.per_rank),
            *limits.site_problems(spec, site, self.scheduler, self.name, self.walltime, self.grace),
            *directive_problems(spec.directives, spec, site, self.scheduler, asked),
            *(() if spec.script else self.scheduler.contradictions(spec, site, asked)),
            *restarts.requeue_problems(spec, self.scheduler, self.walltime, self.grace),
            *parameters.problems(spec, launcher),
            *(("binding", message) for message in explicit_binding),
        ):
            self.found.report(field, message)
        for condition in spec.after.keys() - {*self.scheduler.conditions}:
            pairs = f"is not a condition of {self.scheduler.title}, which cannot pair members: write afterok"
            self.found.report(f"after.{condition}", pairs)
        of_site = directive_problems(site.directives, spec, site, self.scheduler, asked, of_site=True)
        for field, message in of_site:
            field = directives.place(field, site.directives, site.scheduler)
            self.found.report_site(field, message)

    def _layout(self) -> Layout:
        spec, site = self.spec, self.site
        nodes = spec.nodes or 1
        self.found.notes += [
            f"{name}: {site.options[name].description}" for name in spec.options if name in site.options
        ]
        if not self.queued and nodes > 1:
            self.found.report("nodes", f"is {nodes}, but this machine is one node; use `nodes: 1`")
            nodes = 1
        if spec.launcher.driver:
            return Layout([(1, nodes)])
        if spec.ranks is not None:
            return Layout.of(spec.ranks, min(nodes, spec.ranks))
        each = spec.ranks_per_node
        if each is None and not (self.groups and all(group.ranks_per_node for group in self.groups)):
            each, why = node_groups.default_ranks(spec, site, self.shared)
            self.found.notes.append(why)
        self.groups = [
            msgspec.structs.replace(group, ranks_per_node=group.ranks_per_node or each)
            for group in self.groups
        ]
        if self.groups:
            return Layout.joined((group.ranks_per_node or 1, group.nodes) for group in self.groups)
        return Layout([(each or 1, nodes)])

    def _cores_per_node(self) -> int | None:
        own = [*self.site_args, *self.spec.launcher.args]  # castoff does not read other directives that bind
        bound = self.spec.binding or LAUNCHERS[self.launcher].binds(own)
        if not self.whole_nodes or self.site.node is None or bound:
            return None
        return sum(map(len, self.site.node.usable_cores())) or None

    def _binds_itself(self) -> bool:
        """Whether the launcher binds ranks, by default or by its flags."""
        own, flags = LAUNCHERS[self.launcher], [*self.site_args, *self.spec.launcher.args]
        return not own.leaves_unbound or own.binding(flags) not in ("", "none", "no")

    def _launcher(self) -> LauncherName:
        spec, layout, allowed = self.spec, self.layout, self.scheduler.launchers
        launcher = launcher_named(spec, self.site, self.scheduler)
        if not self.queued:
            self.found.notes += [
                f"{field}: only affects jobs of a scheduler, and has no effect here"
                for field in ignored(spec, self.site, self.scheduler)
            ]
        if launcher not in allowed:
            launchers, title = ", ".join(allowed), self.scheduler.title
            message = f"is {launcher}, but a {title} job's ranks start with one of {launchers}"
            if spec.launcher.name == launcher:
                self.found.report("launcher.name", message)
            else:
                self.found.report_site("launcher", message)
        elif not spec.launcher.driver:
            launcher, notes = mpi_modules.launcher(launcher, spec, self.site, self.scheduler)
            self.found.notes += notes
        own, most = LAUNCHERS[launcher], LAUNCHERS[launcher].most_words
        if most is not None and len(spec.command) > most:
            message = f"has {len(spec.command)} words, but {launcher} takes at most {most}"
            self.found.report("command", f"{message}: write them to a file that the program reads")
        fills = own.fills_nodes and not layout.block_filled and not spec.launcher.torchrun
        if fills and self.groups:
            takes = f"and {launcher} fills node after node with {layout.max_per_node}"
            fix = "write the same ranks_per_node for every group; one last node may have fewer"
            self.found.report("select", f"gives its nodes different numbers of ranks, {takes}: {fix}")
        elif fills:
            low = layout.processes - layout.processes % layout.nodes
            message = (
                f"is {layout.processes} on {layout.nodes} nodes, and {launcher} fills node after node with "
                f"{layout.max_per_node}, which leaves the last with too few; use {low} or "
                f"{low + layout.nodes}"
            )
            self.found.report("ranks", message)
        return launcher

    def _question(self) -> placement.Question:
        return placement.Question(
            spec=self.spec,
            site=self.site,
            scheduler=self.scheduler,
            launcher=self.launcher,
            site_args=self.site_args,
            named=self._named(),
            layout=self.layout,
            per_rank=self.per_rank,
            node_devices=self.node_devices,
            whole_nodes=self.whole_nodes,
            shared=self.shared,
        )

    def _processes(self, placed: Placement) -> Request:
        """Return the layout of the processes that the launcher starts: the ranks, or one torchrun per node,
        which gets the whole node.
        """
        spec, site, layout, cores = self.spec, self.site, self.layout, placed.asked
        if spec.launcher.driver:
            if cores is None and self.queued and not self.whole_nodes and spec.script is None:
                self.found.notes.append("1 core per node: set cores_per_rank or exclusive for more")
            return Request(layout, cores, [], self.per_rank, self.node_devices, site)
        if not spec.launcher.torchrun:
            flags = [*self.site_args, *spec.launcher.args]
            own = LAUNCHERS[self.launcher].own_distribution(flags, self._named())
            lists, by_list = placed.cpu_lists, placed.by_list
            return Request(layout, cores, lists, self.per_rank, self.node_devices, site, own, by_list)
        whole = [cpulist(numbers) for numbers in binding.cores(site.node, 1, None)] if site.node else []
        cores, devices = cores and cores * layout.max_per_node, self.per_rank * layout.max_per_node
        return Request(Layout([(1, layout.nodes)]), cores, whole, devices, self.node_devices, site)

    def _start_timeout(self) -> int | None:
        """Return the seconds after which ranks that have not started end the job. None, by default, if the
        launcher itself unpacks a container's image on each node, which may take long.
        """
        if self.spec.launcher.timeout:
            return seconds(self.spec.launcher.timeout)
        container = self.spec.container
        of_launcher = container.runtime is not None and containers.RUNTIMES[container.runtime].of_launcher
        return None if container.image and of_launcher else START_TIMEOUT

    def _named(self) -> Directives:
        """The merged directives of site and job, by name."""
        return directives.merged(self.site.directives, self.spec.directives, self.site.scheduler)

    def _container(self) -> ContainerPlan | None:
        decided = containers.decide(self.spec.container, self.site, self.per_rank)
        if decided and self.per_rank and self.spec.container.gpus is None and decided.gpus == "none":
            self.found.notes.append(
                "the container is given no GPUs: the site does not name their vendor; set container.gpus"
            )
        return decided

    def _default_environment(self, cores: int | None) -> dict[str, str]:
        env = dict(self.site.env)
        of_castoff = LAUNCHERS[self.launcher].here  # torchrun counts the cores of its host
        decided = "OMP_NUM_THREADS" in {*env, *self.spec.env}
        if not (decided or of_castoff or self.spec.launcher.driver):
            asked = chunks.threads(self.spec.select)
            env["OMP_NUM_THREADS"] = asked or str(cores or 1)
            why = "a rank's cores" if cores else "a rank has one core unless cores_per_rank sets more"
            why = "what select asks for" if asked else why
            self.found.notes.append(f"OMP_NUM_THREADS={env['OMP_NUM_THREADS']}: {why}")
        return env
