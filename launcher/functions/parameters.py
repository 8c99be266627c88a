"""The job file's fields as an executor's parameters, and where submitit's names went."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from launcher.document import did_you_mean
from launcher.errors import InvalidInput, Problem
from launcher.site import Site
from launcher.spec import Array, JobSpec, Requeue, program_name
from launcher.structure import fields_of

_REQUEUES = 3
"""How often a function that can go on does so, where the job does not say: submitit's max_num_timeout."""

_INSTEAD = {
    "timeout_min": 'walltime="60m"',
    "time": 'walltime="60m"',
    "tasks_per_node": "ranks_per_node=4",
    "ntasks_per_node": "ranks_per_node=4",
    "cpus_per_task": "cores_per_rank=8, in physical cores",
    "cpus_per_gpu": "cores_per_rank=8, in physical cores of each rank",
    "gpus_per_node": "devices_per_rank=1, of each rank",
    "gpus_per_task": "devices_per_rank=1",
    "num_gpus": "devices_per_rank=1, of each rank",
    "visible_gpus": "devices_per_rank=1, of each rank",
    "gres": "devices_per_rank=1, in the site's own spelling; a type of GPU is the site's gpu_type",
    "mem_gb": 'memory="16G", of each node',
    "mem": 'memory="16G", of each node',
    "mem_per_gpu": 'memory="16G", of each node; or directives={"mem-per-gpu": "16G"}',
    "mem_per_cpu": 'memory="16G", of each node; or directives={"mem-per-cpu": "2G"}',
    "partition": 'queue="debug"',
    "job_name": 'name="sweep"',
    "array_parallelism": 'array={"at_most": 4}',
    "signal_delay_s": 'grace="2m"',
    "dependency": 'after={"afterok": ["preprocess"]}',
    "mail_type": 'mail={"to": "me@example.org", "on": ["end"]}',
    "mail_user": 'mail={"to": "me@example.org", "on": ["end"]}',
    "nodelist": 'directives={"nodelist": "n[1-3]"}',
    "comment": 'directives={"comment": "…"}',
    "wckey": 'directives={"wckey": "…"}; none is given unless you ask for one',
    "additional_parameters": 'directives={"licenses": "ansys:2"}',
    "srun_args": 'start={"args": ["--label"]}',
    "conda_file": 'setup=["conda activate …"]',
    "max_num_timeout": 'requeue={"max": 3}',
    "teardown": "not there: the program's own exit code is the job's; clean up in the function",
    "use_srun": "not there: without srun only one rank starts, and nothing tells it to stop",
    "stderr_to_stdout": "not there: a rank's log always holds both",
    "max_pickle_size_gb": "executor.max_pickle_size_gb, an attribute",
}
"""submitit's names, without the prefix of a cluster, and what to write instead."""


def job_of(fields: Mapping[str, Any]) -> JobSpec:
    """The job of an executor's fields; `command` is the functions' own affair.

    Raises:
        InvalidInput: with every field that is wrong, or that is submitit's.
    """
    known = fields_of(JobSpec)
    problems = [Problem("executor", name, _no_field(name, known)) for name in fields if name not in known]
    chosen = {name: value for name, value in fields.items() if name in known}
    array = chosen.get("array")
    if isinstance(array, Mapping):  # how many there are is known when they are submitted
        chosen["array"] = {"count": 1, **array}
    try:
        spec = JobSpec.of({**chosen, "command": ["function"]})
    except InvalidInput as error:
        raise InvalidInput([*problems, *error.problems]) from error
    if problems:
        raise InvalidInput(problems)
    return spec


def _no_field(name: str, known: Iterable[str]) -> str:
    for prefix in ("", "slurm_", "local_", "pbs_"):
        bare = name.removeprefix(prefix)
        if bare in _INSTEAD:
            return f"is a parameter of submitit; here: {_INSTEAD[bare]}"
        if prefix and bare != name and bare in known:
            return f"is {bare} here, on every site"
    hint = did_you_mean(name, known)
    return f"is no field of a job{hint or '; there are: ' + ', '.join(sorted(known))}"


def fields_of_job(spec: JobSpec) -> dict[str, Any]:
    """The fields of a job as plain data; one that it was given stays, if only with its default."""
    given = spec.source.data if spec.source is not None and isinstance(spec.source.data, dict) else {}
    fields = {name: msgspec.to_builtins(getattr(spec, name)) for name in given if name in fields_of(JobSpec)}
    fields |= msgspec.to_builtins(spec)
    if "requeue" in fields:  # whether its max was given decides, not whether anything of it was
        said = given.get("requeue") or {}
        default = msgspec.to_builtins(Requeue())
        requeue = fields["requeue"].items()
        fields["requeue"] = {name: value for name, value in requeue if name in said or value != default[name]}
    return fields


def for_functions(
    spec: JobSpec, site: Site, functions: list[Callable[..., Any]], count: int, *, requeues_said: bool
) -> JobSpec:
    """The job that runs so many functions: what it does not say follows from them and from this process.

    `requeues_said`: whether it was given `requeue.max`, if only with the default.
    """
    changes: dict[str, Any] = {"array": None}
    if count > 1:
        changes["array"] = Array(count, spec.array.at_most if spec.array else None)
    if spec.name is None and site.defaults.name is None:
        changes["name"] = _common_name(functions)
    images = (spec.container.image, site.defaults.container.image)
    activates = any(item.activate for item in spec.stage)
    if sys.executable and not any((spec.python, site.defaults.python, *images, activates)):
        changes["python"] = sys.executable  # the function was pickled by it
    said = requeues_said or spec.requeue.max or site.defaults.requeue.max
    if not said and any(map(_goes_on, functions)):
        changes["requeue"] = msgspec.structs.replace(spec.requeue, max=_REQUEUES)
    chosen = msgspec.structs.replace(spec, **changes)
    chosen.__dict__.update(spec.__dict__)  # the file that it was read from
    return chosen


def _goes_on(function: Callable[..., Any]) -> bool:
    from launcher.functions.stopping import can_go_on

    return can_go_on(function)


def _common_name(functions: list[Callable[..., Any]]) -> str:
    """A job's name: that of its functions, if they have one in common."""
    names = {_name(function) for function in functions}
    name = names.pop() if len(names) == 1 else ""
    return program_name([name]) if name.isidentifier() else "function"


def _name(function: Any) -> str:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))
