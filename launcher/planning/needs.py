"""Fields of a job that need one of the site's options, such as the option for other device numbers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from castoff.launcher.config.directives import of_scheduler
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Need
from castoff.launcher.errors import shown
from castoff.launcher.typed.suggestion import setting


def problems(spec: JobSpec, site: Site) -> Iterator[tuple[str, str]]:
    """Yield the fields that need an option that the job does not use, and the fields that contradict an
    option.
    """
    for need in site.needs:
        if not any(_is_used(name, spec, site) for name in need.options):
            fix = setting("options", f"[{', '.join([*spec.options, need.options[0]])}]")
            others = f" (or {', '.join(need.options[1:])})" if need.options[1:] else ""
            for field, what in _found(need, spec, site):
                yield field, f"{what}: {need.because.rstrip('.')}; use {fix}{others} {need.cited}"
    for name in spec.options:
        option = site.options.get(name)
        for variable, value in option.env.items() if option and option.device_names else ():
            if (own := spec.env[variable]) != value:
                named = f"but the option {name} names devices as they are under {value}"
                yield f"env.{variable}", f"is {shown(own)}, {named}: drop one of the two"


def _is_used(name: str, spec: JobSpec, site: Site) -> bool:
    flags = site.options[name].launcher_args if name in site.options else []
    return name in spec.options or (bool(flags) and {*flags} <= {*spec.launcher.args})


def _found(need: Need, spec: JobSpec, site: Site) -> Iterator[tuple[str, str]]:
    """Yield the fields that hold such a value, each with the value."""
    for name in need.programs:
        as_a_word = rf"(?:^|[\s/'\"]){re.escape(name)}(?:$|[\s'\"])"
        for number, word in enumerate(spec.command):
            if re.search(as_a_word, word):
                yield f"command.{number}", f"starts {name}"
    for number, word in enumerate(spec.launcher.args):
        if (flag := word.partition("=")[0]) in need.launcher_args:
            yield f"launcher.args.{number}", f"is {flag}"
    for name, value in need.env.items():
        if spec.env.get(name) == value:
            yield f"env.{name}", f"is {value}"
        elif any(re.search(rf"\b{name}=['\"]?{re.escape(value)}\b", line) for line in spec.setup):
            yield "setup", f"sets {name}={value}"
    named = of_scheduler(spec.directives, site.scheduler)
    for name, parts in need.directives.items():
        known = site.directive_values.get(name)
        text = str(named.get(name) or "")
        asked = text.split(known.separator) if known and known.separator else [text]
        for part in (part for part in asked if part in parts):
            yield f"directives.{name}", f"names {part}"
