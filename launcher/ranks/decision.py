"""Which of the variables around a process are believed when they name different ranks.

castoff's marker comes first, then the innermost starter's family, then a bare RANK triple; but
each of them can be left over from a task further out, and a wrong choice makes every rank
"rank 0 of 1" without a word. So each is checked against the others, and what cannot be decided
is an error that names the fix.
"""

from __future__ import annotations

from collections import namedtuple

from launcher.errors import PlacementError
from launcher.ranks.families import (
    MPI_RANKS,
    MPI_SIZES,
    PLACE,
    Around,
    Placement,
    innermost,
    one_task_a_node,
    orphans,
    slurm_in_step,
    slurm_step_is_inherited,
)
from launcher.ranks.rendezvous import TRIPLE, alone, complete, guess_local_size, in_slurm_job

MARKERS = ("srun", "pals", "hydra", "intelmpi", "openmpi", "flux", "local")
"""What CASTOFF_STARTER may say."""

STRANGERS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
"""What neither srun nor PALS sets."""

UNSET_TRIPLE = "unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK"


class Decision(namedtuple("Decision", "placement notes marked inherited", defaults=(False, False))):
    """The placement that is believed, and what became of the rest."""

    __slots__ = ()

    placement: Placement
    notes: list[str]
    """For people: what was ignored, and why."""
    marked: bool
    """The placement is the one castoff's start block exported."""
    inherited: bool
    """castoff's variables here are those of a task around this one, MASTER_* among them."""


def decide(around: Around) -> Decision:
    """Say which rank this process is; raises PlacementError when nothing says so for certain."""
    notes: list[str] = []
    if slurm_step_is_inherited(around) and around.get("SLURM_STEP_NUM_TASKS"):
        notes.append("SLURM_STEP_* are left over from the step this job was submitted from: ignored.")
    family = innermost(around)
    marker = around.get("CASTOFF_STARTER")
    if marker is None:
        decision = Decision(_without_marker(around, family, notes), notes)
    else:
        decision = _with_marker(around, family, marker, notes)
    _check(decision.placement)
    return decision


def _with_marker(around: Around, family: Placement | None, marker: str, notes: list[str]) -> Decision:
    """Believe castoff's marker, unless a starter or a spawn further in has placed this process."""
    told = _told(around, marker, family)
    if told is not None and family is not None and _srun_inside(around, marker, family, told):
        family = innermost(around, "srun")
    if told is not None and _is_own(around, marker, family, told):
        notes += _ignored_outside(around, family)
        return Decision(told, notes, marked=True)
    if told is not None and _spawned(around, marker, family, told):
        outer = _outer_task(around)
        notes.append("RANK was set again inside castoff's task: taken as a spawn of its own.")
        placement = _bare(around, family or outer, renewed=True)
        # In castoff's own task MASTER_* is for the spawned ranks too, kept or set anew; inside
        # a further starter it is the outer one's.
        inside = family is not None and not (
            _kin(marker) == _kin(family.starter) and _same_rank(outer, family)
        )
        return Decision(placement, notes, inherited=inside)
    notes.append(
        f"CASTOFF_STARTER={marker}, and what castoff exported with it (RANK, MASTER_ADDR, device"
        " …), belongs to a task around this one: ignored."
    )
    return Decision(alone(around) if family is None else complete(family, around), notes, inherited=True)


def _told(around: Around, marker: str, family: Placement | None) -> Placement | None:
    """Read what castoff's start block exported; None when it is gone in part but not missed."""
    if marker not in MARKERS:
        raise PlacementError(
            f"CASTOFF_STARTER={marker!r} is none of {', '.join(MARKERS)}. castoff's start block"
            " sets it for its own ranks only; elsewhere: unset CASTOFF_STARTER"
        )
    placement = Placement(marker)
    placement.sources["starter"] = "CASTOFF_STARTER"
    for field in PLACE:
        read = around.number(field.upper())
        if read is not None:
            placement.take(field, read, field.upper())
        elif field != "node_rank":
            if family is not None:
                return None
            raise PlacementError(
                f"CASTOFF_STARTER={marker} says castoff started this rank, but {field.upper()},"
                " which it exports too, is not set: something in between removed it. Keep RANK,"
                " WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, or, if this process is no rank of"
                " that job: unset CASTOFF_STARTER"
            )
    if placement.node_rank is None and family is not None:
        placement.node_rank = family.node_rank
    return placement


def _is_own(around: Around, marker: str, family: Placement | None, told: Placement) -> bool:
    """Say whether the marker is this very task's: its starter is innermost and agrees."""
    own = around.get("CASTOFF_RANK")
    if own is not None and own != f"{told.rank}/{told.world_size}":
        return False
    if family is None:
        if marker == "srun" and in_slurm_job(around):
            return False  # a task of srun has its step's variables; a batch script has not
        _check_orphans(around, told)
        return True
    return _kin(marker) == _kin(family.starter) and _agree(told, family)


def _spawned(around: Around, marker: str, family: Placement | None, told: Placement) -> bool:
    """Say whether RANK and its companions were set again, inside the task that castoff started.

    CASTOFF_RANK (`rank/size`, which the start block exports beside RANK) tells. Without it, a
    program that spawns ranks of its own looks like another srun inside castoff's, and the one
    must not be taken for the other: all spawned ranks would believe to be the same one.
    """
    if family is not None and family.starter == "torchrun":
        return False
    own = around.get("CASTOFF_RANK")
    if own is not None:
        return own != f"{told.rank}/{told.world_size}"
    if family is None or _kin(marker) != _kin(family.starter):
        return False
    if _ranks_inside(told, family):
        raise PlacementError(
            f"{around.shown(TRIPLE)} fits two cases: a program that castoff started through"
            f" {marker} spawns ranks of its own, or another {marker} was started inside its rank"
            f" ({_shown_family(family)}). In the first case, the program that spawns must remove"
            " the mark from its children: unset CASTOFF_STARTER. In the second, before the inner"
            f" start: {UNSET_TRIPLE} CASTOFF_STARTER"
        )
    return False


def _srun_inside(around: Around, marker: str, family: Placement, told: Placement) -> bool:
    """Recognise an srun inside a rank of castoff's mpiexec, whose variables it leaves in place.

    mpiexec asks srun for one task a node; another shape is a step further in.
    """
    return (
        marker in ("hydra", "intelmpi", "openmpi")
        and _kin(marker) == _kin(family.starter)
        and _agree(told, family)
        and slurm_in_step(around)
        and not one_task_a_node(around)
    )


def _outer_task(around: Around) -> Placement:
    """Read from CASTOFF_RANK where castoff had placed the task that spawned this process."""
    rank, _, size = around["CASTOFF_RANK"].partition("/")
    if not (rank.isdigit() and size.isdigit() and int(size) > 0):
        raise PlacementError(
            f"CASTOFF_RANK={around['CASTOFF_RANK']!r} is not of the form rank/size. castoff's"
            " start block sets it; elsewhere: unset CASTOFF_RANK CASTOFF_STARTER"
        )
    outer = Placement(around["CASTOFF_STARTER"])
    outer.take("rank", int(rank), "CASTOFF_RANK")
    outer.take("world_size", int(size), "CASTOFF_RANK")
    return outer


def _without_marker(around: Around, family: Placement | None, notes: list[str]) -> Placement:
    """Place a process that castoff did not start."""
    present = [name for name in TRIPLE if name in around]
    if family is not None:
        _check_neighbours(around, family)
        if family.starter != "torchrun" and len(present) == len(TRIPLE):
            return _bare(around, family, notes=notes)
        if family.starter != "torchrun" and present and present != ["WORLD_SIZE"]:
            notes.append(f"{', '.join(present)} alone place no rank: ignored.")
        return complete(family, around)
    if len(present) == len(TRIPLE):
        placement = _bare(around, None)
        _check_orphans(around, placement)
        return placement
    if present:
        absent = [name for name in TRIPLE if name not in present]
        raise PlacementError(
            f"{around.shown(TRIPLE)}, but {' and '.join(absent)} not: half a placement places no"
            f" rank. Whatever starts the ranks must export all of {', '.join(TRIPLE)}; if nothing"
            f" does, they are left over: {UNSET_TRIPLE}"
        )
    lost = orphans(around)
    if lost:
        raise PlacementError(
            f"{around.shown(lost)} was set by a starter that"
            " castoff does not know, or is left over: its companions (size, local rank) are"
            " missing, so the rank cannot be told. Export RANK, WORLD_SIZE, LOCAL_RANK and"
            f" LOCAL_WORLD_SIZE in a wrapper around the program, or: unset {' '.join(lost)}"
        )
    return alone(around)


def _check_neighbours(around: Around, family: Placement) -> None:
    """Refuse a family that another one beside it contradicts: one of the two is left over.

    A job that was submitted from inside a rank of an mpiexec inherits that rank's variables, and
    all of its tasks would take its place.
    """
    if family.starter in ("srun", "pals"):
        _check_orphans(around, family)
        lost = [name for name in STRANGERS if name in around]
        if lost:
            raise PlacementError(
                f"{around.shown(lost)} is set, but the rest of"
                f" what an mpiexec tells its ranks is not; {family.starter} says"
                f" {_shown_family(family)}. If {family.starter} started this process, they are"
                f" left over; before it starts the ranks: unset {' '.join(lost)}"
            )
    if family.starter not in ("hydra", "intelmpi", "openmpi") or not slurm_in_step(around):
        return
    proxies = around.number("SLURM_STEP_NUM_TASKS") or 0
    if not one_task_a_node(around) or proxies > (family.world_size or 0):
        raise PlacementError(
            f"{family.starter} says {_shown_family(family)}, but this is also a task of a Slurm"
            f" step (SLURM_STEP_NUM_TASKS={proxies}, SLURM_STEP_TASKS_PER_NODE="
            f"{around.get('SLURM_STEP_TASKS_PER_NODE')}) by which no mpiexec starts such ranks."
            " If srun started this process, the others are left over; before srun: unset"
            f" {' '.join(family.sources[field] for field in ('rank', 'world_size', 'local_rank'))}."
            " If an mpiexec inside the task did, before mpiexec: unset SLURM_STEP_NUM_TASKS"
        )


def _bare(
    around: Around, family: Placement | None, *, renewed: bool = False, notes: list[str] | None = None
) -> Placement:
    """Place by RANK, WORLD_SIZE and LOCAL_RANK alone, if they fit the tasks around them.

    `renewed`: they were set again inside a rank of castoff, whose LOCAL_WORLD_SIZE and NODE_RANK
    may still be there.
    """
    placement = Placement("environment")
    for field in PLACE[:3] if renewed else PLACE:
        if field.upper() in around:
            placement.take(field, around.number(field.upper()), field.upper())
    if family is None:
        guess_local_size(placement, around)
        return complete(placement, around)
    if _same_rank(placement, family):
        if family.world_size is None:
            family.take("world_size", placement.world_size, "WORLD_SIZE")
        if family.local_rank != placement.local_rank and notes is not None:
            notes.append(
                f"LOCAL_RANK={placement.local_rank} is not what {family.starter} says"
                f" ({family.local_rank}): ignored."
            )
        return complete(family, around)
    if not _ranks_inside(placement, family):
        raise PlacementError(
            f"{around.shown(TRIPLE)} contradicts {family.starter}, which says"
            f" {_shown_family(family)}: all tasks would take the same place. The variables are"
            f" left over or set by hand; before the ranks are started: {UNSET_TRIPLE}"
        )
    if placement.local_world_size is None:
        each = _times(placement, family)
        placement.take("local_world_size", each, f"ranks inside each task of {family.starter}")
    several = (family.world_size or 1) > 1  # single tasks, one a host, are each on node 0 of 1
    if placement.node_rank is None and family.node_rank is not None and several:
        placement.take("node_rank", family.node_rank, family.sources["node_rank"])
    return complete(placement, around)


def _ranks_inside(inner: Placement, outer: Placement) -> bool:
    """Say whether each task of `outer` may have spawned k ranks, this process being one."""
    times = _times(inner, outer)
    if times < 2 or inner.world_size != times * (outer.world_size or 1):
        return False
    if outer.world_size == 1:
        return True
    return inner.rank // times == outer.rank and inner.local_rank == inner.rank % times


def _times(inner: Placement, outer: Placement) -> int:
    return (inner.world_size or 1) // (outer.world_size or 1) if outer.world_size else 0


def _kin(starter: str) -> str:
    # Intel MPI's mpiexec is a Hydra; which one a site's mpiexec is shows only in its ranks.
    return "hydra" if starter == "intelmpi" else starter


def _agree(told: Placement, family: Placement) -> bool:
    """Compare two placements in all that both tell."""
    return (
        _same_rank(told, family)
        and told.local_rank == family.local_rank
        and family.local_world_size in (None, told.local_world_size)
    )


def _same_rank(one: Placement, other: Placement) -> bool:
    return one.rank == other.rank and other.world_size in (None, one.world_size)


def _check_orphans(around: Around, placement: Placement) -> None:
    """Refuse a placement that a variable of an unknown or incomplete family contradicts."""
    for names, expected in ((MPI_RANKS, placement.rank), (MPI_SIZES, placement.world_size)):
        for name in names:
            if expected is not None and around.number(name) not in (None, expected):
                raise PlacementError(
                    f"{_shown_family(placement)} contradicts {name}={around[name]}: one of them"
                    f" is left over. If {name} is, before the ranks are started: unset {name}; if"
                    f" the others are: {UNSET_TRIPLE} CASTOFF_STARTER"
                )


def _ignored_outside(around: Around, family: Placement | None) -> list[str]:
    """Name the Slurm step around an mpiexec: people wonder why SLURM_PROCID differs from RANK."""
    if family is None or family.starter == "srun" or not slurm_in_step(around):
        return []
    return [f"SLURM_PROCID={around.get('SLURM_PROCID')} is that of mpiexec's proxy: ignored."]


def _check(placement: Placement) -> None:
    """Refuse numbers that no rank can have."""

    def said(field: str) -> str:
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
                f"{said(low)} {must} {said(high)}: these come from different starts, or were set by hand."
                f" Unset what is left over before the ranks are started ({UNSET_TRIPLE}), or mend what"
                " sets them."
            )


def _shown_family(family: Placement) -> str:
    told = (field for field in PLACE[:3] if field in family.sources)
    return ", ".join(f"{family.sources[field]}={getattr(family, field)}" for field in told)
