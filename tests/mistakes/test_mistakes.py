"""What a mistake looks like to whoever made it: it is shown once, the rank is named, and nothing hangs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import patience
from tests.command_line import COMMAND, environment
from tests.mistakes.programs import MISTAKES, Mistake

pytestmark = pytest.mark.usefixtures("for_real")

EVERYDAY = {
    ("loss", "launch", 3),
    ("loss on one rank", "launch", 2),
    ("loss", "torchrun", 2),
}
"""What `make test` tries with programs that are started; the others take `make test-long`."""


class Shown(NamedTuple):
    """What a terminal shows of a program, and its exit code."""

    text: str
    code: int


def run(folder: Path, *words: str | Path) -> Shown:
    """A command, as on a terminal."""
    done = subprocess.run(
        [*map(str, words)],
        cwd=folder,
        env=environment({"OMP_NUM_THREADS": "1"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    return Shown(done.stdout, done.returncode)


def launch(folder: Path, program: Path, ranks: int) -> Shown:
    return run(folder, COMMAND, "launch", "-n", str(ranks), "--", sys.executable, program)


def torchrun(folder: Path, program: Path, ranks: int) -> Shown:
    words: list[str | Path] = ["--standalone", f"--nproc-per-node={ranks}", program]
    return run(folder, sys.executable, "-m", "torch.distributed.run", *words)


STARTERS: dict[str, Callable[[Path, Path, int], Shown]] = {"launch": launch, "torchrun": torchrun}


def cases() -> list[object]:
    """Every mistake, by each starter, on 1, 2 and 3 ranks."""
    return [
        pytest.param(*case, id="-".join(map(str, case)), marks=[] if case in EVERYDAY else [pytest.mark.long])
        for name in MISTAKES
        for starter in STARTERS
        for ranks in (1, 2, 3)
        if (case := (name, starter, ranks))
    ]


@pytest.mark.parametrize(("name", "starter", "ranks"), cases())
def test_a_mistake_is_shown_once(name: str, starter: str, ranks: int, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    shown = STARTERS[starter](tmp_path, mistake.write(tmp_path), ranks)
    see_that_it_is_told(mistake, shown.text, ranks)
    assert shown.code == (1 if starter == "torchrun" else mistake.code), shown.text


def see_that_it_is_told(mistake: Mistake, text: str, ranks: int) -> None:
    """The cause once, and of several ranks which it was."""
    causes = [line for line in text.splitlines() if mistake.shows in line]
    assert len(causes) == 1, text
    if ranks > 1 and mistake.alone:
        assert f"rank{ranks - 1}" in causes[0] or f"RANK {ranks - 1}" in causes[0], text
