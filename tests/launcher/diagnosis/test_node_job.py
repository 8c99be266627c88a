"""The job that tries nodes, and how it is watched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.config.job import JobSpec
from launcher.config.site import Search, Site
from launcher.diagnosis import node_job
from launcher.planning.planner import plan
from launcher.runs.states import MemberStatus, RunStatus

AURORA = Site.load("aurora", search=Search({}, None))
PLAIN = Site.load("slurm", search=Search({}, None))


def job(site: Site = PLAIN, nodes: int = 2, walltime: str | None = None, **fields: Any) -> JobSpec:
    return node_job.node_job(JobSpec.of({"command": ["train"], **fields}), site, nodes, walltime)


def test_it_runs_where_the_job_would_and_does_nothing_else_of_it() -> None:
    made = job(
        account="astro",
        queue="debug",
        setup=["module load x"],
        env={"A": "1"},
        exclude="n3",
        nodes=64,
        ranks=512,
        walltime="12:00:00",
        memory="500G",
        array={"count": 9},
        requeue={"max": 3},
        restart={"max": 3, "spare_nodes": 1},
        stage=[{"from": "data.tar"}],
        launcher={"torchrun": True, "args": ["--mpi=pmix"]},
        after={"afterok": ["other"]},
    )
    assert (made.account, made.queue, made.setup, made.env) == (
        "astro",
        "debug",
        ["module load x"],
        {"A": "1"},
    )
    assert (made.nodes, made.ranks, made.walltime, made.exclude) == (2, None, "3m", "n3")
    assert made.launcher.args == ["--mpi=pmix"] and not made.launcher.torchrun
    assert made.preflight is True
    decided = plan(made, PLAIN)
    assert (decided.ranks, decided.array_count, decided.requeue_max, decided.stage) == (2, None, 0, [])


def test_a_rank_for_each_device() -> None:
    fields = {"account": "a", "queue": "debug", "directives": {"pbs": {"filesystems": "home"}}}
    assert plan(job(AURORA, **fields), AURORA).ranks == 24
    assert plan(job(ranks_per_node=4, devices_per_rank=1), PLAIN).ranks == 8
    assert plan(job(ranks_per_node=4), PLAIN).ranks == 2


def test_its_python_its_walltime_and_the_users_own_checks() -> None:
    assert job().command[-1] == "python"
    made = job(command=["env/bin/python3.12", "train.py"], walltime="9h", preflight=["true"])
    assert made.command[-1] == "env/bin/python3.12" and made.preflight == ["true"]
    assert node_job.node_job(JobSpec(), PLAIN, 1, "30m").walltime == "30m"


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """What `watch` comes to where a run has these states, and whether it was cancelled."""

    class Request:
        after = None

    def watch(*states: str, interrupted: bool = False, never_begins: bool = False) -> tuple[list[str], bool]:
        cancelled, said = [], []
        (tmp_path / "plan.json").write_text('{"ranks": 2}')

        def poll(runs: Any) -> Any:
            for state in states:
                member = MemberStatus(
                    member=0, state=state, attempts=[], dependency_never_satisfied=never_begins
                )
                facts = {"id": "x", "directory": "", "name": "x", "final": False, "walltime": 60}
                yield [RunStatus(**facts, state=state, members=[member])]
            if interrupted:
                raise KeyboardInterrupt

        monkeypatch.setattr(node_job, "poll", poll)
        monkeypatch.setattr(node_job, "end", lambda runs: cancelled.append(runs) or [Request()])
        node_job.watch(node_job.RunDirectory(tmp_path), said.append)
        return said, bool(cancelled)

    return watch


def test_progress_is_said_when_it_changes(watched: Any) -> None:
    said, cancelled = watched("pending", "pending", "running", "running", "ended")
    assert said == ["pending", "running: 0 of 2 ranks have begun", "ended"] and not cancelled


def test_what_is_cancelled(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can never begin, what outlives its walltime, and what is interrupted."""
    assert watched("pending", never_begins=True)[1]
    monkeypatch.setattr(node_job, "_OVERDUE", -61.0)
    assert watched("running", "running")[1]
    ended: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        ended.append(watched("pending", interrupted=True))
