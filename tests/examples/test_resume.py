"""Programs of others' trainers: asked to stop, resumed, and as if nothing had happened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_line import Castoff

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = EXAMPLES.parent / "docs" / "how-to" / "lightning.md"
LINES = {"resume_loop.py": 5, "resume_lightning.py": 5, "resume_trainer.py": 4}
"""That castoff adds or changes in each program."""


@pytest.mark.parametrize("name", LINES)
def test_as_few_lines_as_the_guide_says(name: str) -> None:
    code = (EXAMPLES / name).read_text().partition('"""\n\n')[2]
    changed = [line for line in code.splitlines() if re.search(r"\b(resumable|run|callback)\b", line)]
    assert len(changed) == LINES[name], changed
    assert f"(../../examples/{name}) | {LINES[name]} |" in PAGE.read_text()


def test_nothing_after_the_loop_needs_a_batch() -> None:
    """An epoch that was stopped after its last batch has none when it resumes."""
    code = (EXAMPLES / "resume_loop.py").read_text()
    epoch = code.partition("for epoch in run.epochs")[2].partition("        scheduler.step()\n")[2]
    assert epoch and "loss" not in epoch


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("resume_loop.py", marks=pytest.mark.costly),
        pytest.param("resume_lightning.py", marks=pytest.mark.long),
        pytest.param("resume_trainer.py", marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("for_real")
def test_two_ranks_stop_and_resume_bit_for_bit(
    name: str, tmp_path: Path, castoff_command: Castoff, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPOCHS", "3")
    stop = tmp_path / "stop"
    stop.touch()
    sums = []
    for folder, code in (("whole", 0), ("parts", 75), ("parts", 0)):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.setenv("CASTOFF_STOP_FILE", str(stop if code else tmp_path / "never"))
        words: list[str | Path] = ["launch", "-n", "2", "--", "python", EXAMPLES / name]
        answer = castoff_command(*words, cwd=tmp_path / folder)
        assert answer.returncode == code, answer.stderr
        assert ("Stopped early at step" in answer.stdout) == bool(code)
        sums += re.findall(r"weights sum to (.*)", answer.stdout)
    assert len(sums) == 2 and sums[0] == sums[1]
