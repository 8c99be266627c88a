"""The same training by castoff, Fabric, accelerate and Lightning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_line import Castoff

FOLDER = Path(__file__).parents[2] / "examples" / "coming_from"
PAGE = FOLDER.parents[1] / "docs" / "how-to" / "coming-from.md"


def test_the_guide_shows_the_program_and_links_to_the_others() -> None:
    text = PAGE.read_text()
    assert f"# with_castoff.py\n{(FOLDER / 'with_castoff.py').read_text()}```" in text
    others = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "with_castoff.py")
    assert sorted(re.findall(r"coming_from/(\w+\.py)", text)) == others


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("castoff", marks=pytest.mark.costly),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("fabric", "accelerate", "lightning")),
    ],
)
@pytest.mark.usefixtures("for_real")
def test_two_ranks_have_the_losses_of_the_guide(name: str, castoff_command: Castoff) -> None:
    answer = castoff_command("launch", "-n", "2", "--", "python", FOLDER / f"with_{name}.py")
    assert answer.returncode == 0, answer.stdout
    losses = re.findall(r"^\[0\] (loss .*)$", PAGE.read_text(), re.MULTILINE)
    assert re.findall(r"^\[0\] (loss \d.*)$", answer.stdout, re.MULTILINE) == losses
