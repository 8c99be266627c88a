"""Run: what a program does with a job that it has submitted, or that was submitted before."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff import CastoffError, JobSpec, Run, Site, StillRunning, submit, submit_all
from castoff.launcher.status import watch
from tests import patience

from ..conftest import Castoff, LocalJobs

Until = Callable[..., None]

WAITS = 'touch here.$CASTOFF_ATTEMPT; while [ ! -e "$CASTOFF_STOP_FILE" ]; do sleep 0.05; done; '
RESUMES = WAITS + '[ "$CASTOFF_ATTEMPT" != 0 ] || echo resume >"$CASTOFF_OUTCOME_FILE"'


@pytest.fixture
def local(jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Submits a line of shell."""
    monkeypatch.chdir(jobs.folder)
    return lambda sh, **fields: submit(JobSpec(command=["sh", "-c", sh], **fields), Site.load("local"))


def test_from_submission_to_logs(local: Callable[..., Run], capfd: pytest.CaptureFixture[str]) -> None:
    both_wrote = "touch wrote-$RANK; until [ -e wrote-0 ]; do sleep 0.01; done"
    run = local(f"echo rank $RANK; {both_wrote}; exit $RANK", name="pair", ranks_per_node=2)
    assert run.wait(patience.SECONDS).ending == "failed"
    reported = run.status()
    assert (reported.state, reported.code, reported.over) == ("ended", 1, True)
    why = f"reason='rank 1 on {socket.gethostname()} failed first: exit code 1'"
    words = f"id='{run.id}', state='ended', ending='failed', code=1, {why}, counts={{'failed': 1}}"
    assert (repr(run), repr(reported)) == (f"Run('{run.path}')", f"RunStatus({words})")
    shown = run.logs()
    assert shown.startswith("--- rank 1 on ") and "[0] rank 0\n" in shown and "[1] rank 1\n" in shown
    assert run.logs(rank=0) == run.logs(rank=0, tail=1) == "rank 0\n"
    assert capfd.readouterr() == ("", ""), "a program's output is its own"


def test_logs_returns_what_castoff_logs_prints(local: Callable[..., Run], castoff: Castoff) -> None:
    run = local("echo member $CASTOFF_ARRAY_INDEX", array={"count": 2})
    run.wait(patience.SECONDS)
    assert run.logs() == castoff("logs", run.path).stdout
    assert run.logs(member=1) == castoff("logs", run.path, "--member", "1").stdout
    for words, reported in (
        ({"member": 2}, "no member 2"),
        ({"rank": 1}, "no rank 1"),
        ({"attempt": 1}, "no attempt 1"),
    ):
        with pytest.raises(CastoffError, match=reported):
            run.logs(**words)


def test_it_is_found_again(local: Callable[..., Run], tmp_path: Path) -> None:
    run = local("true", name="once")
    run.wait(patience.SECONDS)
    for reference in (run.id, run.id[:-1], "once", str(run.path)):
        assert Run.find(reference).path == run.path
    assert Run.find("once").status().ending == "done"
    again = pickle.loads(pickle.dumps(run))
    assert again.path == run.path and again.status().ending == "done"
    with pytest.raises(CastoffError, match="no such run"):
        Run.find("twice")


def test_a_file_and_a_site_by_name(jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(jobs.folder)
    Path("job.yaml").write_text("command: [sh, -c, 'echo {x}']\n")
    run = submit("job.yaml", "local", parameters=[{"x": 1}])
    assert run.wait(patience.SECONDS).ending == "done" and run.logs(rank=0) == "1\n"
    with pytest.raises(CastoffError, match=r"is done; include_done=True restarts it"):
        run.resubmit()
    Path("several.yaml").write_text(
        "jobs: {a: {command: ['true']}, b: {after: {afterok: [a]}, command: [x]}}"
    )
    with pytest.raises(CastoffError, match=r"holds several jobs; castoff\.submit_all takes it"):
        submit(Path("several.yaml"), "local")
    group = submit_all("several.yaml", "local")
    assert group.id.startswith("several-") and group.wait(patience.SECONDS)["a"].ending == "done"
    with pytest.raises(CastoffError, match="site is 3, but takes a Site or a site's name"):
        submit("job.yaml", 3)  # type: ignore[arg-type]


def test_waiting_has_an_end(local: Callable[..., Run], until: Until) -> None:
    run = local(WAITS)
    until(Path("here.0").exists)
    for expected in (StillRunning, TimeoutError, CastoffError):
        with pytest.raises(expected, match=f"{run.id} is still running after 0 s"):
            run.wait(timeout=0)
    assert run.cancel().ending == "cancelled"
    assert run.wait(0).ending == "cancelled" == run.cancel().ending, "twice is not a mistake"


def test_it_stops_and_resumes(local: Callable[..., Run], until: Until) -> None:
    run = local(RESUMES)
    until(Path("here.0").exists)
    with pytest.raises(CastoffError, match="still running"):
        run.resubmit()
    assert run.stop().stop_requested
    assert run.wait(patience.SECONDS).ending == "resume"
    assert run.stop().ending == "resume", "nothing is left to stop"
    assert run.resubmit() == {0: 1}
    until(Path("here.1").exists)
    run.stop()
    assert run.wait(patience.SECONDS).ending == "done"
    with pytest.raises(CastoffError, match="is done"):
        run.resubmit()


def test_what_cannot_be_cancelled_is_an_error(
    local: Callable[..., Run], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = local(WAITS)
    until(Path("here.0").exists)
    (run.path / "submission.json").rename("aside.json")
    with pytest.raises(CastoffError, match="did not submit this run"):
        run.cancel()
    Path("aside.json").rename(run.path / "submission.json")
    run.cancel()


def test_who_asks_often_does_not_ask_its_scheduler_so_often(
    local: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = local("true")
    run.wait(patience.SECONDS)
    pollers = []
    monkeypatch.setattr(watch, "status", lambda _run, poller: pollers.append(poller))
    run.status(), run.status()
    assert pollers[0] is pollers[1]
    run.resubmit(include_done=True)
    run.status()
    assert pollers[2] is not pollers[0], "what was heard before says nothing of a new attempt"
    monkeypatch.undo()
    run.wait(patience.SECONDS)
