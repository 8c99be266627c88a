"""What `directives:` of a job file or a profile may hold, and which of it applies to a scheduler. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from launcher.document import did_you_mean
from launcher.errors import shown
from launcher.quoting import pbs_directive, slurm_directive, yaml_word
from launcher.site import Site, Values
from launcher.spec import SCHEDULERS, Directive, Directives, JobSpec

Given: TypeAlias = "Mapping[str, Directive | dict[str, Directive]]"

PBS_WORDS = {"filesystems", "select", "place", "walltime", "ncpus", "mpiprocs", "ngpus"}
"""PBS resources that no option of sbatch is called."""

_SLURM_WORDS = {
    *("account", "array", "comment", "constraint", "cpus-per-task", "dependency", "error", "exclude"),
    *("exclusive", "export", "gpu-bind", "gpus", "gpus-per-node", "gpus-per-task", "gres", "job-name"),
    *("licenses", "mail-type", "mail-user", "mem-per-cpu", "mem-per-gpu", "network", "nodelist"),
    *("no-requeue", "ntasks", "ntasks-per-node", "open-mode", "output", "partition", "qos", "requeue"),
    *("reservation", "signal", "threads-per-core", "time", "wckey"),
}
"""Options of sbatch that no resource of PBS is called."""

_PBS_IN_SELECT = {
    "nodes": "nodes",
    "ncpus": "cores_per_rank",
    "mpiprocs": "ranks_per_node",
    "ngpus": "devices_per_rank",
    "mem": "memory",
}
"""Resources of a chunk: qsub refuses them as resources of the job beside a select."""


class _Rules(NamedTuple):
    """What a scheduler's directives may be."""

    owned: dict[str, str]
    """Those that castoff decides from a field, because the rest of the script depends on it."""
    needed: dict[str, str]
    """Those that may be changed but not removed, and why."""
    of_others: dict[str, str]
    """Names that are another scheduler's, and whose."""
    misplaced: Callable[[str], str | None]
    """What is wrong with a name whatever its value."""
    line: Callable[[str, str | bool], str]
    """How it is written into a script."""


def _misplaced_on_slurm(name: str) -> str | None:
    return "is a short flag; write the long one, as in constraint for C" if len(name) == 1 else None


def _misplaced_on_pbs(name: str) -> str | None:
    if name == "l":
        return "holds resources; write each by its own name, as in directives: {place: scatter}"
    if name in _PBS_IN_SELECT:
        return f"cannot stand beside the select that castoff writes; set {_PBS_IN_SELECT[name]} instead"
    return None


_RULES = {
    "slurm": _Rules(
        owned={
            "nodes": "nodes",
            "ntasks": "ranks",
            "ntasks-per-node": "ranks_per_node",
            "cpus-per-task": "cores_per_rank",
            "array": "array",
            "dependency": "after",
            "time": "walltime",
            "job-name": "name",
            "export": "inherit",
            "requeue": "requeue.max",
            "no-requeue": "requeue.max",
        },
        needed={
            "output": "logs are found through it",
            "open-mode": "a requeued job would overwrite its first log",
            "signal": "the job could not stop before its walltime",
            "requeue": "requeue.max asks for it",
            "no-requeue": "Slurm would start a failed node's job again without castoff's count",
        },
        of_others=dict.fromkeys(PBS_WORDS, "pbs"),
        misplaced=_misplaced_on_slurm,
        line=slurm_directive,
    ),
    "pbs": _Rules(
        owned={
            "N": "name",
            "select": "nodes, ranks_per_node, cores_per_rank, devices_per_rank and memory",
            "walltime": "walltime",
            "J": "array",
            "V": "inherit",
            "v": "inherit",
            "W": "after",
            "r": "requeue.max",
        },
        needed={
            "j": "castoff keeps one log for both streams",
            "r": "PBS would run a failed job again without castoff's count",
        },
        of_others=dict.fromkeys(_SLURM_WORDS, "slurm"),
        misplaced=_misplaced_on_pbs,
        line=pbs_directive,
    ),
}


def of_scheduler(given: Given, scheduler: str) -> dict[str, Directive]:
    """Those that apply there: what stands under no scheduler's name, and what stands under its own."""
    plain = {name: value for name, value in given.items() if not isinstance(value, dict)}
    for name in SCHEDULERS:
        plain.pop(name, None)  # an empty section
    return plain | _section(given, scheduler)


def merged(default: Given, given: Given, scheduler: str) -> Directives:
    """One job's directives over another's: those of this scheduler together, the others in their sections."""
    together: Directives = {**of_scheduler(default, scheduler), **of_scheduler(given, scheduler)}
    for name in SCHEDULERS:
        section = {**_section(default, name), **_section(given, name)}
        if section and name != scheduler:
            together[name] = section
    return together


def place(field: str, given: Given, scheduler: str) -> str:
    """A problem's field as the job spells it: `directives.k` is `directives.pbs.k` if it stands there."""
    outer, _, name = field.partition(".")
    here = outer == "directives" and name in _section(given, scheduler)
    return f"{outer}.{scheduler}.{name}" if here else field


def directive_problems(spec: JobSpec, site: Site) -> Iterator[tuple[str, str]]:
    """What cannot stand in a script, or contradicts the job: the site's scheduler's and all others'."""
    for scheduler in SCHEDULERS:
        here = scheduler == site.scheduler
        of_it = of_scheduler(spec.directives, scheduler) if here else _section(spec.directives, scheduler)
        for name, value in of_it.items():
            where = f"{site.name} runs {SCHEDULERS[scheduler]}" if here else f"stands under {scheduler}"
            message = _wrong(name, value, scheduler, spec, where)
            if message is None and here and isinstance(value, str) and name in site.directive_values:
                message = _not_among(value, site.directive_values[name], site)
            if message is not None:
                yield f"directives.{name}" if here else f"directives.{scheduler}.{name}", message


def _section(given: Given, scheduler: str) -> dict[str, Directive]:
    section = given.get(scheduler)
    return section if isinstance(section, dict) else {}


def _wrong(name: str, value: Directive, scheduler: str, spec: JobSpec, where: str) -> str | None:
    rules = _RULES[scheduler]
    if value is None or value is False:
        if (name in rules.owned or name in rules.needed) and _is_there(name, spec):
            return f"cannot be removed: {rules.needed.get(name) or f'it follows from {rules.owned[name]}'}"
        return None
    if name in rules.of_others:
        return _of_another(name, value, rules.of_others[name], where)
    if name in rules.owned:
        return f"follows from other fields; set {rules.owned[name]} instead"
    return rules.misplaced(name) or _unwritable(name, value, rules)


def _of_another(name: str, value: str | bool, whose: str, where: str) -> str:
    title = SCHEDULERS[whose]
    if field := _RULES[whose].owned.get(name) or _PBS_IN_SELECT.get(name):
        return f"is {title}'s, but {where}; set {field} instead, which every scheduler gets in its own words"
    section = f"directives: {{{whose}: {{{name}: {_yaml(value)}}}}}"
    return f"is {title}'s, but {where}; write {section}, and it stays in the file for {title} alone"


def _yaml(value: str | bool) -> str:
    return yaml_word(value) if isinstance(value, str) else str(value).lower()


def _unwritable(name: str, value: str | bool, rules: _Rules) -> str | None:
    try:
        rules.line(name, value)
    except ValueError as error:
        return str(error).removeprefix(f"directives.{name}: ")
    return None


def _not_among(value: str, known: Values, site: Site) -> str | None:
    wrong = known.wrong(value)
    if not wrong:
        return None
    source = f"({known.source}, {known.date})"
    if len(known.among) == 1:
        return f"is {shown(value)}, but {site.name} takes {known.among[0]} alone {source}: drop it"
    hint = did_you_mean(wrong[0], known.among)
    join = f", joined by {known.separator}" if known.separator else ""
    there = f"there are: {', '.join(known.among)}{join} {source}"
    return f"is {shown(value)}, but {site.name} has no {shown(wrong[0])}{hint}; {there}"


def _is_there(name: str, spec: JobSpec) -> bool:
    """Whether the directive would be rendered at all, so that removing it means something."""
    held = {
        "requeue": bool(spec.requeue.max),
        "no-requeue": not spec.requeue.max,
        "signal": spec.walltime is not None,
        "array": spec.array is not None,
        "J": spec.array is not None,
        "dependency": bool(spec.after),
        "W": bool(spec.after),
        "V": spec.inherit == "all",
        "v": isinstance(spec.inherit, list),
        "time": spec.walltime is not None,
        "walltime": spec.walltime is not None,
        "cpus-per-task": spec.cores_per_rank is not None,
    }
    return held.get(name, True)
