"""What a mistake looks like to whoever made it: it is shown once, the rank is named, and nothing hangs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import patience
from tests.command_line import COMMAND, environment
from tests.mistakes.programs import MISTAKES, Mistake
from tests.trainers.toys import Ranks

pytestmark = pytest.mark.usefixtures("for_real")

EVERYDAY = {
    *(
        (name, "forked", 3)
        for name in ("build_data", "loss", "export", "loss of one rank", "sys.exit", "worker")
    ),
    *((name, "forked", 3) for name in ("collective of one rank", "two missing fields", "unused parameter")),
    ("sampler of validation", "forked", 2),
    ("loss", "launch", 2),
    ("segfault", "forked", 2),
    ("before", "launch", 3),
}
"""What `make test` tries; all the others take `make test-long`, but for the costly."""

COSTLY = {("loss", "torchrun", 2), ("loss of one rank", "job", 2)}

OUTSIDE = {"init", "module", "before", "after"}
"""Mistakes outside of a training, where ranks have no group to agree by: Python shows them on each. castoff
launch and castoff logs show them once."""

AMONG_RANKS = {"thread", "stuck rank", "os._exit", "out of memory", "sizes", "unused parameter"}
"""Mistakes that only another rank can tell of, or that one rank alone cannot make."""

AMONG_THREE = "collective of one rank"
"""Between two ranks, gloo may see that the sizes differ, and ends the process with words of its own."""

STARTED = {
    (name, launcher, ranks)
    for name in ("build_data", "loss", "export", "worker", "sys.exit", "two missing fields")
    for launcher, ranks in (("launch", 3), ("job", 3), ("torchrun", 3), ("launch", 1), ("torchrun", 1))
} | {(name, launcher, 3) for name in OUTSIDE for launcher in ("launch", "job")}
"""What is tried by a launcher, which ends all ranks at the first that fails."""


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


def as_program(path: Path) -> None:
    """As an interpreter runs it that has nothing else to do."""
    try:
        runpy.run_path(str(path), run_name="__main__")
    except (Exception, KeyboardInterrupt):  # noqa: BLE001  what the interpreter itself would do
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(1)


def forked(folder: Path, program: Path, ranks: int) -> Shown:
    """Ranks that nobody ends when one of them fails, forked from a process that has loaded torch."""
    started = Ranks(folder / "ranks", ranks)
    with contextlib.chdir(folder):
        started.start(as_program, program)
    codes = [code if code >= 0 else 128 - code for code in started.end()]
    text = "".join(started.log(rank) for rank in range(ranks))
    return Shown(text, max(codes))


def job(folder: Path, program: Path, ranks: int) -> Shown:
    """On this machine; what `castoff logs` shows of all ranks."""
    fields = {"name": "wrong", "command": [sys.executable, program.name], "ranks_per_node": ranks}
    (folder / "job.yaml").write_text(json.dumps({**fields, "env": {"OMP_NUM_THREADS": "1"}}))
    assert run(folder, COMMAND, "submit", "job.yaml", "--site", "local").code == 0
    code = run(folder, COMMAND, "wait", "wrong").code
    shown = run(folder, COMMAND, "logs", "wrong").text
    return Shown(logged(shown) if code else shown, code)


def logged(shown: str) -> str:
    """What `castoff logs` shows of a job that failed, without the words of castoff that it quotes at first.

    A traceback there is not shown again; what is a line anyway, is.
    """
    quoted, _, below = shown.partition("--- all ranks ---\n")
    first, *lines = quoted.splitlines()
    assert "failed first" in first, shown
    again = {_LABEL.sub("", line) for line in below.splitlines() if "castoff train: " in line}
    return "\n".join([first, *(line for line in lines if line not in again), below])


LAUNCHERS: dict[str, Callable[[Path, Path, int], Shown]] = {
    "forked": forked,
    "launch": launch,
    "job": job,
    "torchrun": torchrun,
}


def _case(*case: str | int) -> object:
    rare = [pytest.mark.costly] if case in COSTLY else [pytest.mark.long]
    return pytest.param(*case, id="-".join(map(str, case)), marks=[] if case in EVERYDAY else rare)


def cases() -> list[object]:
    """Every mistake on as many ranks as can make it; some by launchers, too."""
    forked_ones = {
        (name, "forked", ranks)
        for name in MISTAKES
        for ranks in (1, 2, 3)
        if not (ranks == 1 and name in AMONG_RANKS)
        and not (ranks > 1 and name in OUTSIDE)
        and not (ranks < 3 and name == AMONG_THREE)
    }
    return [_case(*case) for case in sorted(forked_ones | STARTED | EVERYDAY | COSTLY)]


@pytest.mark.parametrize(("name", "launcher", "ranks"), cases())
def test_a_mistake_is_shown_once(name: str, launcher: str, ranks: int, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    program = mistake.write(tmp_path)
    if mistake.again:
        assert LAUNCHERS[launcher](tmp_path, program, ranks).code == 0
    shown = LAUNCHERS[launcher](tmp_path, program, ranks)
    see_that_it_is_reported(mistake, shown.text, ranks)
    assert shown.code == (1 if launcher == "torchrun" else mistake.code), shown.text


_QUOTED = re.compile(
    r"\((?:rank \d+ says more|as on rank \d+|shown above)\)$|castoff train: rank \d+ \(\S+\) ended "
)
"""Lines of other ranks, of which each says in one what another rank says in full."""

_LABEL = re.compile(r"^\[\d+\] ")
_RANK = re.compile(r"^\[RANK \d+\] ")


def see_that_it_is_reported(mistake: Mistake, text: str, ranks: int) -> None:
    """The cause once, and of several ranks which it was."""
    lines = [_LABEL.sub("", line) for line in text.splitlines()]
    given = [line for line in lines if mistake.shows in line and not _QUOTED.search(line)]
    # Before ranks have met, each says the same as rank 0 in a line of its own.
    causes = [line for line in given if not (_RANK.match(line) and _RANK.sub("", line) in lines)]
    assert len(causes) == 1, text
    if ranks > 1 and mistake.alone:
        where = text if mistake.code > 128 else causes[0]  # a signal leaves no words to the rank itself
        assert re.search(rf"\brank ?{ranks - 1}\b", where, re.IGNORECASE), text
