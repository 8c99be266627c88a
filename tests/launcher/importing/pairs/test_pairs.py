"""A script and its conversion do the same: the same programs, files, exit codes and resources."""

from __future__ import annotations

import pytest

from tests.launcher.importing.pairs import kinds, others, shapes
from tests.launcher.importing.pairs.pair import Converted, Original, convert, differences

pytestmark = pytest.mark.costly

pytest.importorskip("tree_sitter_bash")

PARTS = 8
"""Scripts of a part share a sandbox."""


def checked(originals: list[Original], part: int = 0, parts: int = 1) -> dict[str, Converted]:
    found, made = differences(originals[part::parts])
    told = [f"{name}:\n    " + "\n    ".join(those) for name, those in found.items()]
    assert not told, "\n".join(told)
    return made


@pytest.mark.parametrize("part", range(PARTS))
def test_kinds(part: int) -> None:
    checked(kinds.originals(), part, PARTS)


@pytest.mark.long
@pytest.mark.parametrize("part", range(2 * PARTS))
def test_other_forms_of_kinds(part: int) -> None:
    checked(kinds.other_forms(), part, 2 * PARTS)


@pytest.mark.parametrize("part", range(2))
def test_whole_scripts(part: int) -> None:
    checked(shapes.originals(), part, 2)


@pytest.mark.parametrize("part", range(2))
def test_pbs(part: int) -> None:
    checked(others.pbs(), part, 2)


@pytest.mark.parametrize("part", range(2))
def test_flux(part: int) -> None:
    checked(others.flux(), part, 2)


def test_there_are_enough_of_both() -> None:
    """Keeping every script, and refusing those that are hard, would differ in nothing."""
    slurm = [*kinds.originals(), *shapes.originals()]
    assert len(slurm) >= 150 and len(others.pbs()) >= 30 and len(others.flux()) >= 30
    least = {"slurm": (slurm, 30), "pbs": (others.pbs(), 4), "flux": (others.flux(), 6)}
    for scheduler, (originals, enough) in least.items():
        made = [convert(one) for one in originals]
        assert sum(one.lifted for one in made) >= enough, scheduler
        assert not [one.left for one in made if one.left]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("#SBATCH --clusters=other", "4: "),
        ("#SBATCH hetjob", "4: "),
        ("#SBATCH --gress=gpu:1", "4: "),
    ],
)
def test_what_is_refused_names_its_line(line: str, why: str) -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --time=10\n"
    found = convert(Original("refused", f"{head}{line}\nsrun ./prog a\n"))
    assert [one.startswith(why) for one in found.left] == [True]
