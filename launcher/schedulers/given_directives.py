"""What `directives:` of a job file or a profile may hold, and which of it applies to a scheduler. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from launcher.config.document import did_you_mean
from launcher.config.job import SCHEDULERS, Directive, Directives, JobSpec
from launcher.config.site import Site, Values
from launcher.errors import shown
from launcher.quoting import pbs_directive, slurm_directive, yaml_field

Given: TypeAlias = "Mapping[str, Directive | dict[str, Directive]]"

PBS_WORDS = {"filesystems", "select", "place", "walltime", "ncpus", "mpiprocs", "ngpus"}
"""PBS resources that no option of sbatch is called."""

_SLURM_WORDS = {
    *("account", "array", "clusters", "comment", "constraint", "cpus-per-task", "dependency", "error"),
    *("exclude", "exclusive", "export", "gpu-bind", "gpus", "gpus-per-node", "gpus-per-task", "gres"),
    *("job-name", "licenses", "mail-type", "mail-user", "mem-per-cpu", "mem-per-gpu", "network"),
    *("no-requeue", "nodelist", "ntasks", "ntasks-per-node", "open-mode", "output", "partition", "qos"),
    *("requeue", "reservation", "signal", "threads-per-core", "time", "wckey"),
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
    typed: dict[str, str]
    """Those that a field says, by which castoff knows what the job asks for, and checks it."""
    needed: dict[str, str]
    """Those that may be changed but not removed, and why."""
    of_others: dict[str, str]
    """Names that are another scheduler's, and whose."""
    meant: Callable[[str], str]
    """The directive that a spelling of its name means to the scheduler: the name itself, or a longer one."""
    misplaced: Callable[[str], str | None]
    """What is wrong with a name whatever its value."""
    line: Callable[[str, str | bool], str]
    """How it is written into a script."""


_SLURM_LETTERS = {
    **{"A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir"},
    **{"d": "dependency", "e": "error", "G": "gpus", "J": "job-name", "L": "licenses", "m": "distribution"},
    **{"M": "clusters", "N": "nodes", "n": "ntasks", "o": "output", "p": "partition", "q": "qos"},
    **{"t": "time", "w": "nodelist", "x": "exclude"},
}


def _meant_on_slurm(name: str) -> str:
    """sbatch reads its options with getopt_long(3), to which the beginning of a name will do."""
    if len(name) == 1:
        return _SLURM_LETTERS.get(name, name)
    known = {*_SLURM_WORDS, *_RULES["slurm"].owned, *_RULES["slurm"].typed}
    return name if name in known else next((word for word in sorted(known) if word.startswith(name)), name)


def _meant_on_pbs(name: str) -> str:
    """PBS compares names of resources without regard to case; its flags are letters."""
    return name if len(name) == 1 else name.lower()


def _misplaced_on_slurm(name: str) -> str | None:
    if name == "clusters":
        return "sends it where castoff could not ask about it from here; submit on that cluster's login node"
    return "is a short flag; write the long one, as in nodelist for w" if len(name) == 1 else None


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
        typed={
            "partition": "queue",
            "account": "account",
            "qos": "qos",
            "constraint": "constraint",
            "reservation": "reservation",
            "exclude": "exclude",
            "exclusive": "exclusive",
            "mem": "memory",
        },
        needed={
            "output": "logs are found through it",
            "open-mode": "a requeued job would overwrite its first log",
            "signal": "the job could not stop before its walltime",
            "requeue": "requeue.max asks for it",
            "no-requeue": "Slurm would start a failed node's job again without castoff's count",
        },
        of_others=dict.fromkeys(PBS_WORDS, "pbs"),
        meant=_meant_on_slurm,
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
        typed={"A": "account", "q": "queue"},
        needed={
            "j": "castoff keeps one log for both streams",
            "r": "PBS would run a failed job again without castoff's count",
        },
        of_others=dict.fromkeys(_SLURM_WORDS, "slurm"),
        meant=_meant_on_pbs,
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


def site_directive_problems(spec: JobSpec, site: Site) -> Iterator[tuple[str, str]]:
    """The same of the directives of the site's profile."""
    if site.scheduler not in _RULES:
        return
    where = f"{site.name} runs {SCHEDULERS[site.scheduler]}"
    for name, value in of_scheduler(site.directives, site.scheduler).items():
        message = _wrong(name, value, site.scheduler, spec, where, under="defaults.")
        if message is not None:
            yield place(f"directives.{name}", site.directives, site.scheduler), message


def _field_of(name: str, value: Directive, rules: _Rules) -> str | None:
    """The field that says the same; None if none can, as for --mem=0 and --exclusive=user."""
    beyond = {"mem": value == "0", "exclusive": value is not True}
    return None if beyond.get(name) else rules.typed.get(name)


def _section(given: Given, scheduler: str) -> dict[str, Directive]:
    section = given.get(scheduler)
    return section if isinstance(section, dict) else {}


def _wrong(
    name: str, value: Directive, scheduler: str, spec: JobSpec, where: str, under: str = ""
) -> str | None:
    """What is wrong with one; `under` says where its document has the job's fields, as in `defaults.`."""
    rules = _RULES[scheduler]
    if value is None or value is False:
        if (name in rules.owned or name in rules.needed) and _is_there(name, spec):
            return f"cannot be removed: {rules.needed.get(name) or f'it follows from {rules.owned[name]}'}"
        return None
    if name in rules.of_others:
        return _of_another(name, value, rules.of_others[name], where, under)
    meant = rules.meant(name)
    stands = "" if meant == name else f"stands for {meant}, which "
    if meant in rules.owned:
        return f"{stands}follows from other fields; set {under}{rules.owned[meant]} instead"
    if field := _field_of(meant, value, rules):
        example = yaml_field(under + field, value)
        return f"{stands}is what the field {field} says, which is checked; write {example} instead"
    if meant in ("mem-per-cpu", "mem-per-gpu") and spec.memory is not None:
        return f"excludes memory, which is {spec.memory}, in Slurm's eyes: keep one of the two"
    if misplaced := rules.misplaced(meant):
        return stands + misplaced
    if stands:
        return f"stands for {meant}; write {yaml_field(meant, value)}, in full"
    return _unwritable(name, value, rules)


def _of_another(name: str, value: str | bool, whose: str, where: str, under: str) -> str:
    title = SCHEDULERS[whose]
    rules = _RULES[whose]
    if field := rules.owned.get(name) or rules.typed.get(name) or _PBS_IN_SELECT.get(name):
        instead = f"set {under}{field} instead, which every scheduler gets in its own words"
        return f"is {title}'s, but {where}; {instead}"
    section = yaml_field(f"directives.{whose}.{name}", value)
    return f"is {title}'s, but {where}; write {section}, and it stays in the file for {title} alone"


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


_ASK_FOR_DEVICES = ("gres", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task")
"""Options of sbatch that ask for GPUs; gres may ask for other things instead."""


def device_problems(spec: JobSpec, own: list[tuple[str, str | bool]]) -> Iterator[tuple[str, str]]:
    """Raw requests for devices that contradict the job's `own`, of which there is one or none."""
    given = of_scheduler(spec.directives, "slurm")
    for name in _ASK_FOR_DEVICES:
        value = given.get(name)
        count = _gpus(name, value) if isinstance(value, str) else None
        if count is None:
            continue
        message = _contradiction(name, count, dict(own), spec)
        if message is not None:
            yield f"directives.{name}", message


def _contradiction(name: str, count: int, own: dict[str, str | bool], spec: JobSpec) -> str | None:
    if not own:
        none = spec.devices_per_rank == 0 and count
        return f"asks for {count} GPUs, but devices_per_rank is 0: drop one of the two" if none else None
    ((asks, asked),) = own.items()
    fields = "devices_per_rank and the ranks on a node"
    if name == asks:
        if count == _gpus(asks, str(asked)):
            return None
        return f"asks for {count}, but {asks}={asked} follows from {fields}: change those"
    if count == 0:
        return None
    fix = "drop it; a type of GPU is the site's gpu_type"
    return f"asks for devices once more: {asks}={asked} follows from {fields}; {fix}"


def _gpus(name: str, value: str) -> int | None:
    """How many GPUs a request names; None where it cannot be told."""
    total = 0
    for part in value.split(","):
        words = part.split(":")
        if name == "gres":
            if words[0] not in ("gpu", "gres/gpu"):
                continue
            words = words[1:]
        number = words[-1] if words and words[-1].isdecimal() else "1" if name == "gres" else ""
        if not number:
            return None
        total += int(number)
    return total
