"""The cores and devices of each local rank: decided here, once, for the whole plan. Pure.

The cores are castoff's choice, or those of the job's `binding` or of the launcher's flags
(`planning.binding`); the devices are the devices near these cores (`planning.devices`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Directives, LauncherName
from castoff.launcher.config.quantities import cpulist, cpus
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Node, Queue, alternatives
from castoff.launcher.errors import shown
from castoff.launcher.launchers.base import Layout
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.planning import binding, devices, limits
from castoff.launcher.planning.binding import Bound
from castoff.launcher.planning.findings import Findings
from castoff.launcher.planning.node_groups import nodes_for_devices
from castoff.launcher.ranks.visible import MASKS
from castoff.launcher.runs.plan import Devices
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.typed.suggestion import setting


class Placement(msgspec.Struct, frozen=True):
    """The cores and devices of a node's ranks."""

    cores: int | None
    """The number of cores of each rank; None: not known."""
    asked: int | None
    """The number of cores for each rank that castoff requests from the scheduler, which does not read flags
    that bind.
    """
    cpu_lists: list[str]
    """The CPUs to which the launcher is to bind each local rank; empty if they are not known before the job
    runs.
    """
    by_list: bool
    """Whether a launcher that has its own binding rules is to use `cpu_lists` instead."""
    devices: Devices


class Question(msgspec.Struct, frozen=True):
    """The properties of a job and its site that decide its placement."""

    spec: JobSpec
    site: Site
    scheduler: Scheduler
    launcher: LauncherName
    site_args: list[str]
    """The site's additional launcher flags, if they apply."""
    named: Directives
    """The directives of site and job, merged."""
    layout: Layout
    per_rank: int
    """The number of devices of each rank."""
    node_devices: int
    """The number of each node's devices that the job has."""
    whole_nodes: bool
    shared: limits.Target | None
    """The job's queue or QOS, if jobs share nodes there."""


def place(question: Question, found: Findings) -> Placement:
    """Decide the placement; report impossible requests to `found`."""
    return _Placer(question, found).place()


class _Placer:
    def __init__(self, question: Question, found: Findings):
        self.asked, self.found = question, found
        self.spec, self.site, self.node = question.spec, question.site, question.site.node
        self.ranks, self.flags = (
            question.layout.max_per_node,
            [*question.site_args, *question.spec.launcher.args],
        )
        self.own = LAUNCHERS[question.launcher]
        self.torchrun, self.queued = question.spec.launcher.torchrun, question.scheduler.has_queue
        # a driver starts its own workers, and gives them devices itself
        self.driver = question.spec.launcher.driver
        self.bound: Bound | None = None
        if self.queued and not (self.torchrun or self.driver):
            self.bound = binding.bound(
                self.spec, self.site, question.launcher, question.site_args, self.ranks
            )

    def place(self) -> Placement:
        if self.bound and self.bound.problem:
            self._report_bound(self.bound, self.bound.problem)
        chosen = self._chosen_devices()  # before the cores, so that the ranks are counted first
        cores, lists = self._cores()
        by_list = self.spec.binding is not None or self._binds_by_list(lists)
        given = self._devices(chosen, lists, by_list)
        self._check_variables(given)
        threads = by_list and self.spec.binding is None and self.node
        cpu_lists = [
            cpulist(sorted(self.node.cpus_of(own)) if threads and self.node else own) for own in lists
        ]
        return Placement(self._bound_cores(cores), cores, cpu_lists, by_list, given)

    # Cores

    def _cores(self) -> tuple[int | None, list[list[int]]]:
        """Return the number of cores of each rank, if it is known, and the cores of each local rank."""
        node, asked, shared = self.node, self.spec.cores_per_rank, self.asked.shared
        if self.queued and self.spec.binding is not None:
            lists = [cpus(one) for one in binding.lists_of(self.spec)]
            return binding.width(node, lists), lists
        if node is None or not node.sockets:
            return asked, []
        usable = sum(len(socket) for socket in node.usable_cores())
        if shared and asked is None:  # the same share of the cores as of the devices
            asked = max(usable * self.asked.per_rank // max(node.device_count, 1), 1)
        elif shared and shared.counts_devices and asked is not None:
            each = usable // node.device_count
            share = each * self.asked.node_devices // self.ranks
            if asked > share > 0:
                given = f"{shared.name} gives {each} cores with each device {shared.known[shared.name].cited}"
                message = f"is {asked}, but {given}, {share} for each rank: lower it"
                self.found.report("cores_per_rank", message)
        try:
            lists = binding.cores(node, self.ranks, asked)
        except ValueError as error:
            self._does_not_fit("cores_per_rank", error)
            return asked, []
        cores = len(lists[0])
        if self.asked.scheduler.counts_cpus and node.cpus_per_core > 1 and not self.torchrun:
            counted = f"--cpus-per-task={self.site.cpus_of(cores)}"
            self.found.notes.append(
                f"{counted}: a rank's {cores} cores, which have {node.cpus_per_core} CPUs each"
            )
        # On a shared node, the job's cores are not known before the job runs.
        return cores, [] if shared else lists

    def _bound_cores(self, cores: int | None) -> int | None:
        """Return the number of cores to which flags bind each rank; None if ranks share cores."""
        bound = self.bound.cpus if self.bound else None
        if (
            not bound
            or (total := sum(map(len, bound))) != len({cpu for own in bound for cpu in own})
            or not total
        ):
            return cores
        return binding.width(self.node, bound)

    def _binds_by_list(self, lists: list[list[int]]) -> bool:
        """Whether castoff binds the ranks: nobody else does, or another binding would separate ranks from
        their devices.
        """
        node = self.node
        if not (node and lists and self.asked.whole_nodes) or self.bound or self.torchrun or self.driver:
            return False
        # A scheduler that starts ranks itself also confines the ranks of an mpiexec.
        (usual, *_) = self.asked.scheduler.launchers
        if self.own.leaves_unbound and LAUNCHERS[usual].is_mpiexec:
            return True
        parted = len(node.sockets) > 1 and node.device_count and self.asked.per_rank
        return bool(parted and self.own.deals_over_sockets(self.flags, self.asked.named))

    # Devices

    def _chosen_devices(self) -> list[list[int]]:
        """Return the devices of each local rank if castoff chooses them; empty if castoff cannot, or the
        devices are not known.
        """
        node, per_rank, shared = self.node, self.asked.per_rank, self.asked.shared
        if node is None or not node.device_count:
            return []
        try:
            chosen = devices.in_order(node, self.ranks, per_rank)
        except ValueError as error:
            self._does_not_fit("devices_per_rank", error)
            return []
        if shared and not shared.known[shared.name].takes_devices(self.asked.node_devices):
            self._report_devices(shared, shared.known[shared.name])
        return chosen

    def _devices(self, chosen: list[list[int]], lists: list[list[int]], by_list: bool) -> Devices:
        node, per_rank = self.node, self.asked.per_rank
        rule = self._rule()
        # A scheduler that gives a job some of a node's devices numbers only these devices, from 0.
        shared = self.asked.shared
        whole = not (shared and shared.counts_devices) and (
            not self.asked.scheduler.hands_out_devices(self.site)
            or (node is not None and self.asked.node_devices == node.device_count)
        )
        numbered = bool(node and chosen and whole and not rule)
        if self.torchrun:  # the shim runs once on each node, so no rank gets its own device
            if node and node.device_names:
                shows = f"starts ranks that each see all devices, and here these are {node.device_names[0]} …"
                field = "launcher.torchrun" if self.spec.launcher.torchrun else "command"
                self.found.report(field, f"{shows}: drop it, or the option that names them so")
            given = Devices()
            if node and numbered:
                left: list[list[int]] = []
                # the rank's program may use more than one device
                if len(chosen) == 1 and self.asked.whole_nodes:
                    left = [[number] for number in range(node.device_count) if number not in chosen[0]]
                given = devices.handed_out([*chosen, *left], node)
            if given.per_rank:
                self.found.notes.append("torchrun hands out no devices: each rank sees all those of its node")
            return Devices(visible=given.visible)
        if not per_rank or self.driver:
            return Devices()
        if rule:
            return self._shown(rule, lists)
        if node is None or not numbered:
            return Devices(step=per_rank)
        return self._numbered(node, chosen, lists, by_list)

    def _numbered(
        self, node: Node, chosen: list[list[int]], lists: list[list[int]], by_list: bool
    ) -> Devices:
        """Return the devices of each local rank, by their numbers on the node, chosen by the rank's cores."""
        bound = self.bound
        if not devices.has_sides(node):
            return devices.handed_out(chosen, node)
        if bound and bound.cpus and not bound.problem:
            try:
                beside = devices.beside(node, [node.cores_of(own) for own in bound.cpus], self.asked.per_rank)
            except ValueError as error:
                self._report_bound(bound, f"{error}: {self._fix(node)}")
                return Devices()
            if beside != chosen:
                which = " ".join(",".join(map(str, own)) for own in beside)
                self.found.notes.append(f"devices of a node's ranks, by {bound.field}: {which}")
            return devices.handed_out(beside, node)
        given = devices.handed_out(chosen, node)
        if by_list or not lists or (self.own.bound_by_list and not bound):
            return given
        near = [cpulist(sorted(node.cpus_of(devices.cores_beside(node, own)))) for own in chosen]
        better = ":".join(cpulist(sorted(node.cpus_of(own))) for own in lists)
        return msgspec.structs.replace(given, near=near, better=better)

    def _rule(self) -> str | None:
        """Return the rule by which the launcher shows each rank only some devices; None: the launcher shows
        each rank all devices.
        """
        named = self.asked.named.get("gpu-bind")
        of_site = [f"--gpu-bind={self.site.gpu_bind}"] if self.site.gpu_bind else []
        of_directives = [f"--gpu-bind={named}"] if isinstance(named, str) else []
        rule = self.own.shows_devices([*of_site, *of_directives, *self.flags])
        if rule is None and self.site.gpu_request == "gpus-per-task":
            rule = "per_task"
        return None if rule == "none" else rule

    def _shown(self, rule: str, lists: list[list[int]]) -> Devices:
        """Return the index of each rank's first device among the devices that the launcher shows the rank."""
        per_rank, seen = self.asked.per_rank, self.own.shown_devices(rule, self.ranks)
        if rule == "closest" and not (seen := self._closest(lists)):
            return Devices(step=per_rank)  # the job decides, by the devices that the rank sees
        indices = devices.among(seen, per_rank) if seen else []
        launcher = self.asked.scheduler.launchers[0]
        if not any(indices):
            note = f"{launcher} shows each rank only its own devices: the first is 0 (CASTOFF_DEVICE)"
            indices = []
        else:
            numbers = " ".join(map(str, indices))
            note = f"{launcher} shows each rank some devices; its own among these (CASTOFF_DEVICE): {numbers}"
        if self.node and self.node.device_count:
            self.found.notes.append(note)
        return Devices(step=0, indices=indices)

    def _closest(self, lists: list[list[int]]) -> list[list[int]]:
        """Return the devices nearest to each rank's cores among the devices that the rank sees; empty if
        these are not known.
        """
        node, bound = self.node, self.bound
        if node is None or not devices.has_sides(node) or not self.asked.whole_nodes:
            return []
        known = (
            not bound or bound.cpus or len(node.sockets) == 1
        )  # within a socket, srun fills core after core
        cores = bound.cpus if bound and bound.cpus else lists
        seen = [devices.nearest(node, node.cores_of(own)) for own in cores] if known else []
        return seen if all(seen) else []

    # Impossible requests

    def _fix(self, node: Node) -> str:
        own = ""
        try:
            own = f" ({':'.join(cpulist(cores) for cores in binding.cores(node, self.ranks, None))})"
        except ValueError:  # so many ranks that castoff could not bind them either
            pass
        itself = f"drop it, and castoff binds each rank beside its device{own}"
        return f"{itself}; or use `devices_per_rank: 0`, and choose devices in the program"

    def _report_bound(self, bound: Bound, message: str) -> None:
        if bound.field == "launcher_args":
            self.found.report_site(bound.field, message)
        else:
            self.found.report(bound.field, message)

    def _report_devices(self, shared: limits.Target, queue: Queue) -> None:
        """Report a number of devices that a job cannot have on a shared node."""
        per_rank, counts = self.asked.per_rank, queue.device_counts
        given = f"{shared.name} gives a job {queue.devices_words} of a node's devices {queue.cited}"
        whole = shared.of_whole_nodes
        other = f"{setting(shared.field, whole)} for whole nodes" if whole else f"another {shared.field}"
        ranks = [count // per_rank for count in counts if per_rank and count % per_rank == 0]
        if counts and (not ranks or (self.ranks == 1 and per_rank > 1)):
            self.found.report("devices_per_rank", f"is {per_rank}, but {given}; use one of these, or {other}")
            return
        fits = alternatives(ranks) if counts else f"up to {queue.most_devices // max(per_rank, 1)}"
        self.found.report_ranks(self.spec, self.asked.layout, f"{given}; use {fits} ranks a node, or {other}")

    def _check_variables(self, given: Devices) -> None:
        """Report variables of the job that choose a rank's devices, since castoff or the scheduler sets them.

        On this machine, castoff counts the ranks' devices within the job's mask, as it does within the
        shell's mask.
        """
        masks: Sequence[str] = given.per_rank or ([given.visible] if given.visible else [])
        ours, count = self.node.device_variable if self.node and masks else None, self.asked.per_rank
        names = [*MASKS] if self.queued and count and not self.driver else []
        chosen = f"each rank's {count} devices are" if count > 1 else "each rank's device is"
        fix = "drop it; or use `devices_per_rank: 0`, and castoff leaves the devices to you"
        of_container = self.spec.container.env if self.spec.container else {}
        for place, env in (("env", self.spec.env), ("container.env", of_container)):
            for name in dict.fromkeys([*names, *([ours] if ours else [])]):
                if (value := env.get(name)) is not None:
                    sets = f"castoff sets it for each rank ({' '.join(masks)})"
                    why = sets if name == ours else f"{chosen} chosen for it already"
                    self.found.report(f"{place}.{name}", f"is {shown(value)}, but {why}: {fix}")

    def _does_not_fit(self, field: str, error: ValueError) -> None:
        """Report, under the field that the user has set, that the ranks do not fit on a node."""
        asked = getattr(self.spec, field)
        source = f"({self.site.name}: {self.node.source}, {self.node.date})" if self.node else ""
        if nodes := nodes_for_devices(self.spec, self.site):
            source = f"; for {self.spec.ranks} ranks, {setting('nodes', str(nodes))} {source}"
        else:
            source = f" {source}"
        if asked is not None and asked > 1:
            self.found.report(field, f"is {asked}, but {error}{source}")
        else:
            self.found.report_ranks(self.spec, self.asked.layout, f"{error}{source}")
