"""A site's options, such as a proxy, which a job file selects by name. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from castoff.launcher.config.site import Site
from castoff.launcher.errors import shown
from castoff.launcher.typed.suggestion import did_you_mean


def with_options(site: Site, names: Sequence[str]) -> Site:
    """The site as a job with these options sees it; unknown options change nothing."""
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
            teardown=[*option.teardown, *site.teardown],  # what began last ends first
            launcher_args=[*site.launcher_args, *option.launcher_args],
            node=node,
        )
    return site


def env_of(site: Site, names: Sequence[str]) -> dict[str, str]:
    """The variables of options, which a job that names them gets as if they were its own."""
    options = (site.options[name] for name in names if name in site.options)
    return {name: value for option in options for name, value in option.env.items()}


def fixed_ranks(names: Sequence[str], site: Site) -> tuple[str, int] | None:
    """The first option that requires a certain number of ranks per node, and that number."""
    for name in names:
        if name in site.options and (count := site.options[name].ranks_per_node) is not None:
            return name, count
    return None


def option_problems(names: Sequence[str], site: Site) -> Iterator[tuple[str, str]]:
    """Options that the site does not have, and those that exclude each other."""
    for number, name in enumerate(names):
        if name in site.options:
            for other in (other for other in site.options[name].excludes if other in names):
                yield f"options.{number}", f"is {name}, which excludes {other}: drop one of the two"
            continue
        there = f"there are: {', '.join(site.options)}" if site.options else "it has none: drop it"
        hint = did_you_mean(name, site.options) or f"; {there}"
        yield f"options.{number}", f"is {shown(name)}, which is not an option of {site.name}{hint}"
