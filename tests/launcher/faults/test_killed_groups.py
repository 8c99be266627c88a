"""The submission of a group, killed between any two effects: the same command submits the rest, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.cli import main as cli
from castoff.launcher.runs.index import Index

from ..fake_slurm import FakeSlurm
from .conftest import Workplace

pytestmark = pytest.mark.costly

FILE = """
defaults: {ranks_per_node: 1, command: ["true"], walltime: 5m}
jobs:
  train: {after: {afterok: [prepare]}}
  prepare: {}
"""

BOTH = ["prepare", "train"]

QUEUES = (
    "for script; do :; done; job=$(($(wc -l <queue) + 7)); "
    'echo "$job|N/A|PENDING|Dependency|900|N/A|N/A|$script" >>queue; echo "$*" >>sent; echo $job'
)
"""An sbatch with a queue in the working directory."""


@pytest.fixture(autouse=True)
def _slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm(tmp_path, monkeypatch)
    slurm.program("sbatch", QUEUES)
    slurm.program("squeue", "cat queue")
    monkeypatch.setattr("castoff.launcher.status.settle.APART", 0.0)
    monkeypatch.setattr("castoff.launcher.status.settle._POLL", 0.01)
    monkeypatch.setenv("PATH", f"{slurm.folder}:/usr/bin:/bin")


def test_submit(workplace: Callable[[object], Workplace]) -> None:
    words = ["submit", "pipeline.yaml", "--site", "slurm", "--json"]

    def made(name: object) -> Workplace:
        here = workplace(name)
        (here.folder / "pipeline.yaml").write_text(FILE)
        (here.folder / "queue").touch()
        return here

    def jobs(here: Workplace) -> list[str]:
        """The names of the jobs in the queue, in the order of their submission."""
        lines = (here.folder / "queue").read_text().splitlines()
        return [line.rsplit("|", 1)[1].split("/")[-2].rsplit("-", 3)[0] for line in lines]

    def groups(here: Workplace) -> list[str]:
        return Index.of({"XDG_STATE_HOME": str(here.folder / "state")}).groups.ids()

    here = made("count")
    count = len(here.killed(lambda: cli.main(words), 0))
    assert jobs(here) == BOTH
    half = 0
    for number in range(1, count + 1):
        here = made(number)
        here.killed(lambda: cli.main(words), number)
        killed = f"at effect {number} of {count}: {here.effects()[-1]}"
        sent, begun = jobs(here), groups(here)
        answer = here.castoff(*words)
        assert answer.code == 0, (killed, answer.errors)
        half += sent == BOTH[:1]
        if len(sent) < 2 or begun[0] in answer.output:
            # The last: it was killed after the last job was sent, and before that was recorded.
            assert jobs(here) == BOTH and len(groups(here)) == 1, killed
            assert "afterok:7" in (here.folder / "sent").read_text().splitlines()[1], killed
        else:  # the whole group was submitted, so the same command begins another
            assert jobs(here) == 2 * BOTH and len(groups(here)) == 2, killed
    assert half > 10
