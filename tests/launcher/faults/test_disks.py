"""Folders that are full or may not be written: a clear error, nothing left behind, nothing sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounts import mount_read_only, mount_small, with_mounts

from .conftest import Workplace

pytestmark = pytest.mark.costly

Workplaces = Callable[[object], Workplace]

FILL = 'cat /dev/zero >"$CASTOFF_RUN_DIR/fill" 2>/dev/null; '
"""Leaves no room for another byte."""


@pytest.mark.parametrize("unit", ["size={}k", "nr_inodes={}"])
def test_full_at_each_stage(workplace: Workplaces, tmp_path: Path, unit: str) -> None:
    """The whole of it fits into more and more room: from no directory at all to a run that ends well."""
    became: list[str] = []

    def test() -> None:
        number = 0
        while became[-2:] != ["done", "done"]:
            number += 1
            here = workplace(f"{number}")
            mount_small(here.folder / "castoff-runs", unit.format(4 * number if "size" in unit else number))
            answer = here.castoff(*here.submit_words("--ranks-per-node", "1"))
            if answer.code != 0:
                became.append("refused")
                assert here.entries() == [] and here.ran() == [], answer.errors
                assert "No space left on device" in answer.errors and "Traceback" not in answer.errors
                continue
            (run,) = here.runs()
            now = here.settled(run)
            became.append(str(now.ending))
            assert len(here.ran()) <= 1 and here.castoff("status", run.id).code == 0
            assert now.ending == "done" or (now.state, now.ending) == ("ended", "failed"), now
        assert became.count("refused") > 3, became

    with_mounts(tmp_path, test)


@pytest.mark.parametrize(("code", "ended_with"), [(0, 74), (3, 3)])
def test_a_disk_that_fills_up_during_the_run(
    workplace: Workplaces, tmp_path: Path, code: int, ended_with: int
) -> None:
    """What its ranks write there is lost, even where its program does not notice."""

    def test() -> None:
        here = workplace("here")
        mount_small(here.folder / "castoff-runs", "size=200k")
        words = ["submit", "--site", "local", "--name", "job", "--ranks-per-node", "1"]
        program = f"{FILL} exit {code}"
        assert here.castoff(*words, "--", "sh", "-c", program).code == 0
        (run,) = here.runs()
        now = here.settled(run)
        assert (now.state, now.ending, now.code) == ("ended", "failed", ended_with), now
        if code == 0:
            status = here.castoff("status", run.id)
            assert "No space left on the disk of the run directory: output of the ranks" in status.output
            wait = here.castoff("wait", run.id)
            assert wait.code == 74, wait

    with_mounts(tmp_path, test)


def test_read_only(workplace: Workplaces, tmp_path: Path) -> None:
    def test() -> None:
        here = workplace("here")
        assert here.castoff(*here.submit_words()).code == 0
        (run,) = here.runs()
        here.settled(run)
        (run.path / "attempts" / "0.0" / "ending.json").write_text('{"ending": "failed", "code": 3}')
        mount_read_only(here.folder / "castoff-runs")
        assert here.castoff("status", run.id).code == 0
        for words, said in (
            (here.submit_words(), "the run directory cannot be made there: Read-only file system"),
            (["resubmit", run.id], "cannot be written: Read-only file system"),
        ):
            answer = here.castoff(*words)
            assert answer.code == 1 and answer.errors.count("\n") == 1
            assert said in answer.errors
        assert here.entries() == [run.path] and here.ran() == ["0"]

    with_mounts(tmp_path, test)


def test_wishes_that_cannot_be_written_down(workplace: Workplaces, tmp_path: Path) -> None:
    def test() -> None:
        here = workplace("here")
        assert here.castoff(*here.submit_words()).code == 0
        (run,) = here.runs()
        here.settled(run)
        (run.path / "attempts" / "0.0" / "ending.json").unlink()
        mount_read_only(here.folder / "castoff-runs")
        with (run.path / "local.lock").open() as lock:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
            for verb in ("stop", "cancel"):
                answer = here.castoff(verb, run.id)
                assert answer.code == 1
                assert f"cannot be written; {run.id} is still active: Read-only file system" in answer.errors

    with_mounts(tmp_path, test)


def test_no_room_in_the_index(workplace: Workplaces, tmp_path: Path) -> None:
    def test() -> None:
        here = workplace("here")
        mount_small(here.folder / "state", "size=4k")
        (here.folder / "state" / "full").write_bytes(bytes(4096))
        answer = here.castoff(*here.submit_words())
        assert answer.code == 0
        assert "the index of runs cannot be written: No space left on device" in answer.errors
        (run,) = here.runs()
        assert here.settled(run).ending == "done" and here.ran() == ["0"]

    with_mounts(tmp_path, test)
