"""Decide which variables to believe if they name different ranks.

castoff's marks (CASTOFF_LAUNCHER and others) win if they fit the innermost launcher, then this launcher's
variables, then RANK, WORLD_SIZE and LOCAL_RANK alone. But any of these can be left over from an outer task,
and a wrong choice would silently make every rank "rank 0 of 1". So each set is checked against the others,
and a contradiction is an error that names the fix.
"""

from __future__ import annotations

from castoff.launcher.errors import PlacementError
from castoff.launcher.ranks.families import (
    FAMILIES,
    MPI_RANKS,
    MPI_SIZES,
    PLACE,
    Around,
    Placement,
    innermost,
    one_task_a_node,
    slurm_in_step,
)
from castoff.launcher.ranks.rendezvous import TRIPLE, alone, complete, in_slurm_job

MARKERS = (*(launcher for launcher, *_ in FAMILIES if launcher != "torchrun"), "local")
"""The possible values of CASTOFF_LAUNCHER."""

MARKS = ("CASTOFF_LAUNCHER", "CASTOFF_RANK", "CASTOFF_DEVICE")
"""The variables that castoff's script exports in addition to torch's."""

UNSET_TRIPLE = "unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK"


def decide(around: Around) -> Placement:
    """Decide which rank this process is; raise PlacementError if the variables do not determine it.

    Removes from `around` the variables that castoff exported for an outer task.
    """
    family = innermost(around)
    if "CASTOFF_LAUNCHER" not in around:
        placement = _without_castoff(around, family)
    elif reported := _of_this_task(around, family):
        _check_neighbours(around, family or reported, by_mark=family is None)
        placement = reported
    else:
        of_torchrun = family is not None and family.launcher == "torchrun"  # torchrun sets these itself
        others = () if of_torchrun else (*(field.upper() for field in PLACE), "MASTER_ADDR", "MASTER_PORT")
        for name in (*MARKS, *others):
            around.pop(name, None)
        placement = complete(family, around) if family else alone(around)
    _check(placement)
    return placement


def _of_this_task(around: Around, family: Placement | None) -> Placement | None:
    """The placement that castoff's script exported; None if an inner launcher has placed this process."""
    marker = around["CASTOFF_LAUNCHER"]
    if marker not in MARKERS:
        raise PlacementError(
            f"CASTOFF_LAUNCHER={marker!r} is not one of {', '.join(MARKERS)}. castoff's start block"
            " sets it for its own ranks only; elsewhere: unset CASTOFF_LAUNCHER"
        )
    if family is not None and family.launcher == "torchrun":
        return None
    reported = _read_place(around, marker)
    reported.sources["launcher"] = "CASTOFF_LAUNCHER"
    missing = [name for name in ("CASTOFF_RANK", *map(str.upper, PLACE[:4])) if name not in around]
    if missing and family is None:
        raise PlacementError(
            f"CASTOFF_LAUNCHER={marker} is set as in castoff's ranks, but without {' and '.join(missing)},"
            " which castoff exports too: something removed it. Keep everything that castoff"
            " exports, or, if this process is not a rank of that job: unset CASTOFF_LAUNCHER"
        )
    if missing:
        return None
    if around["CASTOFF_RANK"] != f"{reported.rank}/{reported.world_size}":
        raise PlacementError(
            f"{around.shown(TRIPLE)} was set again inside rank {around['CASTOFF_RANK']} of castoff, which"
            f" CASTOFF_RANK names. If the program spawns ranks of its own, in them: unset {' '.join(MARKS)};"
            f" otherwise the variables are left over: {UNSET_TRIPLE}"
        )
    if family is None:
        # A task of srun has the variables of its step; a batch script has none.
        return None if marker == "srun" and in_slurm_job(around) else reported
    if reported.node_rank is None:
        reported.node_rank = family.node_rank
    same = (
        _kin(reported) == _kin(family)
        and _same_rank(reported, family)
        and reported.local_rank == family.local_rank
    )
    return reported if same and family.local_world_size in (None, reported.local_world_size) else None


def _kin(placement: Placement) -> str:
    # Intel MPI's mpiexec is based on Hydra; only the ranks show which of the two a site's mpiexec is.
    return placement.launcher.replace("intelmpi", "hydra")


def _without_castoff(around: Around, family: Placement | None) -> Placement:
    """Place a process that castoff did not start."""
    present = [name for name in TRIPLE if name in around]
    whole = len(present) == len(TRIPLE)
    if family is not None:
        _check_neighbours(around, family)
        has_triple = whole and family.launcher != "torchrun"
        return _inside(around, family) if has_triple else complete(family, around)
    if whole:
        placement = complete(_read_place(around, "environment"), around)
        _check_neighbours(around, placement)
        return placement
    if present:
        absent = [name for name in TRIPLE if name not in present]
        raise PlacementError(
            f"{around.shown(TRIPLE)} without {' and '.join(absent)}: the rank is not known."
            f" Whatever starts the ranks must export all of {', '.join(TRIPLE)}; if nothing"
            f" does, they are left over: {UNSET_TRIPLE}"
        )
    left_over = [name for name in MPI_RANKS + MPI_SIZES if name in around]
    if left_over:
        raise PlacementError(
            f"{around.shown(left_over)} was set by a launcher that"
            " castoff does not know, or is left over: the variables beside it (size, local rank) are"
            " missing, so the rank is not known. Export RANK, WORLD_SIZE, LOCAL_RANK and"
            f" LOCAL_WORLD_SIZE in a wrapper around the program, or: unset {' '.join(left_over)}"
        )
    return alone(around)


def _read_place(around: Around, launcher: str) -> Placement:
    """Read RANK and the related variables that are set."""
    placement = Placement(launcher)
    for field in PLACE:
        if field.upper() in around:
            placement.take(field, around.number(field.upper()), field.upper())
    return placement


def _inside(around: Around, family: Placement) -> Placement:
    """Place a process that has a RANK triple inside a launcher's task: as the task itself, or as a rank that
    it spawned.
    """
    placement = _read_place(around, "environment")
    if _same_rank(placement, family):
        if family.world_size is None:
            family.take("world_size", placement.world_size, "WORLD_SIZE")
        return complete(family, around)
    tasks, ranks = family.world_size or 0, placement.world_size or 0
    per_task = ranks // tasks if tasks else 0
    fits = tasks == 1 or (
        per_task > 0 and divmod(placement.rank, per_task) == (family.rank, placement.local_rank)
    )
    if per_task < 2 or ranks != per_task * tasks or not fits:
        raise PlacementError(
            f"{around.shown(TRIPLE)} contradicts {family.launcher}, which says"
            f" {_shown_family(family)}: all tasks would get the same rank. The variables are"
            f" left over or set by hand; before the ranks are started: {UNSET_TRIPLE}"
        )
    if placement.local_world_size is None:
        placement.take("local_world_size", per_task, f"ranks inside each task of {family.launcher}")
    return complete(placement, around)


def _check_neighbours(around: Around, placement: Placement, *, by_mark: bool = False) -> None:
    """Reject a placement that a variable of another launcher contradicts, since one of the two is left over.

    A job that was submitted from inside a rank of an mpiexec inherits that rank's variables, so all its tasks
    would be that rank. `by_mark`: only castoff's marks place this process, not a launcher's variables.
    """
    if placement.launcher in ("hydra", "intelmpi", "openmpi") and slurm_in_step(around):
        proxies = around.number("SLURM_STEP_NUM_TASKS") or 0
        if one_task_a_node(around) and proxies <= (placement.world_size or 0):
            return
        raise PlacementError(
            f"{placement.launcher} reports {_shown_family(placement)}, but this is also a task of a Slurm"
            f" step (SLURM_STEP_NUM_TASKS={proxies}, SLURM_STEP_TASKS_PER_NODE="
            f"{around.get('SLURM_STEP_TASKS_PER_NODE')}), and no mpiexec starts such ranks in that step."
            " If srun started this process, the others are left over; before srun: unset"
            f" {' '.join(placement.sources[field] for field in PLACE[:3])}."
            " If an mpiexec inside the task did, before mpiexec: unset SLURM_STEP_NUM_TASKS"
        )
    if not by_mark and placement.launcher not in ("srun", "pals", "local", "environment"):
        return  # e.g. under Hydra, PMIX_RANK is set by the srun that started its proxy
    for names, expected in ((MPI_RANKS, placement.rank), (MPI_SIZES, placement.world_size)):
        for name in names:
            if expected is not None and around.number(name) not in (None, expected):
                raise PlacementError(
                    f"{_shown_family(placement)} contradicts {name}={around[name]}: one of them"
                    f" is left over. If {name} is, before the ranks are started: unset {name}; if"
                    f" the others are: {UNSET_TRIPLE} CASTOFF_LAUNCHER"
                )


def _same_rank(placement: Placement, other: Placement) -> bool:
    return placement.rank == other.rank and other.world_size in (None, placement.world_size)


def _check(placement: Placement) -> None:
    """Reject numbers that no rank can have."""

    def named(field: str) -> str:
        source = placement.sources.get(field, field)
        return f"{field.replace('_', ' ')} {getattr(placement, field)} (from {source})"

    for low, high, most in (
        ("rank", "world_size", -1),
        ("local_rank", "local_world_size", -1),
        ("node_rank", "world_size", -1),
        ("local_world_size", "world_size", 0),
    ):
        below, limit = getattr(placement, low), getattr(placement, high)
        if below is not None and limit is not None and below > limit + most:
            must = "must be smaller than" if most else "must not be larger than"
            raise PlacementError(
                f"{named(low)} {must} {named(high)}: the two were set by different launchers or by hand."
                f" Unset what is left over before the ranks are started ({UNSET_TRIPLE}), or correct"
                " what sets them."
            )


def _shown_family(family: Placement) -> str:
    reported = (field for field in PLACE[:3] if field in family.sources)
    return ", ".join(f"{family.sources[field]}={getattr(family, field)}" for field in reported)
