"""The lower half of a script: those parts of templates/machinery that a plan needs, one below the other.

They are plain shell, and nearly all of it functions. Which they are follows from the scheduler, the starter
and what the job makes use of; what they work on are the values that the head sets. A part named `nodes/…`
belongs to a program that the script writes for the nodes.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from launcher.errors import CastoffError
from launcher.planning.containers import RUNTIMES
from launcher.ranks import STALE_VARIABLES
from launcher.runs.plan import Plan
from launcher.runs.script import MARK
from launcher.schedulers.registry import scheduler_of
from launcher.starters.registry import STARTERS

STALE = "stale"
"""The part that is made here: what ranks of a parent may have been told."""

_VALUE = re.compile(
    r"\bcastoff_(?:nodes|ranks|ranks_per_node|full_nodes|starter_name|device_variable|visible|masks|"
    r"device_step|staged_path|items|image|mounts|runtime|bind_flag|kept|given|python_folder)\b"
)
"""What programs of the nodes read of the head's values, and of what follows from them in the job."""

_FEW_NODES = 32
"""Up to so many, staging tells of each."""


class Machinery(NamedTuple):
    """What a script does beside being a job."""

    words: list[str]
    """What it is for: the scheduler, the starter, and what else the job makes use of."""
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
        scheduler, starter, *others = self.words
        words = ", ".join([f"{scheduler} and {starter}", *others])
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
    found = Machinery([], list(_parts(plan, known)), dict(_programs(plan)))
    return found._replace(words=[plan.scheduler, plan.starter, *_words(plan, found.names)])


def _words(plan: Plan, names: set[str]) -> list[str]:
    """What a job makes use of, as people call it."""
    used: dict[str, object] = {
        "array": plan.array_count,
        "nodes": "look" in names,
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
    return [word for word, is_used in used.items() if is_used]


def stale() -> str:
    """The text of the part `STALE`."""
    names = textwrap.fill(" ".join(STALE_VARIABLES), 110, initial_indent="  ", subsequent_indent="  ")
    return f"castoff_stale=( # what starters tell their ranks\n{names}\n)\n"


def _program(name: str, inner: list[str], texts: Mapping[str, str]) -> str:
    """What writes a program for the nodes, with the values that it reads."""
    text = "".join(texts[part] for part in inner)
    end = f"CASTOFF_{name.upper()}"
    words = " ".join(["castoff_write", f"{name}.sh", *dict.fromkeys(_VALUE.findall(text))])
    words = " \\\n".join(textwrap.wrap(words, 110, initial_indent="  ", subsequent_indent="    "))
    return (
        f"castoff_write_{name}() {{\n{words}\n}}\n"
        f"castoff_text_{name}() {{\n  cat <<'{end}'\n{text}{end}\n}}\n"
        f"readonly -f castoff_write_{name} castoff_text_{name}\n"
    )


def _parts(plan: Plan, known: Container[str]) -> Iterator[str]:
    """The parts of the script itself."""
    starter, scheduler = STARTERS[plan.starter], plan.scheduler
    yield from ("begin", f"{scheduler}/scheduler")
    yield from _if_known(known, f"{scheduler}/{'array' if plan.array_count else 'job'}")
    yield from _going_on(plan, known)
    if end_is_told := f"{scheduler}/end_time" in known:
        yield f"{scheduler}/end_time"
    elif plan.walltime:
        yield "end_time"
    if (end_is_told or plan.walltime) and not scheduler_of(scheduler).warns:
        yield "timer"
    yield "deadline" if end_is_told or plan.walltime else "no_deadline"
    yield from ("signals", "terminate_by_usr1" if starter.ends_by_usr1 else "terminate")
    if starter.here and plan.inherit != "all":
        yield "inherit"
    if plan.snapshot:
        yield "snapshot"
    yield from ("environment", STALE)
    if plan.env_from:
        yield "secrets"
    yield from _starting(plan, known)
    if plan.container:
        yield from _container(plan)
    if plan.stage:
        yield from _stage(plan)
    yield "ending"


def _if_known(known: Container[str], *names: str) -> list[str]:
    return [name for name in names if name in known]


def _going_on(plan: Plan, known: Container[str]) -> Iterator[str]:
    """How it starts again after it stopped early."""
    if plan.requeue_how is None:
        return
    yield "first_attempt"
    if plan.requeue_how == "chain":
        yield "chain"
        return
    yield f"{plan.scheduler}/{plan.requeue_how}"
    if plan.requeue_how == "copy":
        alone = (plan.array_count or 1) == 1
        what = "job" if alone else "waiting_member" if plan.after else "member"
        yield from _if_known(known, f"{plan.scheduler}/copy_of_{what}")
    yield "requeue"


def _starting(plan: Plan, known: Container[str]) -> Iterator[str]:
    starter = STARTERS[plan.starter]
    if not starter.here:
        yield "rendezvous"
        variant = "own" if plan.own_distribution else "uneven" if len(plan.layout) > 1 else "even"
        yield (_if_known(known, f"starters/{plan.starter}_{variant}") or [f"starters/{plan.starter}"])[0]
        if plan.nodes > 1:
            yield "look"
        yield "rank_logs" if plan.per_rank_logs else "node_logs"
        yield "ranks" if not plan.torchrun else "one_a_node"
    if plan.torchrun:
        yield "torchrun"
    yield from ("waiting", "start_here" if starter.here else "start")
    if starter.goes_on:
        yield "watch"
    if starter.is_mpiexec:
        yield "other_mpiexec"


def _container(plan: Plan) -> Iterator[str]:
    container = plan.container
    assert container is not None
    runtime = RUNTIMES[container.runtime]
    yield "containers/container"
    if container.image.startswith("/") and runtime.image_is_file:
        yield "containers/image_file"
    if runtime.binds_run:
        yield "containers/binds"
    yield f"containers/{container.runtime}"
    if runtime.of_starter:
        if container.gpus == "nvidia":
            yield f"containers/{container.runtime}_nvidia"
        return
    yield "containers/program"
    if STARTERS[plan.starter].here:
        yield "containers/here"


def _stage(plan: Plan) -> Iterator[str]:
    yield "stage"
    if STARTERS[plan.starter].here:
        yield "stage_here"
        if _activates(plan) and not plan.container:
            yield "activate_here"
    else:
        yield "stage_nodes_of_pyxis" if _around_ranks(plan) else "stage_nodes"
    yield "stage_each" if plan.nodes <= _FEW_NODES else "stage_summary"


def _activates(plan: Plan) -> bool:
    return any(item.activate for item in plan.stage)


def _around_ranks(plan: Plan) -> bool:
    """Whether the starter itself starts each rank in its container."""
    return plan.container is not None and RUNTIMES[plan.container.runtime].of_starter


def _programs(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """The programs for the nodes, with their parts."""
    starter = STARTERS[plan.starter]
    if not starter.here:
        yield "rank", [f"nodes/{name}" for name in _rank(plan)]
    if plan.torchrun:
        log = "log_of_first_rank" if starter.here else "log_of_node"
        yield (
            "torchrun_rank",
            [f"nodes/{name}" for name in (log, "torchrun_rank", "program", "torchrun_rank_end", "exit")],
        )
    if plan.container:
        if not _around_ranks(plan):
            yield "container", [f"nodes/containers/{name}" for name in _round(plan)]
        yield "inside", [f"nodes/{name}" for name in _inside(plan)]
    if plan.stage:
        yield "stage", ["nodes/stage"]


def _rank(plan: Plan) -> Iterator[str]:
    """rank.sh: who each rank is; it runs once for each."""
    starter = STARTERS[plan.starter]
    yield from ("refuse", f"starters/{starter.tells}")
    if not starter.tells_node:
        yield "one_a_node" if plan.torchrun else "blocks"
    yield "layout_of_srun" if plan.own_distribution else "layout"
    if plan.devices.visible:
        yield "visible"
    if _activates(plan) and not plan.container:
        yield "path"
    if plan.torchrun:
        yield "torchrun"
    else:
        yield "ranks"
        if plan.devices.per_rank:
            yield "masks"
        if plan.devices.step is not None:
            yield "device"
    if plan.container:
        yield "containers/in_pyxis" if _around_ranks(plan) else "containers/enter_container"
    if plan.torchrun:
        yield "node_log"
    elif plan.per_rank_logs:
        yield "rank_log"
    else:
        yield "buffered_log_of_pyxis" if _around_ranks(plan) else "buffered_log"
    yield from ("rank", "usr1_ends" if starter.ends_by_usr1 else "usr1", "program")
    yield "torchrun_end" if plan.torchrun else "rank_end"
    if plan.stage:
        yield "unstage"
    yield "exit"


def _round(plan: Plan) -> Iterator[str]:
    """container.sh: starts the runtime."""
    assert plan.container is not None
    yield from ("give", plan.container.runtime)
    if RUNTIMES[plan.container.runtime].binds_run:
        yield "binds"
    yield "run"


def _inside(plan: Plan) -> Iterator[str]:
    """inside.sh: the first that runs in a container."""
    container = plan.container
    assert container is not None
    yield "containers/inside"
    if RUNTIMES[container.runtime].hides_libraries and "LD_LIBRARY_PATH" in {*plan.env, *container.env}:
        yield "containers/libraries"
    if plan.python:
        yield "containers/python"
    if _activates(plan):
        yield "path"
    yield "containers/go_in"
