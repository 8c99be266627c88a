"""submitit's own parameters as fields of a job file: what AutoExecutor hands to `PbsExecutor`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from launcher.config.job import JobSpec
from launcher.config.site import Site
from launcher.config.structure import fields_of
from launcher.errors import InvalidInput, Problem

_RENAMED = {"tasks_per_node": "ranks_per_node", "cpus_per_task": "cores_per_rank"}


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
        if name in _RENAMED:
            fields[_RENAMED[name]] = value
        elif name == "timeout_min":
            fields["walltime"] = _minutes(value)
        elif name == "mem_gb":
            fields["memory"] = _memory(value)
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


def _minutes(value: Any) -> Any:
    return f"{value}m" if isinstance(value, int) else value


def _memory(value: Any) -> Any:
    """A size for so many GB, which is what submitit calls 1024³ bytes."""
    if isinstance(value, float):
        return f"{round(value * 1024)}M"
    return f"{value}G" if isinstance(value, int) else value
