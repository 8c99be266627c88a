"""An executor's parameters: the fields of a job file, and submitit's names for some of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Array
from castoff.launcher.config.program_name import program_name
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, InvalidInput, Problem
from castoff.launcher.executors.stopping import can_resume
from castoff.launcher.text.python_words import speaks_python

_REQUEUES = 3
"""Default limit of how often a function is resumed, the same as submitit's max_num_timeout."""


@speaks_python()
def job_of(fields: Mapping[str, Any]) -> JobSpec:
    """The job with an executor's fields; the command follows later from the functions.

    Raises:
        InvalidInput: with every invalid field, also those under submitit's names.
    """
    array = fields.get("array")
    if isinstance(array, Mapping):  # their number is the number of submitted functions
        for name in ("indices", "parameters", "commands"):
            if array.get(name) is not None:
                message = "is for commands: functions are numbered from 0 in the order of submission; drop it"
                raise InvalidInput([Problem("executor", f"array.{name}", message)])
        array = {"count": 1, **array}
    return JobSpec.of({**fields, "array": array, "command": ["function"]})


def for_functions(spec: JobSpec, site: Site, functions: list[Callable[..., Any]]) -> JobSpec:
    """The job that runs these functions. Fields that it does not set are derived from the functions and this
    process.
    """
    changes: dict[str, Any] = {"array": None}
    if len(functions) > 1:
        given = spec.array or Array()
        changes["array"] = msgspec.structs.replace(given, count=len(functions))
    if spec.name is None and site.defaults.name is None:
        changes["name"] = _common_name(functions)
    images = (spec.container.image, site.defaults.container.image)
    activates = any(item.activate for item in spec.stage)
    if sys.executable and not any((spec.python, site.defaults.python, *images, activates)):
        changes["python"] = sys.executable  # the Python that unpickles the function must be this one
    if spec.requeue.max is site.defaults.requeue.max is None and any(map(can_resume, functions)):
        changes["requeue"] = msgspec.structs.replace(spec.requeue, max=_REQUEUES)
    return spec.changed(**changes)


def _common_name(functions: list[Callable[..., Any]]) -> str:
    """The name of a job: that of its functions if all have the same, else "function"."""
    names = {_name(function) for function in functions}
    name = names.pop() if len(names) == 1 else ""
    return program_name([name]) if name.isidentifier() else "function"


def _name(function: Any) -> str:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


class AnyName(set[str]):
    """A set that contains every name, so that AutoExecutor passes all parameters to the executor, which
    checks them.

    Iterating over it yields nothing: AutoExecutor takes a name without a prefix, such as `account`, for a
    parameter of the last executor that lists it, which must remain Slurm's.
    """

    def __contains__(self, name: object) -> bool:
        return True


def translated(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The job's fields for parameters that are named as in all of submitit's executors."""
    renamed = {"tasks_per_node": "ranks_per_node", "cpus_per_task": "cores_per_rank"}
    fields = {renamed.get(name, name): value for name, value in parameters.items()}
    fields.pop("stderr_to_stdout", None)  # a rank's log always holds both streams
    if (minutes := fields.pop("timeout_min", None)) is not None:
        fields.setdefault("walltime", f"{minutes}m")
    if (size := fields.pop("mem_gb", None)) is not None:
        fields.setdefault("memory", f"{size}G" if isinstance(size, int) else f"{round(size * 1024)}M")
    return fields


def with_tasks(spec: JobSpec, gpus_per_node: int | None) -> JobSpec:
    """A job with submitit's default of one task per node, and the node's GPUs divided among the tasks."""
    tasks = spec.ranks_per_node or (1 if spec.ranks is None else None)
    devices = spec.devices_per_rank
    if gpus_per_node is not None and devices is None:
        if tasks is None or gpus_per_node % tasks:
            number = tasks or "which is not set"
            message = f"is {gpus_per_node}, but must be a multiple of the tasks per node, {number}"
            raise InvalidInput([Problem("executor", "gpus_per_node", message)])
        devices = gpus_per_node // tasks
    return spec.changed(ranks_per_node=tasks, devices_per_rank=devices)


def check_arguments(spec: object, site: object, folder: object) -> None:
    """Check the arguments of `executor`, since users often pass those of submitit's executors.

    Raises:
        CastoffError: an argument has the wrong type: submitit's executors take a folder first.
    """
    if spec is not None and not isinstance(spec, (JobSpec, Mapping)):
        hint = ""
        if isinstance(spec, (str, Path)):
            is_file = str(spec).endswith((".yaml", ".yml"))
            hint = f"; write JobSpec.load({str(spec)!r})" if is_file else f"; write folder={str(spec)!r}"
        takes = "takes a JobSpec or fields of a job file, as in {'walltime': '10m'}"
        raise CastoffError(f"executor: spec is {spec!r}, but {takes}{hint}")
    if site is not None and not isinstance(site, (str, Site)):
        raise CastoffError(f"executor: site is {site!r}, but takes a Site or a site's name, as in 'slurm'")
    if not isinstance(folder, (str, Path)):
        raise CastoffError(
            f"executor: folder is {folder!r}, but takes the path of a folder for run directories"
        )
