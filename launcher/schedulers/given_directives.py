"""What `directives:` of a job file or a profile may hold, and which of it applies to a scheduler. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.config.document import did_you_mean
from launcher.config.job import Directive, Directives, JobSpec
from launcher.config.site import Site, Values
from launcher.errors import shown
from launcher.quoting import yaml_field
from launcher.schedulers.base import Dialect, Scheduler
from launcher.schedulers.directives import Given, of_scheduler, section
from launcher.schedulers.registry import scheduler_of, with_directives


def merged(default: Given, given: Given, scheduler: str) -> Directives:
    """One job's directives over another's: those of this scheduler together, the others in their sections."""
    together: Directives = {**of_scheduler(default, scheduler), **of_scheduler(given, scheduler)}
    for name in (one.name for one in with_directives()):
        theirs = {**section(default, name), **section(given, name)}
        if theirs and name != scheduler:
            together[name] = theirs
    return together


def place(field: str, given: Given, scheduler: str) -> str:
    """A problem's field as the job spells it: `directives.k` is `directives.pbs.k` if it stands there."""
    outer, _, name = field.partition(".")
    here = outer == "directives" and name in section(given, scheduler)
    return f"{outer}.{scheduler}.{name}" if here else field


def section_problems(directives: Directives) -> Iterator[tuple[str, str]]:
    """Directives where a scheduler's name belongs, and the other way round."""
    known = {one.name: one.title for one in with_directives()}
    for name, value in directives.items():
        if isinstance(value, dict):
            if name not in known:
                yield f"directives.{name}", f"holds directives, but only {', '.join(known)} hold their own"
            for twice in sorted({*value} & {*directives}):
                yield f"directives.{name}.{twice}", f"stands in directives.{twice} too; keep one of the two"
        elif value is not None and name in known:
            example = f"{name}: {{comment: {value}}}"
            message = f"is {shown(value)}, but {name} holds {known[name]}'s own directives"
            yield f"directives.{name}", f"{message} by their names, as in {example}"


def directive_problems(spec: JobSpec, site: Site) -> Iterator[tuple[str, str]]:
    """What cannot stand in a script, or contradicts the job: the site's scheduler's and all others'."""
    for one in with_directives():
        here = one.name == site.scheduler
        of_it = of_scheduler(spec.directives, one.name) if here else section(spec.directives, one.name)
        for name, value in of_it.items():
            where = f"{site.name} runs {one.title}" if here else f"stands under {one.name}"
            message = _wrong(name, value, one, spec, where)
            if message is None and here and isinstance(value, str) and name in site.directive_values:
                message = _not_among(value, site.directive_values[name], site)
            if message is not None:
                yield f"directives.{name}" if here else f"directives.{one.name}.{name}", message


def site_directive_problems(spec: JobSpec, site: Site) -> Iterator[tuple[str, str]]:
    """The same of the directives of the site's profile."""
    own = scheduler_of(site.scheduler)
    if own.dialect is None:
        return
    where = f"{site.name} runs {own.title}"
    for name, value in of_scheduler(site.directives, own.name).items():
        message = _wrong(name, value, own, spec, where, under="defaults.")
        if message is not None:
            yield place(f"directives.{name}", site.directives, own.name), message


def _wrong(
    name: str, value: Directive, own: Scheduler, spec: JobSpec, where: str, under: str = ""
) -> str | None:
    """What is wrong with one; `under` says where its document has the job's fields, as in `defaults.`."""
    dialect = own.dialect
    assert dialect is not None
    if value is None or value is False:
        if (name in dialect.owned or name in dialect.needed) and _is_there(name, spec):
            return (
                f"cannot be removed: {dialect.needed.get(name) or f'it follows from {dialect.owned[name]}'}"
            )
        return None
    if whose := _other_with(name, own):
        return _of_another(name, value, whose, where, under)
    meant = dialect.meant(name)
    stands = "" if meant == name else f"stands for {meant}, which "
    if meant in dialect.owned:
        return f"{stands}follows from other fields; set {under}{dialect.owned[meant]} instead"
    if (field := dialect.typed.get(meant)) and not dialect.beyond(meant, value):
        example = yaml_field(under + field, value)
        return f"{stands}is what the field {field} says, which is checked; write {example} instead"
    excluded = dialect.excluded.get(meant)
    if excluded and (held := getattr(spec, excluded)) is not None:
        return f"excludes {excluded}, which is {held}, in {own.title}'s eyes: keep one of the two"
    if misplaced := dialect.misplaced(meant):
        return stands + misplaced
    if stands:
        return f"stands for {meant}; write {yaml_field(meant, value)}, in full"
    return _unwritable(name, value, dialect)


def _other_with(name: str, own: Scheduler) -> Scheduler | None:
    """The other scheduler that alone has a directive of this name."""
    mine = own.dialect
    if mine is not None and name in {*mine.owned, *mine.typed, *mine.needed}:
        return None
    for one in with_directives():
        if one is not own and one.dialect is not None and name in one.dialect.words:
            return one
    return None


def _of_another(name: str, value: str | bool, whose: Scheduler, where: str, under: str) -> str:
    theirs = whose.dialect
    assert theirs is not None
    if field := theirs.owned.get(name) or theirs.typed.get(name) or theirs.inside.get(name):
        instead = f"set {under}{field} instead, which every scheduler gets in its own words"
        return f"is {whose.title}'s, but {where}; {instead}"
    example = yaml_field(f"directives.{whose.name}.{name}", value)
    return (
        f"is {whose.title}'s, but {where}; write {example}, and it stays in the file for {whose.title} alone"
    )


def _unwritable(name: str, value: str | bool, dialect: Dialect) -> str | None:
    try:
        dialect.line(name, value)
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
