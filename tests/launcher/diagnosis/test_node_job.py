"""The job that tries nodes, and how it is watched."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from castoff.launcher.cli import doctor
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Search, Site
from castoff.launcher.diagnosis import node_job
from castoff.launcher.planning.planner import plan
from castoff.launcher.runs.run import RunDirectory

AURORA = Site.load("aurora", search=Search({}, None))
PLAIN = Site.load("slurm", search=Search({}, None))


def job(site: Site = PLAIN, *, limit: str | None = None, **fields: Any) -> JobSpec:
    return node_job.node_job(JobSpec.of({"command": ["train"], **fields}), site, 2, limit)


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
        restart={"max": 3},
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
    fields: dict[str, Any] = {
        "account": "a",
        "queue": "debug",
        "directives": {"pbs": {"filesystems": "home"}},
    }
    assert plan(job(AURORA, **fields), AURORA).ranks == 24
    assert plan(job(ranks_per_node=4, devices_per_rank=1), PLAIN).ranks == 8
    assert plan(job(ranks_per_node=4), PLAIN).ranks == 2


def test_its_python_its_walltime_and_the_users_own_checks() -> None:
    assert job().command[-1] == "python"
    made = job(command=["env/bin/python3.12", "train.py"], walltime="9h", limit="20m", preflight=["true"])
    assert made.command[-1] == "env/bin/python3.12" and made.preflight == ["true"]
    assert made.walltime == "20m"


Watch = Callable[..., list[str]]
"""Watch a run that has these states; what is said of it, and `cancelled` where it is."""


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Watch:
    (tmp_path / "plan.json").write_text('{"ranks": 2}')

    def watch(
        *states: str, interrupted: type[BaseException] | None = None, never_begins: bool = False
    ) -> list[str]:
        said: list[str] = []

        def poll(runs: Any) -> Iterator[list[Any]]:
            for state in states:
                yield [SimpleNamespace(state=state, reason=None, walltime=60, never_begins=never_begins)]
            if interrupted:
                raise interrupted

        def end(runs: Any) -> list[Any]:
            said.append("cancelled")
            return [SimpleNamespace(after=None)]

        monkeypatch.setattr(node_job, "poll", poll)
        monkeypatch.setattr(node_job, "end", end)
        run = RunDirectory(tmp_path)
        with contextlib.suppress(KeyboardInterrupt, SystemExit), node_job.cancelled_on_interrupt(run):
            node_job.watch(run, said.append)
        return said

    return watch


def test_progress_is_said_when_it_changes(watched: Watch) -> None:
    said = watched("pending", "pending", "running", "running", "ended")
    assert said == ["pending", "running: 0 of 2 ranks have begun", "ended"]


def test_what_is_cancelled(watched: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can never begin, what is interrupted, and what outlives its walltime."""
    assert watched("pending", never_begins=True) == ["pending", "cancelled"]
    for how in (KeyboardInterrupt, SystemExit):  # the second by TERM
        assert watched("pending", interrupted=how) == ["pending", "cancelled"]
    monkeypatch.setattr(node_job, "_OVERDUE", -61.0)
    assert watched("running", "running")[-1] == "cancelled"


def test_term_right_behind_its_announcement_cancels_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else doctor would end alone, and leave its job in the queue."""
    cancelled: list[Any] = []

    def report(text: str) -> None:
        print(text)
        if "Ctrl-C cancels it" in text:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(doctor, "report", report)
    monkeypatch.setattr(node_job, "refusals", lambda *_: iter(()))
    monkeypatch.setattr(node_job, "start", lambda *_: SimpleNamespace(id="it", job="7", path=tmp_path))
    monkeypatch.setattr(node_job, "end", cancelled.extend)
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("nobody waits for it"))
    try:
        with pytest.raises(SystemExit) as left:
            list(doctor._nodes(cast("Any", None), 2, None, quiet=True))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert left.value.code == 128 + signal.SIGTERM
    assert [one.id for one in cancelled] == ["it"]
    assert capsys.readouterr().out.endswith("run it was cancelled\n")
