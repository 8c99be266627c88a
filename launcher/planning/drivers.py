"""Programs that start their own processes: a driver, a batch script, or torchrun and similar
programs. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from castoff.launcher.config.batch_script import OF_RANKS, interpreter
from castoff.launcher.config.defaults import EffectiveJob
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.launchers.foreign.names import LAUNCHERS
from castoff.launcher.planning.containers import RUNTIMES
from castoff.launcher.planning.limits import Target
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.schedulers.dialect import says_its_size


def driver_problems(spec: JobSpec, *, function: bool) -> Iterator[tuple[str, str]]:
    """Yield why a job cannot have the driver that it requests."""
    if not spec.launcher.driver:
        return
    if function and spec.script is not None:
        yield "script", "excludes the Python function that this job runs: drop it"
    elif function:
        yield "launcher.driver", "is for a command, and this job runs a Python function: drop it"
    runtime = spec.container.runtime if spec.container.image is not None else None
    if runtime is not None and RUNTIMES[runtime].of_launcher:
        others = ", ".join(name for name, other in RUNTIMES.items() if not other.of_launcher)
        without = "but srun makes its container, and a driver starts without srun"
        yield "container.runtime", f"is {runtime}, {without}: use another ({others}), or drop launcher.driver"


def devices(spec: JobSpec, site: Site, shared: Target | None) -> int:
    """Return the number of each node's devices that a driver gets: as many as a job can have, unless the job
    sets another number.
    """
    if spec.devices_per_rank is not None:
        return spec.devices_per_rank
    of_node = site.node.device_count if site.node else 0
    return min(of_node, shared.max_devices) if shared else of_node


DELIMITER = "CASTOFF_SCRIPT"


def as_driver(agreed: EffectiveJob, given: JobSpec, scheduler: Scheduler) -> EffectiveJob:
    """Return the job with its script's interpreter as the command. `given`: the job without its site's
    defaults.

    The site's settings for ranks do not apply to a script. A size in the scheduler's own directives replaces
    the size in the fields, which are for other schedulers.
    """
    if given.script is None:
        return agreed
    own = {name: getattr(given, name) for name in OF_RANKS}
    launcher = msgspec.structs.replace(given.launcher, driver=True)
    as_one = {"launcher": launcher, "command": interpreter(given.script), "name": given.name or "script"}
    spec = msgspec.structs.replace(agreed.spec, **own | as_one, env=dict(given.env))
    if scheduler.dialect and says_its_size(spec, scheduler.dialect, scheduler.name):
        spec = msgspec.structs.replace(
            spec, cores_per_rank=None, devices_per_rank=0, device_type=None, memory=None, exclusive=None
        )
    shell = " ".join(word for word in agreed.site.shell.split() if word not in ("-l", "--login"))
    site = msgspec.structs.replace(agreed.site, env={}, teardown=[], shell=shell)
    return EffectiveJob(spec, site, [])


def delimiter(script: str) -> str:
    """Return a word that is not a line of the script, so that it can end a here-document that contains the
    script.
    """
    lines, word = {*script.split("\n")}, DELIMITER
    while word in lines:
        word += "_"
    return word


_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}


def node_launcher(command: Sequence[str]) -> str | None:
    """Return the program in a command that starts a node's ranks itself: torchrun, accelerate or deepspeed;
    None: there is none.
    """
    name = PurePosixPath(command[0]).name if command else ""
    if name in ("torchrun", "deepspeed") or (name == "accelerate" and command[1:2] == ["launch"]):
        return name
    if re.fullmatch(r"python[0-9.]*", name) and "-m" in command[:-1]:
        return _MODULES.get(command[command.index("-m") + 1])
    return None


def node_launcher_problems(spec: JobSpec, most: int) -> Iterator[tuple[str, str]]:
    """Yield why a job cannot run a program that starts ranks itself. `most`: the number of ranks on the
    fullest node.
    """
    if spec.launcher.driver:
        return
    program = PurePosixPath(spec.command[0]).name if spec.command else ""
    # Debian's are called mpiexec.mpich and mpirun.openmpi, too.
    if most > 1 and program.partition(".")[0] in LAUNCHERS:
        fix = f"leave {program} and its options out of command, or use `launcher: {{driver: true}}`"
        yield (
            "command",
            f"starts {program} {most} times on a node, once per rank, and each starts ranks itself: {fix}",
        )
    name = node_launcher(spec.command)
    if name is None:
        return
    without = "set `launcher: {torchrun: true}` and leave torchrun and its options out of command"
    if spec.launcher.torchrun:
        yield "command", f"starts {name}, which launcher.torchrun starts already: leave it out of command"
    elif most > 1:
        fix = f"{without}, or set ranks_per_node: 1" if name == "torchrun" else "set ranks_per_node: 1"
        yield (
            "command",
            f"starts {name} {most} times on a node, once per rank, and each starts ranks itself: {fix}",
        )
