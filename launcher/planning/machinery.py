"""The lower half of a script: those parts of templates/machinery that a plan needs, one below the other.

They are plain shell, and nearly all of it functions. Which they are follows from the scheduler, the launcher
and what the job makes use of; what they work on are the values that the head sets. A part named `nodes/…`
belongs to a program that the script writes for the nodes.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from launcher.errors import CastoffError
from launcher.launchers.commands import LAUNCHERS
from launcher.planning.containers import RUNTIMES
from launcher.ranks import STALE_VARIABLES
from launcher.runs.plan import Plan
from launcher.runs.script import MARK
from launcher.schedulers.registry import scheduler_of

STALE = "stale"
"""The part that is made here: variables that a parent's ranks may have left."""

_VALUE = re.compile(
    r"\bcastoff_(?:read|nodes|ranks|ranks_per_node|full_nodes|launcher_name|device_variable|visible|masks|"
    r"device_step|meeting_host|meeting_names|staged_path|items|image|mounts|runtime|bind_flag|kept|given|python_folder)\b"
)
"""What programs of the nodes read of the head's values, and of what follows from them in the job."""

_FEW_NODES = 32
"""Up to so many, staging reports each."""


class Machinery(NamedTuple):
    """What a script does beside being a job."""

    words: list[str]
    """What it is for: the scheduler, the launcher, and what else the job makes use of."""
    parts: list[str]
    """The parts of the script itself, in order."""
    programs: dict[str, list[str]]
    """Those of each program that it writes for the nodes."""

    @property
    def names(self) -> set[str]:
        """Every part."""
        return {*self.parts, *(name for inner in self.programs.values() for name in inner)}

    def marker(self, replaced: Iterable[str]) -> str:
        """The line above it; `replaced`: the parts of the user's own that are among them."""
        scheduler, launcher, *others = self.words
        words = ", ".join([f"{scheduler} and {launcher}", *others])
        own = ", ".join(sorted(self.names.intersection(replaced)))
        return (
            f"{MARK}for {words}{f'; your own: {own}' if own else ''}: nothing below is about this job ===\n"
        )

    def text(self, texts: Mapping[str, str]) -> str:
        """All that stands below the marker; `texts`: that of each part."""
        for name in sorted(self.names):
            if re.search(f"^{re.escape(MARK)}", texts[name], re.MULTILINE):
                raise CastoffError(f"blocks/{name}.sh: no line may begin with {MARK}: a script is cut there")
        written = [_program(name, inner, texts) for name, inner in self.programs.items()]
        return "".join([*(texts[name] for name in self.parts), *written, "castoff_loaded=1\n"])


def machinery(plan: Plan, known: Container[str]) -> Machinery:
    """What a plan needs; `known`: the parts that there are."""
    launcher = LAUNCHERS[plan.launcher]
    programs: dict[str, Mapping[str, object]] = {
        "rank": {} if launcher.here else _rank(plan),
        "torchrun_rank": _torchrun_rank(plan),
        "container": {} if _in_launcher(plan) else _round(plan),
        "inside": _inside(plan),
        "stage": {"stage": plan.stage},
    }
    inner = {name: [f"nodes/{part}" for part in _used(parts)] for name, parts in programs.items()}
    parts = [name for name in _used(_parts(plan, known)) if name in known]
    found = Machinery([], parts, {name: parts for name, parts in inner.items() if parts})
    return found._replace(words=[plan.scheduler, plan.launcher, *_used(_words(plan, found.names))])


def _used(names: Mapping[str, object]) -> list[str]:
    """Those that apply, in order."""
    return [name for name, applies in names.items() if applies]


def _words(plan: Plan, names: set[str]) -> dict[str, object]:
    """What a job makes use of, as people call it."""
    return {
        "array": plan.array_count,
        "nodes": not LAUNCHERS[plan.launcher].here and plan.nodes > 1,
        "uneven": len(plan.layout) > 1,
        "distribution": plan.own_distribution,
        "walltime": "timer" in names,
        "inherit": "inherit" in names,
        "snapshot": plan.snapshot,
        "env_from": plan.env_from,
        "visible devices": "nodes/visible" in names,
        "masks": "nodes/masks" in names,
        "devices": "nodes/device" in names,
        plan.requeue_how or "": plan.requeue_how,
        "torchrun": plan.torchrun,
        "node logs": "nodes/buffered_log" in names,
        "stage": plan.stage,
        plan.container.runtime if plan.container else "": plan.container,
    }


def stale() -> str:
    """The text of the part `STALE`."""
    names = textwrap.fill(" ".join(STALE_VARIABLES), 110, initial_indent="  ", subsequent_indent="  ")
    return f"castoff_stale=( # variables that launchers set in their ranks\n{names}\n)\n"


def _program(name: str, inner: list[str], texts: Mapping[str, str]) -> str:
    """What writes a program for the nodes, with the values that it reads."""
    text = "".join(texts[part] for part in inner)
    end = f"CASTOFF_{name.upper()}"
    for part in inner:
        if end in texts[part].splitlines():
            raise CastoffError(f"blocks/{part}.sh: no line may be {end}: {name}.sh is cut there")
    words = " ".join(["castoff_write", f"{name}.sh", *dict.fromkeys(_VALUE.findall(text))])
    words = " \\\n".join(textwrap.wrap(words, 110, initial_indent="  ", subsequent_indent="    "))
    return (
        f"castoff_write_{name}() {{\n{words}\n}}\n"
        f"castoff_text_{name}() {{\n  cat <<'{end}'\n{text}{end}\n}}\n"
        f"readonly -f castoff_write_{name} castoff_text_{name}\n"
    )


def _parts(plan: Plan, known: Container[str]) -> dict[str, object]:
    """The parts of the script itself; of those under a scheduler's name there are some for it alone."""
    launcher, own = LAUNCHERS[plan.launcher], plan.scheduler
    here, container, how = launcher.here, plan.container, plan.requeue_how
    runtime, image = (RUNTIMES[container.runtime], container.image) if container else (None, "")
    knows_end = f"{own}/end_time" in known
    ends = knows_end or plan.walltime
    member = "waiting_member" if plan.after else "member"
    layout = "uneven" if len(plan.layout) > 1 else "even"
    variant = f"launchers/{plan.launcher}_{plan.own_distribution or layout}"
    several = not here and plan.nodes > 1
    by_timer = ends and not scheduler_of(own).signals_before_walltime
    again = how in ("requeue", "copy")
    walltime = ends and f"{own}/walltime" in known
    return {
        "begin": True,
        f"{own}/scheduler": True,
        f"{own}/{'array' if plan.array_count else 'job'}": True,
        "first_attempt": how,
        "chain": how == "chain",
        f"{own}/{how}": how,
        f"{own}/copy_of_{member if (plan.array_count or 1) > 1 else 'job'}": how == "copy",
        "pause": again or by_timer or walltime,
        "requeue": again,
        f"{own}/end_time": True,
        "end_time": plan.walltime and not knows_end,
        "timer": by_timer,
        f"{own}/walltime": walltime,
        "deadline" if ends else "no_deadline": True,
        "signals": True,
        "terminate_by_usr1" if launcher.ends_by_usr1 else "terminate": True,
        "inherit": here and plan.inherit != "all",
        "snapshot": plan.snapshot,
        "setup": True,
        "environment": True,
        STALE: True,
        "secrets": plan.env_from,
        variant: not here,
        f"launchers/{plan.launcher}": not here and variant not in known,
        "rendezvous": not here,
        "rendezvous_hosts" if several else "rendezvous_here": not here,
        "host_of_rank_0": several and plan.own_distribution != "arbitrary",
        "look": not here or plan.torchrun or plan.stage or container,
        "rank_logs" if plan.per_rank_logs else "node_logs": not here,
        "one_a_node" if plan.torchrun else "ranks": not here,
        "torchrun": plan.torchrun,
        "waiting": True,
        "start_here" if here else "start": True,
        "watch": launcher.survives_rank_failure,
        "start_timeout": several,
        f"unstarted_by_{'number' if plan.own_distribution else 'host'}": several,
        f"start_advice/{plan.launcher}": several,
        "other_mpiexec": launcher.is_mpiexec,
        "containers/container": container,
        "containers/image_file": runtime and runtime.image_is_file and image.startswith("/"),
        "containers/binds": runtime and runtime.binds_run,
        f"containers/{container and container.runtime}": container,
        "containers/pyxis_nvidia": _in_launcher(plan) and container and container.gpus == "nvidia",
        "containers/program": container and not _in_launcher(plan),
        "containers/here": container and here,
        "stage": plan.stage,
        "stage_here": plan.stage and here,
        "activate_here": here and _activates(plan) and not container,
        "stage_nodes_of_pyxis" if _in_launcher(plan) else "stage_nodes": plan.stage and not here,
        "stage_each" if plan.nodes <= _FEW_NODES else "stage_summary": plan.stage,
        "ending": True,
    }


def _activates(plan: Plan) -> bool:
    return any(item.activate for item in plan.stage)


def _in_launcher(plan: Plan) -> bool:
    """Whether the launcher itself starts each rank in its container."""
    return plan.container is not None and RUNTIMES[plan.container.runtime].of_launcher


def _rank(plan: Plan) -> dict[str, object]:
    """rank.sh: who each rank is; it runs once for each."""
    launcher, devices = LAUNCHERS[plan.launcher], plan.devices
    torchrun, own_log = plan.torchrun, plan.per_rank_logs
    return {
        "refuse": True,
        f"launchers/{launcher.tells}": True,
        "one_a_node" if torchrun else "blocks": not launcher.tells_node,
        "layout_of_srun" if plan.own_distribution else "layout": True,
        "rendezvous": plan.nodes > 1,
        "visible": devices.visible,
        "path": _activates(plan) and not plan.container,
        "torchrun" if torchrun else "ranks": True,
        "masks": devices.per_rank and not torchrun,
        "device": devices.step is not None and not torchrun,
        "containers/in_pyxis" if _in_launcher(plan) else "containers/enter_container": plan.container,
        "node_log": torchrun,
        "rank_log": own_log,
        "buffered_log_of_pyxis" if _in_launcher(plan) else "buffered_log": not torchrun and not own_log,
        "started": plan.nodes > 1,
        "rank": True,
        "usr1_ends" if launcher.ends_by_usr1 else "usr1": True,
        "program": True,
        "torchrun_end" if torchrun else "rank_end": True,
        "unstage": plan.stage,
        "exit": True,
    }


def _torchrun_rank(plan: Plan) -> dict[str, object]:
    """torchrun_rank.sh: round each rank that torchrun starts."""
    log = "log_of_first_rank" if LAUNCHERS[plan.launcher].here else "log_of_node"
    return dict.fromkeys((log, "torchrun_rank", "program", "torchrun_rank_end", "exit"), plan.torchrun)


def _round(plan: Plan) -> dict[str, object]:
    """container.sh: starts the runtime."""
    runtime = plan.container and plan.container.runtime
    return {
        "containers/give": runtime,
        f"containers/{runtime}": runtime,
        "containers/binds": runtime and RUNTIMES[runtime].binds_run,
        "containers/run": runtime,
    }


def _inside(plan: Plan) -> dict[str, object]:
    """inside.sh: the first that runs in a container."""
    if (container := plan.container) is None:
        return {}
    own_libraries = "LD_LIBRARY_PATH" in {*plan.env, *container.env}
    return {
        "containers/inside": True,
        "containers/libraries": own_libraries and RUNTIMES[container.runtime].hides_libraries,
        "containers/python": plan.python,
        "path": _activates(plan),
        "containers/go_in": True,
    }
