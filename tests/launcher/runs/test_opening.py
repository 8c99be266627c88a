"""Whoever opens a run directory has it checked: others may have written what lies in it."""

from __future__ import annotations

import ast
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.api.run import Run
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.drafts import new_run
from castoff.launcher.runs.index import Entry
from castoff.launcher.runs.owner import record_owner
from castoff.launcher.runs.records import Cancelled, Submission
from castoff.launcher.runs.removal import remove, sweep
from castoff.launcher.runs.run import RunDirectory, request_stop
from castoff.launcher.runs.secrets import remove_secrets
from castoff.launcher.schedulers.local import control
from castoff.launcher.submission.resubmit import resubmit
from tests.test_architecture import CHECKOUT, parsed

REFUSAL = "others may write to it"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run that was opened while it was the user's own, and that others may write to since."""
    with new_run("job", tmp_path) as draft:
        draft.run.script.write_text("#!/bin/bash\n")
        run = draft.publish()
    run.path.chmod(0o777)
    return run


@pytest.mark.parametrize("opens", [RunDirectory, Run, lambda path: Entry(str(path), "job", 0.0).run])
def test_opening_checks(opens: Callable[[Path], RunDirectory], run: RunDirectory) -> None:
    with pytest.raises(CastoffError, match=REFUSAL):
        opens(run.path)
    run.path.chmod(0o700)
    opened = opens(run.path)
    run.path.chmod(0o770)
    with pytest.raises(CastoffError, match=REFUSAL):
        pickle.loads(pickle.dumps(opened)) if isinstance(opened, Run) else opened.reopened()


def test_a_directory_that_is_gone_or_not_there_yet_can_be_opened(tmp_path: Path) -> None:
    assert RunDirectory(tmp_path / "none").submission() is None


def test_one_that_cannot_be_looked_at_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: Path) -> os.stat_result:
        raise OSError(116, "Stale file handle", str(path))

    monkeypatch.setattr(Path, "lstat", stale)
    with pytest.raises(CastoffError, match="cannot be accessed: Stale file handle"):
        RunDirectory(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        remove,
        request_stop,
        control.cancel,
        resubmit,
        lambda run: record_owner(run, 0),
        lambda run: run.write("cancelled.json", Cancelled()),
        lambda run: run.write("attempts/0.0/usage.json", Cancelled()),
        lambda run: run.write_submission(Submission()),
    ],
)
def test_whatever_changes_a_run_opens_it_again(
    change: Callable[[RunDirectory], object], run: RunDirectory
) -> None:
    before = sorted(run.path.rglob("*"))
    with pytest.raises(CastoffError, match=REFUSAL):
        change(run)
    assert sorted(run.path.rglob("*")) == before


def test_secrets_and_drafts_of_others_are_left_alone(run: RunDirectory) -> None:
    (run.path / "secrets.sh").touch()
    remove_secrets(run, None)
    draft = run.path.rename(run.path.with_name(".job-1.draft"))
    assert sweep(draft.parent) == [] and (draft / "secrets.sh").exists()


def test_nothing_is_written_where_a_run_was(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RunDirectory(tmp_path / "gone").write("cancelled.json", Cancelled())
    assert not (tmp_path / "gone").exists()


def test_only_opening_checks() -> None:
    """A second check elsewhere would hide where the one is that counts."""
    rooms = ("launcher/runs/", "launcher/trust/")
    paths = (path.relative_to(CHECKOUT).as_posix() for path in sorted((CHECKOUT / "launcher").rglob("*.py")))
    assert [
        f"{path}:{node.lineno}"
        for path in paths
        if not path.startswith(rooms)
        for node in ast.walk(parsed(CHECKOUT / path))
        if isinstance(node, ast.alias | ast.Name | ast.Attribute)
        and {"check_trusted", "check_list"} & {*vars(node).values()}
    ] == []
