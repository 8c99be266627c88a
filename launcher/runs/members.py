"""The run and the members that a reference means, as `sweep:3,7-9`, or `sweep` with `lr=1e-3`."""

from __future__ import annotations

from collections.abc import Sequence

from castoff.launcher.config.array_indices import indices, members_range
from castoff.launcher.config.array_indices import problem as problem_of_indices
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.parameters import parameters_of
from castoff.launcher.runs.run import RunDirectory


def numbered(index: Index, reference: str) -> tuple[str, list[int]]:
    """A run's reference and the numbers of members in it: `sweep:3,7-9`; none if all are meant."""
    run, colon, text = reference.rpartition(":")
    if not colon or problem_of_indices(text) is not None or is_run(index, reference):
        return reference, []
    return run, indices(text)


def is_run(index: Index, word: str) -> bool:
    """Whether a word names a run."""
    try:
        index.find(word)
    except CastoffError:
        return False
    return True


def members_selected(
    run: RunDirectory, selectors: Sequence[str], members: Sequence[int] = ()
) -> frozenset[int]:
    """The members with these numbers or parameters; empty: all.

    Raises:
        CastoffError: the run has no such member, parameter or value.
    """
    known = run.facts().members
    if unknown := sorted({*members} - {*known}):
        raise CastoffError(f"{run.id}: no member {unknown[0]}; members are {members_range(known)}")
    chosen = parameters_of(run).selected(run.id, selectors) if selectors else ()
    return frozenset(members).union(chosen)
