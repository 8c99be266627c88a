"""What the profiles that come with castoff hold, for the page on sites."""

from __future__ import annotations

from castoff.launcher.config.site import Site

_NAMES = ("aurora", "polaris", "crux", "sophia", "perlmutter", "frontier", "tuolumne")
"""Those that describe a machine, as the page has them."""

_SITES = {name: Site.load(name) for name in _NAMES}


def _summary(site: Site) -> str:
    """A machine in a cell: what it is, a node, and what each job must set."""
    node = site.node
    assert node is not None, site.name
    usable, cores = sum(map(len, node.usable_cores())), len(node.cores)
    counted = f"{usable} of {cores}" if usable < cores else str(cores)
    devices = f" and {node.device_count} devices" if node.device_count else ""
    parts = [
        f"{site.description}. Launcher `{site.launcher}`.",
        f"Ranks use {counted} cores{devices} of a node.",
    ]
    unset = [one.field for one in site.required if not getattr(site.defaults, one.field, None)]
    if unset:
        fields = ", ".join(f"`{field}`" for field in unset)
        parts.append(f"Jobs must set {fields}.")
    return " ".join([*parts, f"Node described on {node.date}."])


MACHINES = {name: _summary(site) for name, site in _SITES.items()}
OPTIONS_OF_AURORA = {name: one.description for name, one in _SITES["aurora"].options.items()}
OPTIONS_OF_POLARIS = {name: one.description for name, one in _SITES["polaris"].options.items()}
