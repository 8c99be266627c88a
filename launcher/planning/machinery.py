"""The lower half of a script, the machinery: the files of templates/machinery that a plan needs, one after
the other.

There is a file for each scheduler, launcher and container runtime, and there are files that all scripts
share. The files are plain shell, mostly functions, and work with the values that the head sets. A script's
features decide which lines of the files the script contains (`castoff.launcher.planning.conditions`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable

import msgspec

from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.base import Layout
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.planning.conditions import Conditions, chosen, functions_of
from castoff.launcher.planning.containers import RUNTIMES
from castoff.launcher.planning.loading import for_program_alone
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.records import PER_RANK_FILES
from castoff.launcher.runs.script import MARK
from castoff.launcher.schedulers.base import Scheduler

_FEW_NODES = 32
"""The largest number of nodes for which every node reports its staging."""

_INCLUDED = ("program", "device", "signal", "use")
"""Files that a script contains only if another file includes them."""

# castoff's functions cannot be replaced, and the last line shows the loader that all of the machinery was
# read.
_LAST = """\
readonly -f $(compgen -A function castoff_)
castoff_loaded=1
"""

_REQUEUES = ("requeue", "copy", "chain", "rerun")
"""The features of jobs that the scheduler may start again."""

FEATURES = {
    "node": "lines of a program of the nodes, in a file that such a program includes",
    # features that follow from the launcher or the scheduler
    "here": "castoff itself starts the ranks, on this host",
    "survives": "with this launcher, the other ranks keep running when one fails",
    "usr1": "the launcher passes USR1 on, and kills its ranks on TERM",
    "mpiexec": "the launcher's command has a name that other launchers use",
    "fills_nodes": "the launcher does not report the node of a rank, and fills one node after another",
    "by_ssh": "the launcher reaches other hosts by ssh, or by what is put in its place",
    "attach": "the scheduler does not know of the ranks' sessions by itself",
    "fence": "processes of an attempt may still run when the next one begins",
    "attempts": "the scheduler or the job itself may start another attempt",
    "deadline": "the job knows when it will be ended",
    # features that follow from the job
    "array": "an array of the scheduler",
    "together": "members of an array share a job",
    "parameters": "the array's members have parameters",
    "members": "an array of several members",
    "sparse": "an array whose members are not numbered from 0 on",
    "places": "the scheduler numbers the members in another way",
    "after": "the job waits for others, but a copy of it must not wait again",
    "nodes": "ranks on several nodes",
    "uneven": "some nodes have one rank fewer than others",
    "groups": "a list has the number of ranks of each node",
    "distribution": "the job's own flags for srun decide where each rank starts",
    "arbitrary": "a host file decides where each rank starts",
    "walltime": "a walltime",
    "inherit": "castoff drops variables that the job does not inherit",
    "setup": "setup lines, or custom templates, which may have some",
    "teardown": "teardown lines of the job or the site",
    "snapshot": "the ranks run in a copy of the code",
    "secrets": "variables from `env_from`",
    "loader": "`env` has variables that change any program, for the ranks' programs alone",
    "requeue": "the scheduler starts the same job again",
    "copy": "the job submits a copy of itself",
    "chain": "jobs that were submitted beforehand follow",
    "stops": "the run is requeued after the program stopped early",
    "expiry": "ranks that still run shortly before the walltime are ended, so that the run is requeued",
    "rerun": "the scheduler itself starts the job again after a preemption or the loss of a node",
    "signal": "the ranks' programs get a signal before the walltime",
    "usr2": "that signal is USR1, so the launcher passes USR2 on where it would pass USR1 on",
    "obeyed": "the run is requeued if the program ends itself after that signal",
    "judged": "castoff judges whether attempts made progress",
    "guessed": "a file named like a checkpoint shows progress if the program reports none",
    "restart": "the ranks are restarted after a failure",
    "spares": "the job has hosts to replace those that fail",
    "hang": "ranks that show no sign of life are ended",
    "notify": "the script sends messages when the run ends, fails or hangs",
    "use": "a process on each node records what the job uses",
    "preflight": "hosts are checked before ranks start there",
    "hosts": "a program runs on each host before the ranks",
    "own_checks": "the job adds its own checks of hosts",
    "reported_progress": "the program itself reports its progress",
    "alone": "there is one rank in all",
    "driver": "the program runs once, and starts its own workers",
    "script": "the program is a batch script that the job file holds",
    "torchrun": "torchrun starts the ranks of each node",
    "preload": "one process of each node imports modules for its ranks",
    "per_rank_logs": "each rank has a log",
    "many_ranks": f"more than {PER_RANK_FILES} ranks: files grow with the hosts",
    "visible": "all ranks of a node have the same device mask",
    "masks": "each rank of a node has its own device mask",
    "devices": "each rank has a device",
    "indices": "for each rank of a node, its device's index among those that the launcher shows is known",
    "binds_ranks": "the script binds each rank to its cores",
    "divided": "each rank binds itself to its share of the cores that it may use",
    "taken": "each member takes its share of the devices that it sees",
    "near": "a rank checks whether its cores are beside its devices",
    "stage": "copies on each node's own disk",
    "many_nodes": f"more than {_FEW_NODES} nodes",
    "activate": "one of the copies is an environment that is activated",
    "container": "a container around each rank",
    "launcher_enters": "the launcher itself starts each rank in its container",
    "image_file": "the container's image is a file",
    "binds": "the runtime needs the run's folders as options",
    "nvidia": "the container has NVIDIA GPUs",
    "libraries": "the job's LD_LIBRARY_PATH would hide the GPUs' libraries in the container",
    "python": "the job sets the container's Python",
}
"""The features on which a line of the machinery may depend, each with its meaning for a script."""


class Machinery(msgspec.Struct, frozen=True):
    """The parts and features of one script's machinery."""

    scheduler: str
    launcher: str
    runtime: str | None
    features: frozenset[str]
    parts: list[str]
    """The names of the machinery's files, in order."""

    @property
    def names(self) -> list[str]:
        """The names of all files of the machinery, including included files."""
        rank = "rank" in self.parts
        needed = {
            "program": rank,
            "device": "devices" in self.features,
            "signal": rank and "signal" in self.features,
            "use": "use" in self.features,
        }
        return [*self.parts, *(name for name in _INCLUDED if needed[name])]

    def marker(self, replaced: Iterable[str]) -> str:
        """Return the comment lines above the machinery, which say what the machinery is for. `replaced`: the
        files that the user has replaced.
        """
        words = [self.runtime] if self.runtime else []
        words += [name for name in FEATURES if name in self.features - _of_launcher(self.launcher).keys()]
        own = sorted(set(self.names).intersection(replaced))
        return (
            f"{MARK}for {self.scheduler} and {self.launcher}: nothing below is about this job ===\n"
            f"{_comment('Features', words)}{_comment('Your own', own)}"
        )

    def text(self, text_of: Callable[[str], str]) -> str:
        """Return the text of the machinery below the marker. `text_of`: returns a file's text by the file's
        name.

        Raises:
            CastoffError: a file's conditions are wrong, or it contains a line that would cut the script.
        """
        included = {"launcher": f"launchers/{self.launcher}", "runtime": f"runtimes/{self.runtime}"}
        included |= {name: name for name in _INCLUDED}

        def include(what: str) -> tuple[str, str]:
            name = included[what]
            return name, text_of(name)

        some = Conditions(FEATURES, self.features, None, include)
        functions = {
            function for name in self.parts for function in functions_of(chosen(name, text_of(name), some))
        }
        conditions = msgspec.structs.replace(some, functions=functions)
        texts = {name: chosen(name, text_of(name), conditions) for name in self.parts}
        for name, text in texts.items():
            if re.search(f"^{re.escape(MARK)}", text, re.MULTILINE):
                raise CastoffError(f"blocks/{name}.sh: no line may begin with {MARK}: a script is cut there")
        return "".join([*texts.values(), _LAST])


def machinery(plan: Plan, scheduler: Scheduler) -> Machinery:
    """Choose the machinery that a plan needs under this scheduler."""
    features = _of_scheduler(plan, scheduler) | ({} if plan.driver else _of_launcher(plan.launcher))
    features |= _of_job(plan) | _of_restarts(plan) | _of_container(plan)
    used = frozenset(name for name, applies in features.items() if applies)
    runtime = plan.container.runtime if plan.container else None
    return Machinery(plan.scheduler, plan.launcher, runtime, used, _parts(plan, used))


def _parts(plan: Plan, features: frozenset[str]) -> list[str]:
    here, script = "here" in features, plan.script is not None
    parts: dict[str, object] = {
        "begin": True,
        "parameters": plan.parameters,
        f"schedulers/{plan.scheduler}": True,
        "stopping": True,
        "setup": features
        & {"setup", "snapshot", "teardown", "restart", "hang", "preflight", "notify", *_REQUEUES},
        "teardown": "teardown" in features,
        "fence": "fence" in features,
        "earlier": plan.refers_to,
        "environment": True,
        "container": plan.container,
        f"runtimes/{plan.container and plan.container.runtime}": plan.container,
        "stage": plan.stage,
        "hosts": "hosts" in features,
        "hang": "hang" in features,
        "progress": "judged" in features,
        "signal": features >= {"signal", "here"} and not plan.torchrun,
        "restart": "restart" in features,
        "notify": "notify" in features,
        "rendezvous": not here and not script,
        "preload": plan.preload,
        # a driver does not need the launcher's file
        f"launchers/{plan.launcher}": not plan.driver or plan.stage_start,
        "start": not here and not script,
        "script": script,
        "unstarted": "nodes" in features and not plan.driver,
        "rank": not (here or script) or plan.torchrun,
        "ending": True,
        "together": "together" in features,
        "succession": "together" in features,
    }
    return [name for name, applies in parts.items() if applies]


def _of_launcher(name: str) -> dict[str, object]:
    launcher = LAUNCHERS[name]  # type: ignore[index]
    return {
        "here": launcher.here,
        "survives": launcher.survives_rank_failure,
        "usr1": launcher.ends_by_usr1,
        "mpiexec": launcher.is_mpiexec,
        "fills_nodes": not launcher.reports_node,
    }


def _of_scheduler(plan: Plan, scheduler: Scheduler) -> dict[str, object]:
    deadline = bool(plan.walltime) or scheduler.reports_end_time
    by_ssh = not plan.driver and LAUNCHERS[plan.launcher].reaches_by_ssh
    return {
        "by_ssh": by_ssh,
        "attach": scheduler.attaches_sessions and by_ssh,
        "fence": scheduler.has_queue,
        "attempts": scheduler.has_queue and _has_attempts(plan, scheduler),
        "deadline": deadline,
        "inherit": not scheduler.has_queue and plan.inherit != "all",
        "places": plan.array_indices and not plan.sharing and scheduler.tasks(plan.members) != plan.members,
    }


def _has_attempts(plan: Plan, scheduler: Scheduler) -> bool:
    """Whether the scheduler, or the job itself, may start another attempt."""
    restarts = plan.restart is not None and plan.restart.max
    rerun = "preempted" in plan.requeue_on or (scheduler.reruns_arrays and plan.array_count)
    return bool(plan.requeue_how or restarts or rerun)


def _of_job(plan: Plan) -> dict[str, object]:
    of_castoff, devices = LAUNCHERS[plan.launcher].here, plan.devices
    here = of_castoff and not plan.driver
    many = (plan.ranks or 0) > PER_RANK_FILES
    return {
        "array": plan.sharing.jobs(plan.array_count or 1) > 1 if plan.sharing else plan.array_count,
        "together": plan.sharing,
        "parameters": plan.parameters,
        "members": (plan.array_count or 1) > 1 or plan.array_indices,
        "sparse": plan.array_indices,
        "after": plan.after and plan.requeue_how == "copy",
        # a member that shares a job may have another host than its script
        "nodes": not here and max(plan.nodes, plan.sharing.nodes if plan.sharing else 1) > 1,
        "uneven": len(plan.layout) > 1,
        "groups": not Layout(plan.layout).is_even,
        "distribution": plan.own_distribution,
        "arbitrary": plan.own_distribution == "arbitrary",
        "walltime": plan.walltime,
        "setup": plan.setup or plan.templates,
        "teardown": plan.teardown or plan.site_teardown,
        "snapshot": plan.snapshot,
        "secrets": plan.env_from,
        "notify": plan.notify and plan.notify.hooks,
        "use": plan.sample_use,
        "loader": for_program_alone(plan.env, torchrun=plan.torchrun),
        **{how: plan.requeue_how == how for how in ("requeue", "copy", "chain")},
        "driver": plan.driver,
        "script": plan.script is not None,
        "alone": plan.ranks == 1 and not plan.sharing and not of_castoff and not plan.driver,
        "torchrun": plan.torchrun,
        "preload": plan.preload,
        "per_rank_logs": plan.per_rank_logs,
        "many_ranks": not (here or plan.script or plan.per_rank_logs) and (many or not plan.torchrun),
        "visible": not here and devices.visible,
        "masks": not here and not plan.torchrun and devices.per_rank,
        "devices": not here and not plan.torchrun and devices.step is not None,
        "binds_ranks": plan.cpu_lists
        and plan.bound
        and ((plan.sharing and plan.sharing.per_node > 1) or LAUNCHERS[plan.launcher].bound_by_script),
        "divided": plan.sharing
        and plan.sharing.per_node > 1
        and not (plan.cpu_lists or LAUNCHERS[plan.launcher].divides),
        "taken": plan.sharing
        and plan.sharing.per_node > 1
        and plan.devices_per_rank
        and not (devices.per_rank or LAUNCHERS[plan.launcher].divides),
        "indices": devices.indices,
        "near": devices.near,
        "stage": plan.stage,
        "many_nodes": plan.stage and plan.nodes > _FEW_NODES,
        "activate": any(item.activate for item in plan.stage),
    }


def _of_restarts(plan: Plan) -> dict[str, object]:
    restart = plan.restart
    obeyed = plan.signal and "stop" in plan.requeue_on
    by_requeue = plan.margin is not None or "preempted" in plan.requeue_on or obeyed
    judged = (restart and restart.max) or by_requeue
    return {
        "preflight": plan.preflight is not None,
        "own_checks": plan.preflight and plan.preflight.checks,
        "hosts": plan.each_host and not plan.driver,
        "restart": restart and restart.max,
        "spares": restart and restart.spare_nodes,
        "hang": restart and restart.hang,
        "reported_progress": plan.progress is None and (judged or (restart and restart.hang)),
        "stops": "stop" in plan.requeue_on,
        "expiry": plan.margin is not None,
        "rerun": "preempted" in plan.requeue_on,
        "signal": plan.signal,
        "usr2": plan.signal and plan.signal.name == "USR1",
        "obeyed": obeyed,
        "judged": judged,
        "guessed": by_requeue and plan.progress is None,
    }


def _of_container(plan: Plan) -> dict[str, object]:
    if (container := plan.container) is None:
        return {}
    runtime = RUNTIMES[container.runtime]
    own_libraries = "LD_LIBRARY_PATH" in {*plan.variables, *container.env}
    return {
        "container": True,
        "launcher_enters": runtime.of_launcher,
        "image_file": runtime.image_is_file and not container.staged and container.image.startswith("/"),
        "binds": runtime.binds_run,
        "nvidia": runtime.of_launcher and container.gpus == "nvidia",
        "libraries": own_libraries and runtime.hides_libraries,
        "python": plan.python,
    }


def _comment(title: str, words: list[str]) -> str:
    """Return words as comment lines of a script; empty for no words."""
    text = textwrap.fill(f"{title}: {', '.join(words)}", 118, initial_indent="# ", subsequent_indent="#   ")
    return f"{text}\n" if words else ""
