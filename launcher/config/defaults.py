"""Combine a job and its site: apply the site's defaults and the job's options. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from castoff.launcher.config import chunks, directives
from castoff.launcher.config.job import JobSpec, check
from castoff.launcher.config.job_fields import Container
from castoff.launcher.config.site import Site
from castoff.launcher.errors import shown
from castoff.launcher.typed.document import dotted
from castoff.launcher.typed.structure import fields_of
from castoff.launcher.typed.suggestion import did_you_mean

T = TypeVar("T", bound=msgspec.Struct)


class EffectiveJob(msgspec.Struct, frozen=True):
    """A job and its site, each completed by the other."""

    spec: JobSpec
    """The job, completed by the site's `defaults:`; its `env` applies after setup."""
    site: Site
    """The site, extended by the job's options; its `env` applies before setup."""
    contradictions: list[tuple[str, str]]
    """Fields that contradict the site's defaults, with messages."""


def effective_job(spec: JobSpec, site: Site) -> EffectiveJob:
    """Apply the site's defaults to the job, and the job's options to the site."""
    names = spec.options or site.defaults.options
    changed = with_options(site, names)
    merged = _with_defaults(spec, changed)
    env = {**env_of(site, names), **spec.env}
    of_site = {**site.env, **site.defaults.env}  # all variables of a site apply before setup
    default = {name: value for name, value in of_site.items() if value is not None and name not in env}
    merged = msgspec.structs.replace(merged, env=env)
    changed = msgspec.structs.replace(changed, env=default)
    return EffectiveJob(merged, changed, [(dotted(path), message) for path, message in check(merged)])


def _with_defaults(spec: JobSpec, site: Site) -> JobSpec:
    """The job with the site's `defaults:` for fields it does not set. Mappings are merged, shell lines are
    joined.
    """
    chosen = _filled(spec, site.defaults)
    setup = [*site.setup, *site.defaults.setup, *spec.setup, *site.setup_last]
    teardown = [*spec.teardown, *site.defaults.teardown]  # in the reverse order of setup
    named = directives.merged(site.defaults.directives, spec.directives, site.scheduler)
    excluded = {"ranks": "ranks_per_node", "ranks_per_node": "ranks"}
    changed: dict[str, Any] = {
        other: None for name, other in excluded.items() if getattr(spec, name) is not None
    }
    if spec.launcher.driver:  # a driver has no ranks, so the site's defaults for ranks do not apply
        of_ranks = ("launcher", "ranks", "ranks_per_node", "binding")
        changed |= {name: getattr(spec, name) for name in of_ranks}
    changed["select"] = chunks.merged(site.defaults.select, spec.select)
    if isinstance(spec.select, list) and spec.select:  # the groups set the nodes and ranks
        changed |= {"nodes": spec.nodes, "ranks": spec.ranks}
    if chosen.container.image is None and spec.container == Container():
        changed["container"] = Container()  # the site's runtime is only for jobs that set an image
    return msgspec.structs.replace(chosen, setup=setup, teardown=teardown, directives=named, **changed)


def _filled(struct: T, default: T) -> T:
    """Fill a struct's empty fields from another struct, also in its inner structs and mappings."""
    chosen: dict[str, Any] = {}
    for field in fields_of(type(struct)).values():
        value, other = getattr(struct, field.name), getattr(default, field.name)
        if isinstance(value, dict) and isinstance(other, dict):
            chosen[field.name] = {**other, **value}
        elif isinstance(field.default, msgspec.Struct):
            chosen[field.name] = _filled(value, other)
        elif value == field.default or (value == [] and field.default_factory is not msgspec.NODEFAULT):
            chosen[field.name] = other
    return msgspec.structs.replace(struct, **chosen)


def with_options(site: Site, names: Sequence[str]) -> Site:
    """The site as it applies to a job with these options; unknown options change nothing."""
    for name in dict.fromkeys(names):
        option = site.options.get(name)
        if option is None:
            continue
        node = site.node
        if node is not None and option.reserved_cores is not None:
            reserved = ",".join(filter(None, [node.reserved_cores, option.reserved_cores]))
            node = msgspec.structs.replace(node, reserved_cores=reserved)
        if node is not None and option.device_names:
            node = msgspec.structs.replace(node, device_names=option.device_names)
        site = msgspec.structs.replace(
            site,
            setup=[*site.setup, *option.setup],
            setup_last=[*site.setup_last, *option.setup_last],
            teardown=[*option.teardown, *site.teardown],  # in the reverse order of setup
            launcher_args=[*site.launcher_args, *option.launcher_args],
            node=node,
        )
    return site


def env_of(site: Site, names: Sequence[str]) -> dict[str, str]:
    """The variables that a job's options set, which count as set by the job."""
    options = (site.options[name] for name in names if name in site.options)
    return {name: value for option in options for name, value in option.env.items()}


def fixed_ranks(names: Sequence[str], site: Site) -> tuple[str, int] | None:
    """The first option that requires a certain number of ranks per node, and this number."""
    for name in names:
        if name in site.options and (count := site.options[name].ranks_per_node) is not None:
            return name, count
    return None


def option_problems(names: Sequence[str], site: Site) -> Iterator[tuple[str, str]]:
    """The problems of options: unknown to the site, or excluded by another."""
    for number, name in enumerate(names):
        if name in site.options:
            for other in (other for other in site.options[name].excludes if other in names):
                yield f"options.{number}", f"is {name}, which excludes {other}: drop one of the two"
            continue
        options = f"there are: {', '.join(site.options)}" if site.options else "it has none: drop it"
        hint = did_you_mean(name, site.options) or f"; {options}"
        yield f"options.{number}", f"is {shown(name)}, which is not an option of {site.name}{hint}"
