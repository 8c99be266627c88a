"""The directives that a job or a site may write in its scheduler's own syntax. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from castoff.launcher.config import job_fields
from castoff.launcher.config.directives import Given, of_scheduler
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Values
from castoff.launcher.errors import shown
from castoff.launcher.launchers.base import Request
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.schedulers.dialect import Dialect
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, title_of
from castoff.launcher.typed.suggestion import did_you_mean, setting


def section_problems(directives: job_fields.Directives) -> Iterator[tuple[str, str]]:
    """Yield a problem for each directive in the place of a scheduler's name, and each such name in the place
    of a directive.
    """
    for name, value in directives.items():
        if isinstance(value, dict):
            if name not in HAVE_DIRECTIVES:
                known = ", ".join(HAVE_DIRECTIVES)
                text = ",".join(f"{key}={one}" for key, one in value.items())
                fix = f'; write text, as in {name}: "{text}"' if len(name) == 1 else ""
                yield f"directives.{name}", f"holds directives, but only {known} hold their own{fix}"
            for twice in sorted({*value} & {*directives}):
                yield f"directives.{name}.{twice}", f"appears in directives.{twice} too; keep one of the two"
        elif value is not None and name in HAVE_DIRECTIVES:
            example = setting(f"directives.{name}.comment", str(value))
            message = f"is {shown(value)}, but {name} holds {title_of(name)}'s own directives"
            yield f"directives.{name}", f"{message} by their names, as in {example}"


def directive_problems(
    given: Given, spec: JobSpec, site: Site, own: Scheduler, request: Request, *, of_site: bool = False
) -> Iterator[tuple[str, str]]:
    """Report directives of the job or its site that a script cannot contain, or that contradict the job."""
    if own.dialect is None:
        return
    follows = {name: f"it follows from {field}" for name, field in own.dialect.owned.items()}
    needed = {**follows, **own.dialect.needed}

    def bare() -> dict[str, str | bool]:
        plain, there = (
            replace(spec, directives={}, select={}),
            replace(site, directives={}, defaults=JobSpec()),
        )
        return dict(own.directives(plain, there, replace(request, node_groups=())))

    for name, value in of_scheduler(given, own.name).items():
        if value is not None and value is not False:
            message = _wrong(name, value, own.dialect, "defaults." if of_site else "", spec)
        else:
            message = f"cannot be removed: {needed[name]}" if name in needed and name in bare() else None
        if message is None and isinstance(value, str) and name in site.directive_values:
            message = _not_among(value, site.directive_values[name], site)
        if message is not None:
            yield f"directives.{name}", message


def _wrong(name: str, value: str | bool, dialect: Dialect, under: str, spec: JobSpec) -> str | None:
    """Return what is wrong with one directive. `under`: the prefix of job fields in the directive's document,
    such as `defaults.`.
    """
    if len(name) == 1 and not dialect.has_letters:
        return "is a short flag; write the long one, as in nodelist for w"
    fields = dialect.said_by_fields
    if spec.script is not None:
        own = dialect.sizes | dialect.streams | dialect.own_to_scripts
        fields = {field: of_job for field, of_job in fields.items() if field not in own}
    # getopt_long(3) accepts the beginning of a word, and PBS ignores the case of letters.
    words = sorted([*fields, *dialect.needed, *dialect.refused], key=len)
    begins = (word for word in words if word.startswith(name.lower()) and len(name) > 1)
    meant = next(begins, name)
    stands = "" if meant == name else f"is short for {meant}, which "
    if meant in fields and not dialect.beyond(meant, value):
        return f"{stands}follows from other fields; set {under}{fields[meant]} instead"
    if meant in dialect.refused:
        return stands + dialect.refused[meant]
    if stands:
        return f"is short for {meant}; write it in full"
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
    newer = f"; one that is newer: directive_values in a profile that extends {site.name}"
    return f"is {shown(value)}, but {site.name} has no {shown(wrong[0])}{hint}; {there}{newer}"
