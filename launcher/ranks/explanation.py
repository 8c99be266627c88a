"""`python -m launcher.ranks` and `castoff explain`: what a process is told, in plain words."""

from __future__ import annotations

import os

from launcher.errors import PlacementError
from launcher.ranks.environment import FIELDS, STALE_VARIABLES, detect_with_notes
from launcher.ranks.families import FAMILIES, MPI_OTHERS, MPI_RANKS, MPI_SIZES, VERIFIED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NAMES = {starter: name for starter, name, *_ in FAMILIES} | {
    "local": "castoff itself",
    "environment": "something that set RANK, WORLD_SIZE and LOCAL_RANK",
    "single": "nothing: a single process",
}

SHOWN = (
    *(name for name in STALE_VARIABLES if not name.startswith(("PMIX_SERVER", "SLURM_SRUN"))),
    *(*MPI_RANKS, *MPI_SIZES, *MPI_OTHERS),
    *("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST"),
    *("SLURM_TASKS_PER_NODE", "PBS_JOBID", "PBS_NODEFILE", "PALS_PMI"),
)
"""Variables worth seeing when something is wrong. Names only from here: others may be secrets."""


def explain_json(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Tell programs what `explain` tells people; `error` is None for a good environment."""
    environ = os.environ if environ is None else environ
    seen = {name: environ[name] for name in dict.fromkeys(SHOWN) if name in environ}
    try:
        me, notes = detect_with_notes(environ)
    except PlacementError as error:
        return {"error": str(error), "seen": seen}
    placement = {field: getattr(me, field) for field in (*FIELDS, "device")}
    return {
        "error": None,
        "starter": me.starter,
        "verified": me.starter in VERIFIED,
        "started_by_castoff": me.sources.get("starter") == "CASTOFF_STARTER",
        "placement": placement,
        "sources": me.sources,
        "variables": me.variables(),
        "notes": notes,
        "seen": seen,
    }


def explain(environ: Mapping[str, str] | None = None) -> str:
    """Describe for people who this process is, from which variables, and what was ignored.

    An environment that places no rank is described too: the error and its fix.
    """
    return as_text(explain_json(environ))


def as_text(told: dict[str, Any]) -> str:
    """Put what `explain_json` tells into words."""
    if told["error"] is not None:
        seen = [f"  {name}={text}" for name, text in told["seen"].items()]
        lines = ["This process cannot tell which rank it is.", "", told["error"], "", "What is set:"]
        return "\n".join([*lines, *(seen or ["  none of the variables of any starter"])])
    place, sources = told["placement"], told["sources"]
    node = "" if place["node_rank"] is None else f", node {place['node_rank']}"
    by = " (through castoff)" if told["started_by_castoff"] else ""
    known = (
        "tested against a recorded real run"
        if told["verified"]
        else "after its documentation only, never seen running; compare with what you expect"
    )
    lines = [
        f"This process is rank {place['rank']} of {place['world_size']}, local rank"
        f" {place['local_rank']} of {place['local_world_size']}{node}.",
        "",
        f"Started by: {NAMES[told['starter']]}{by}",
        f"Recognised: {known}",
        "",
    ]
    for field, what in place.items():
        source = sources.get(field)
        shown = "unknown" if what is None else what
        if field == "device" and what is None:
            shown, source = "not told", "use the local rank modulo the number of devices"
        lines.append(f"  {field:<17} {shown!s:<16} {source or ''}".rstrip())
    if place["master_addr"] is None:
        lines += ["", "MASTER_ADDR is unknown: set it to the host of rank 0, the same for all."]
    if told["notes"]:
        lines += ["", "Notes:", *(f"  {note}" for note in told["notes"])]
    return "\n".join(lines)
