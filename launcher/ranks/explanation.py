"""`python -m castoff.launcher.ranks` and `castoff explain`: describe a process's rank in words."""

from __future__ import annotations

import os

from castoff.launcher.errors import PlacementError
from castoff.launcher.ranks.environment import FIELDS, RankEnv, is_stale
from castoff.launcher.ranks.families import FAMILIES, MPI_RANKS, MPI_SIZES, read_text
from castoff.launcher.ranks.visible import MASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NAMES = {launcher: name for launcher, name, *_ in FAMILIES} | {
    "local": "castoff itself",
    "environment": "a program that set RANK, WORLD_SIZE and LOCAL_RANK",
    "single": "nothing: a single process",
}

SHOWN = (
    *(*MPI_RANKS, *MPI_SIZES),
    *("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST"),
    *("SLURM_TASKS_PER_NODE", "PBS_JOBID", "PBS_NODEFILE", "PALS_PMI"),
)
"""Variables to show in case of an error, in addition to those that launchers set for their ranks."""

HIDDEN = ("PMI_SHARED_", "PMIX_SERVER_", "SLURM_SRUN_")
"""Prefixes of variables that launchers set for their ranks and that contain addresses or secrets."""


def _cpus() -> str | None:
    """The CPUs that this process may run on, in Linux's notation; None on another system."""
    try:
        status = read_text("/proc/self/status")
    except OSError:
        return None
    return next(
        (line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list:")), None
    )


def explain_json(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The content of `explain` for programs; `error` is None if the rank is known."""
    environ = os.environ if environ is None else environ
    names = (name for name in environ if is_stale(name) and not name.startswith(HIDDEN))
    seen = {name: environ[name] for name in (*sorted(names), *SHOWN) if name in environ}
    try:
        me = RankEnv.detect(environ)
    except PlacementError as error:
        return {"error": str(error), "seen": seen}
    return {
        "error": None,
        "launcher": me.launcher,
        "started_by_castoff": me.sources.get("launcher") == "CASTOFF_LAUNCHER",
        "placement": {field: getattr(me, field) for field in (*FIELDS, "device")},
        "sources": me.sources,
        "cpus": _cpus(),
        "masks": {name: environ[name] for name in MASKS if environ.get(name)},
        "variables": me.variables(),
        "seen": seen,
    }


def explain(environ: Mapping[str, str] | None = None) -> str:
    """Describe for people which rank this process is, and the variables it comes from.

    If the rank is unknown, the description is the error and its fix.
    """
    report = explain_json(environ)
    if report["error"] is not None:
        seen = [f"  {name}={text}" for name, text in report["seen"].items()]
        lines = ["The rank of this process is not known.", "", report["error"], "", "What is set:"]
        return "\n".join([*lines, *(seen or ["  none of the variables of any launcher"])])
    placement, sources = report["placement"], report["sources"]
    node = "" if placement["node_rank"] is None else f", node {placement['node_rank']}"
    by = " (through castoff)" if report["started_by_castoff"] else ""
    lines = [
        f"This process is rank {placement['rank']} of {placement['world_size']}, local rank"
        f" {placement['local_rank']} of {placement['local_world_size']}{node}.",
        "",
        f"Started by: {NAMES[report['launcher']]}{by}",
        "",
    ]
    for field, value in placement.items():
        source = sources.get(field, "")
        if field == "device" and value is None:
            source = "use the local rank modulo the number of devices"
        elif field == "device":
            source += ": its index among those that are shown"
        shown = "unknown" if value is None else value
        lines.append(f"  {field:<17} {shown!s:<16} {source}".rstrip())
    if report["cpus"] is not None:
        lines.append(f"  {'CPUs':<17} {report['cpus']:<16} what it may run on (Cpus_allowed_list)")
    for name, mask in report["masks"].items():
        lines.append(f"  {'devices shown':<17} {mask:<16} {name}")
    if placement["master_addr"] is None:
        lines += ["", "MASTER_ADDR is unknown: set it to the host of rank 0, the same for all."]
    return "\n".join(lines)
