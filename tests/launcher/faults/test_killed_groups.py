"""The submission of a group, killed between any two effects: the same command submits the rest, once."""

from __future__ import annotations

from collections.abc import Callable

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

QUEUES = (
    "for script; do :; done; job=$(($(wc -l <queue) + 7)); "
    'echo "$job|N/A|PENDING|Dependency|900|N/A|N/A|$script" >>queue; echo "$*" >>sent; echo $job'
)
"""An sbatch with a queue in the working directory."""


@pytest.fixture(autouse=True)
def _slurm(tmp_path: object, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    slurm = FakeSlurm(request.getfixturevalue("tmp_path"), monkeypatch)
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

    here = made("count")
    count = len(here.killed(lambda: cli.main(words), 0))
    assert jobs(here) == ["prepare", "train"]
    half = 0
    for number in range(1, count + 1):
        here = made(number)
        here.killed(lambda: cli.main(words), number)
        last = here.effects()[-1]
        before, groups = jobs(here), Index.of({"XDG_STATE_HOME": str(here.folder / "state")}).groups.ids()
        answer = here.castoff(*words)
        assert answer.code == 0, (number, last, answer.errors)
        assert "pipeline-" in answer.output
        (group,) = {*groups} or {*Index.of({"XDG_STATE_HOME": str(here.folder / "state")}).groups.ids()}
        if before == ["prepare"]:
            half += 1
        if len(before) < 2:
            assert jobs(here) == ["prepare", "train"], (number, last)
            assert group in answer.output
            assert "afterok:7" in (here.folder / "sent").read_text().splitlines()[1]
        elif group in answer.output:  # it was killed before the last job was recorded as sent
            assert jobs(here) == ["prepare", "train"], (number, last)
        else:  # the whole group was submitted, so the same command begins another
            assert jobs(here) == 2 * ["prepare", "train"], (number, last)
    assert half > 10
