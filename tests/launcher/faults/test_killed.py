"""castoff killed between any two effects: no half run, nothing twice, and the next command explains."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from castoff.launcher.cli import main as cli
from castoff.launcher.process.locks import locked
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import LOCK, RunDirectory, request_stop, stop_requested
from castoff.launcher.schedulers.local.control import cancel
from castoff.launcher.submission import resubmit as resubmission
from castoff.launcher.submission.resubmit import resubmit
from tests.records import submission_of

from .conftest import Workplace

pytestmark = pytest.mark.costly

Workplaces = Callable[[object], Workplace]


def each_kill(count: int, workplace: Workplaces, kill: Callable[[Workplace, int], None]) -> None:
    """Do it once for every effect; a failure says which it was."""
    for number in range(1, count + 1):
        here = workplace(number)
        try:
            kill(here, number)
        except AssertionError as error:
            last = here.effects()[-1:] or ["nothing"]
            raise AssertionError(f"killed at effect {number} of {count}: {last[0]}") from error


def test_submit(workplace: Workplaces) -> None:
    here = workplace("count")
    count = len(here.killed(lambda: cli.main(here.submit_words()), 0))
    (run,) = here.runs()
    assert here.settled(run).ending == "done" and here.ran() == ["0"]
    never_began = []

    def kill(here: Workplace, number: int) -> None:
        here.killed(lambda: cli.main(here.submit_words()), number)
        runs = here.runs()
        for run in runs:
            if here.settled(run).ending == "done":
                assert here.ran() == ["0"] and here.castoff("status", run.id).code == 0
            else:
                never_began.append(number)
                goes_on(here, run, "castoff was killed during the submission, so nothing began")
        if not runs:
            no_run(here)
        here.submits_again()

    each_kill(count, workplace, kill)
    assert count > 20 and never_began


def goes_on(here: Workplace, run: RunDirectory, words: str) -> None:
    """A run that never began says so, and does when it is resubmitted."""
    assert run.attempts() == [] and here.ran() == []
    reported = here.castoff("status", run.id)
    assert reported.code == 0 and words in reported.output and run.id in here.castoff("status").output
    answer = here.castoff("resubmit", run.id)
    assert answer.code == 0, answer.errors
    assert here.settled(run).ending == "done" and here.ran() == ["0"]


def no_run(here: Workplace) -> None:
    """Nothing ran, nothing is taken for a run, and whoever asks for it is told what became of it."""
    assert here.ran() == []
    index = Index.of(os.environ).path
    for path in here.drafts():
        known = index.exists() and path.name[1:].rpartition(".")[0] in index.read_text()
        reported = here.castoff("status", path.name[1:].rpartition(".")[0])
        assert reported.code == 1 and reported.errors.count("\n") == 1
        assert ("its submission was interrupted before it reached the scheduler" in reported.errors) == known
        assert here.castoff("status", path).code == 1


@pytest.mark.parametrize("who", ["first", pytest.param("detached", marks=pytest.mark.long)])
def test_the_start_of_the_scheduler(workplace: Workplaces, who: str) -> None:
    """Until it has answered; `castoff submit` says what became of it, and what it says is true."""
    here = workplace("count")
    assert here.with_scheduler(who, 0).code == 0
    assert here.settled(here.runs()[0]).ending == "done" and here.ran() == ["0"]
    effects = here.effects()
    count = max([at for at, effect in enumerate(effects) if "/dev/null" in effect], default=len(effects)) + 1

    def kill(here: Workplace, number: int) -> None:
        answer = here.with_scheduler(who, number)
        (run,) = here.runs()
        now = here.settled(run)
        if now.ending == "done":
            assert here.ran() == ["0"] and answer.code == 0
        elif answer.code == 0:  # it had promised to, and was killed alone, before anything began
            goes_on(here, run, "its scheduler is gone and no ending was recorded")
        else:
            assert "nothing was started" in answer.errors and now.ending == "failed"
            goes_on(here, run, "it could not be submitted: ")
        here.submits_again()

    each_kill(count, workplace, kill)


SLOW = "import os, time\nwhile not os.path.exists({go!r}): time.sleep(0.01)\n"
"""What keeps a Python from getting round to anything until a file is there."""


def test_no_second_scheduler_while_the_first_comes_up(
    workplace: Workplaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who submitted is dead, and the scheduler has not got round to anything."""
    here = workplace("slow")
    go = here.folder / "go"
    go.touch()
    (here.folder / "sitecustomize.py").write_text(SLOW.format(go=str(go)))
    monkeypatch.setenv("PYTHONPATH", str(here.folder))
    here.killed(lambda: cli.main(here.submit_words()), 0)
    effects = here.effects()
    at = len(effects) - effects[::-1].index("after _fork_exec")  # the last one: git was asked before
    go.unlink()
    here = workplace("killed")
    here.killed(lambda: cli.main(here.submit_words()), at)
    monkeypatch.delenv("PYTHONPATH")
    (run,) = here.runs()
    assert "state      pending" in here.castoff("status", run.id).output.splitlines()
    for words in (["resubmit", run.id], ["resubmit", run.id, "--include-done"]):
        answer = here.castoff(*words)
        assert answer.code == 1 and "still running" in answer.errors
    by_hand = [sys.executable, "-m", "castoff.launcher.cli.local_scheduler", str(run.path)]
    answer_by_hand = subprocess.run(by_hand, cwd="/", capture_output=True, text=True, check=False)
    assert answer_by_hand.returncode == 1
    go.touch()
    assert here.settled(run).ending == "done" and here.ran() == ["0"]


@pytest.fixture
def failed(workplace: Workplaces) -> RunDirectory:
    """A run that has failed, to be copied."""
    here = workplace("failed")
    (here.folder / "fail").touch()
    assert here.castoff(*here.submit_words()).code == 0
    (run,) = here.runs()
    assert here.settled(run).ending == "failed"
    return run


def test_resubmit(workplace: Workplaces, failed: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    here = workplace("count")
    run = here.copy_of(failed)
    (run.path / "stop").touch()
    (run.path / "cancel").touch()
    here.killed(lambda: resubmit(run), 0)
    effects = here.effects()
    assert here.settled(run).ending == "done" and here.ran() == ["1"]

    def kill(here: Workplace, number: int) -> None:
        run = here.copy_of(failed)
        (run.path / "stop").touch()
        (run.path / "cancel").touch()
        here.killed(lambda: resubmit(run), number)
        now = here.settled(run)
        assert here.castoff("status", run.id).code == 0
        if "after _fork_exec" in here.effects():
            assert now.ending == "done" and here.ran() == ["1"]
            assert len(now.members[0].attempts) == 2 and len(submission_of(run).earlier) == 1
            return
        assert here.ran() == [] and now.ending == "failed" and len(now.members[0].attempts) == 1
        sent: list[RunDirectory] = []
        with monkeypatch.context() as patch:
            patch.setattr(resubmission, "send", lambda run, *_: sent.append(run))
            assert here.castoff("resubmit", run.id).code == 0
        assert [one.path for one in sent] == [run.path]
        assert submission_of(run).begin == {0: 1}
        assert not (run.path / "stop").exists() and not (run.path / "cancel").exists()

    each_kill(len(effects), workplace, kill)
    assert "after _fork_exec" in effects


@pytest.mark.parametrize(
    ("wish", "asked"), [(request_stop, ["stop", "attempts/0.0/stop"]), (cancel, ["cancel"])]
)
def test_stop_and_cancel(
    workplace: Workplaces, failed: RunDirectory, wish: Callable[[RunDirectory], None], asked: list[str]
) -> None:
    """Of a run that goes on, as its lock says; asked a second time, it is asked."""

    def kill(here: Workplace, number: int) -> None:
        run = here.copy_of(failed)
        (run.path / "attempts" / "0.0" / "ending.json").unlink()
        with locked(run.path / LOCK):
            here.killed(lambda: wish(run), number)
            assert here.castoff("status", run.id).output.count("\nstate      running") == 1
            # An attempt is not asked before those that wait are.
            assert stop_requested(run) or not (run.path / "attempts" / "0.0" / "stop").exists()
            wish(run)
            assert all((run.path / name).exists() for name in asked)

    here = workplace("count")
    kill(here, 0)
    each_kill(len(here.effects()), workplace, kill)


@pytest.mark.long
def test_the_life_of_the_scheduler(workplace: Workplaces) -> None:
    """Its script goes on and ends well; nothing is started beside it, or after it."""
    here = workplace("count")
    assert here.with_scheduler("detached", 0).code == 0
    here.settled(here.runs()[0])

    def kill(here: Workplace, number: int) -> None:
        here.with_scheduler("detached", number)
        (run,) = here.runs()
        again = here.castoff("resubmit", run.id)
        now = here.settled(run)
        if now.ending == "done":
            assert here.castoff("resubmit", run.id).errors.endswith(
                "it is done; --include-done restarts it\n"
            )
        else:
            assert here.castoff("resubmit", run.id).code == 0
            assert here.settled(run).ending == "done"
        assert len(here.ran()) == 1, again

    each_kill(len(here.effects()), workplace, kill)
