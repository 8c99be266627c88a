"""The job file's fields as an executor's parameters, and where submitit's names went."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from launcher.config.document import did_you_mean
from launcher.config.job import Array, JobSpec, Requeue, program_name
from launcher.config.site import Site
from launcher.config.structure import fields_of
from launcher.config.synonyms import OF_JOBS, in_words
from launcher.errors import InvalidInput, Problem
from launcher.executors.stopping import can_go_on

_REQUEUES = 3
"""How often a function that can go on does so, where the job does not say: submitit's max_num_timeout."""


def job_of(fields: Mapping[str, Any], prefix: str = "") -> JobSpec:
    """The job of an executor's fields; `command` is the functions' own affair.

    `prefix`: what stands before a field's name where they were given.

    Raises:
        InvalidInput: with every field that is wrong, or that is submitit's.
    """
    known = fields_of(JobSpec)
    problems = [
        Problem("executor", name, _no_field(name, value, known, prefix))
        for name, value in fields.items()
        if name not in known
    ]
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


def _no_field(name: str, value: Any, known: Iterable[str], own_prefix: str) -> str:
    def written(path: str, value: Any) -> str:
        return own_prefix + _in_python(path, value)

    for prefix in ("", "slurm_", "local_", "pbs_"):
        bare = name.removeprefix(prefix)
        if prefix and bare != name and bare in known:
            return f"is {bare} here, on every site"
        if bare == "max_pickle_size_gb":
            return "is an attribute here: executor.max_pickle_size_gb"
        if instead := OF_JOBS.find(bare, value):
            return f"is no field of a job; here: {in_words(instead, written)}"
    hint = did_you_mean(name, known)
    return f"is no field of a job{hint or '; there are: ' + ', '.join(sorted(known))}"


def _in_python(path: str, value: Any) -> str:
    """`array={"at_most": 4}`, of `array.at_most` and 4."""
    outer, *inner = path.split(".")
    for key in reversed(inner):
        value = {key: value}
    return f"{outer}={_literal(value)}"


def _literal(value: Any) -> str:
    """A value in Python's words, its texts in the double quotes that the documents have."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(name)}: {_literal(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


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
    if not said and any(map(can_go_on, functions)):
        changes["requeue"] = msgspec.structs.replace(spec.requeue, max=_REQUEUES)
    chosen = msgspec.structs.replace(spec, **changes)
    chosen.__dict__.update(spec.__dict__)  # the file that it was read from
    return chosen


def _common_name(functions: list[Callable[..., Any]]) -> str:
    """A job's name: that of its functions, if they have one in common."""
    names = {_name(function) for function in functions}
    name = names.pop() if len(names) == 1 else ""
    return program_name([name]) if name.isidentifier() else "function"


def _name(function: Any) -> str:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _minutes(value: Any) -> Any:
    return f"{value}m" if isinstance(value, int) else value


def _memory(value: Any) -> Any:
    """A size for so many GB, which is what submitit calls 1024³ bytes."""
    if isinstance(value, float):
        return f"{round(value * 1024)}M"
    return f"{value}G" if isinstance(value, int) else value


_SHARED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "tasks_per_node": ("ranks_per_node", lambda value: value),
    "cpus_per_task": ("cores_per_rank", lambda value: value),
    "timeout_min": ("walltime", _minutes),
    "mem_gb": ("memory", _memory),
}
"""submitit's parameters that all executors share: the fields that they are, and how their values are said."""


class AnyName(set[str]):
    """The parameters that AutoExecutor lets through to an executor: all, so that it says what is wrong.

    Yet none to whoever goes through them: a name without a prefix, `account` say, AutoExecutor takes for
    that of the last executor that lists it, and it has to remain Slurm's.
    """

    def __contains__(self, name: object) -> bool:
        return True


def translated(
    given: Mapping[str, Any], before: Mapping[str, Any], own_words: Collection[str]
) -> dict[str, Any]:
    """Fields of the job file for submitit's parameters; what is none of these stays as it is.

    `before`: the fields until now. `own_words`: the scheduler's own directives. What is given for it alone
    wins over what all executors share.
    """
    fields: dict[str, Any] = {}
    resources = {}
    own = {}
    for name, value in given.items():
        if name in _SHARED:
            field, words = _SHARED[name]
            fields[field] = words(value)
        elif name == "time":
            own["walltime"] = _minutes(value)
        elif name in own_words and name not in fields_of(JobSpec):
            resources[name] = value
        elif name != "stderr_to_stdout":  # a rank's log always holds both
            own[name] = value
    fields |= own
    if resources:
        fields["directives"] = {**(own.get("directives", before.get("directives")) or {}), **resources}
    return fields


def with_tasks(spec: JobSpec, site: Site, gpus_per_node: int | None) -> JobSpec:
    """A job with submitit's default, one task on each node, and the node's GPUs dealt out to its tasks.

    Raises:
        InvalidInput: the GPUs cannot be dealt out.
    """
    changes: dict[str, Any] = {}
    ranks = spec.ranks_per_node
    if spec.ranks is None and ranks is None:
        ranks = site.defaults.ranks_per_node
        if ranks is None and site.defaults.ranks is None:
            ranks = changes["ranks_per_node"] = 1
    if gpus_per_node is not None and spec.devices_per_rank is None:
        if ranks is None or gpus_per_node % ranks:
            tasks = "ranks, which need not be as many on each node" if ranks is None else f"{ranks} tasks"
            message = (
                f"is {gpus_per_node}, for {tasks}: it must be a multiple of tasks_per_node, as each has as "
                "many; pbs_devices_per_rank says how many that are"
            )
            raise InvalidInput([Problem("executor", "gpus_per_node", message)])
        changes["devices_per_rank"] = gpus_per_node // ranks
    changed = msgspec.structs.replace(spec, **changes)
    changed.__dict__.update(spec.__dict__)  # the file that it was read from
    return changed
