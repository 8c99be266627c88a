"""Scripts that are asked to stop, resubmitted, or led astray: what they do by themselves."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.run import RunDirectory, request_stop
from castoff.launcher.submission.resubmit import resubmit
from tests import patience
from tests.cases import others_long
from tests.mounts import mount_small, with_mounts

from ..conftest import give_away
from .conftest import Benches
from .harness import Bench

KINDS = others_long(["local", "hydra", "pals", "srun"], ("local", "pals", "srun"))
DIRECTORY = {"hydra": "castoff-7.head", "pals": "castoff-7.head", "srun": "castoff-12"}


@pytest.mark.everyday("2-local")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("requeue", others_long([0, 2], [2]))
def test_asked_to_stop(kind: str, requeue: int, bench: Benches) -> None:
    """It ends with `resume`, and nobody starts it again."""
    here = bench(kind)
    running = here.start(ranks_per_node=2, requeue={"max": requeue}, env={"PROBE": "stop"})
    running.wait_for("ready", 2)
    request_stop(RunDirectory(here.run_dir()))
    ended = running.end()
    assert (ended.code, ended.ending) == (75, ("resume", 75)), ended.output
    # A copy on PBS was submitted as the attempt began, and is removed again.
    copies = 1 if requeue and kind in ("hydra", "pals") else 0
    assert len(here.calls("qsub")) == copies and ["requeue", "12"] not in here.calls("scontrol")
    assert not (ended.run_dir / "attempts" / "0.0" / "requeue").exists()


@pytest.mark.parametrize("kind", ["pals", "srun"])
def test_stopped_before_it_began(kind: str, bench: Benches) -> None:
    """As a job that waits in the queue, or a requeued one."""
    here = bench(kind)
    (here.folder / DIRECTORY[kind]).mkdir()
    (here.folder / DIRECTORY[kind] / "stop").touch()
    ended = here.run(ranks_per_node=1)
    assert (ended.code, ended.ending) == (143, ("cancelled", 143))
    assert "castoff: stopped before it began; castoff resubmit restarts it" in ended.output
    assert here.ranks() == []


def test_stopped_then_cancelled(bench: Benches) -> None:
    here = bench("srun")
    running = here.start(ranks_per_node=1, env={"PROBE": "wait resume"})
    running.wait_for("ready", 1)
    request_stop(RunDirectory(here.run_dir()))
    running.wait_for("stopping", 1)
    running.process.send_signal(signal.SIGTERM)
    assert running.end().ending == ("cancelled", 143)


@pytest.mark.long
def test_requeues_count_from_the_first_attempt_of_a_submission(bench: Benches) -> None:
    here = bench("srun")
    run_dir = here.run(requeue={"max": 1}, env={"PROBE": "fail 0 3"}).run_dir
    reported = {"PROBE": "outcome resume", "CASTOFF_RUN_DIR": str(run_dir)}
    reported |= {"CASTOFF_ATTEMPT": "1", "CASTOFF_FIRST_ATTEMPT": "1"}
    codes = [
        here.run(requeue={"max": 1}, env={**reported, "SLURM_RESTART_COUNT": str(restarts)}).code
        for restarts in range(2)
    ]
    assert codes == [0, 75]
    assert here.ranks()[0]["environ"]["CASTOFF_ATTEMPT"] == "2"


@pytest.mark.long
def test_a_copy_of_a_pbs_job_is_reported_where_counting_began(bench: Benches) -> None:
    here = bench("pals")
    run_dir = here.run(ranks_per_node=1, requeue={"max": 1}, env={"PROBE": "fail 0 3"}).run_dir
    reported = {"CASTOFF_RUN_DIR": str(run_dir), "CASTOFF_ATTEMPT": "1", "CASTOFF_FIRST_ATTEMPT": "1"}
    ended = here.run(ranks_per_node=1, requeue={"max": 1}, env={"PROBE": "outcome resume", **reported})
    assert (ended.code, ended.record("ending", "0.1")["ending"]) == (75, "resume")
    assert "CASTOFF_FIRST_ATTEMPT" in here.calls("qsub")[0][1].split(",")


class TestPlanted:
    """What stands where the script's directory belongs."""

    ALIEN = "{} is a link or another user's, so nothing is written there"

    def refused(self, here: Bench, path: Path, why: str = ALIEN, **env: str) -> None:
        running = here.start(ranks_per_node=1, env=env)
        output, _ = running.process.communicate(timeout=patience.SECONDS)
        assert running.process.returncode == 1
        assert f"castoff: {why.format(path)}\n" in output
        assert here.ranks() == []

    @pytest.mark.parametrize(("kind", "target"), [("srun", "there"), ("srun", "nowhere"), ("pals", "there")])
    def test_a_link(self, kind: str, target: str, bench: Benches) -> None:
        here = bench(kind)
        (here.seen.parent / "there").mkdir()
        planted = here.folder / DIRECTORY[kind]
        planted.symlink_to(here.seen.parent / target)
        self.refused(here, planted)
        assert list((here.seen.parent / "there").iterdir()) == []
        assert not (here.seen.parent / "nowhere").exists()

    def test_somebody_else_s(self, bench: Benches) -> None:
        here = bench("srun")
        planted = here.folder / DIRECTORY["srun"]
        planted.mkdir()
        give_away(planted)
        self.refused(here, planted)
        assert list(planted.iterdir()) == []

    @pytest.mark.parametrize("mode", [0o775, 0o702])
    def test_open_for_others_to_write_to(self, mode: int, bench: Benches) -> None:
        here = bench("srun", folder="a folder")
        planted = here.folder / DIRECTORY["srun"]
        planted.mkdir()
        planted.chmod(mode)
        why = (
            f"{{0}}: others may write to it (mode {mode:o}), so its contents may be theirs; if you trust it, "
        )
        self.refused(here, planted, why + "chmod go-w " + str(planted).replace(" ", "\\ "))
        assert list(planted.iterdir()) == []

    def test_made_in_a_folder_that_is_everybodys(self, bench: Benches) -> None:
        here = bench("srun")
        here.folder.chmod(0o2777)
        before = os.umask(0)
        try:
            assert here.run(ranks_per_node=1).code == 0
        finally:
            os.umask(before)
        assert here.run_dir().stat().st_mode & 0o777 == 0o700

    @pytest.mark.everyday("link")
    @pytest.mark.parametrize("kind", ["link", "theirs"])
    def test_named_by_a_submission(self, kind: str, bench: Benches) -> None:
        here = bench("srun")
        ended = here.run(ranks_per_node=1)
        before = sorted(ended.run_dir.rglob("*"))
        planted = here.seen.parent / "planted"
        if kind == "link":
            planted.symlink_to(ended.run_dir)
        else:
            planted.mkdir()
            shutil.copy(here.folder / "job.sh", planted)
            give_away(planted)
        for path in here.seen.iterdir():
            path.unlink()
        self.refused(here, planted, CASTOFF_RUN_DIR=str(planted))
        assert sorted(ended.run_dir.rglob("*")) == before


@pytest.mark.parametrize(("kind", "code"), [("hydra", 5), ("srun", 0)])
def test_a_directory_that_is_deleted_while_it_runs(kind: str, code: int, bench: Benches) -> None:
    """The exit code still says how it ended; of a failure it is the launcher's, as nothing else is left."""
    here = bench(kind)
    running = here.start(ranks_per_node=1, command=["sh", "-c", f'rm -r "$CASTOFF_RUN_DIR"; exit {code}'])
    output, _ = running.process.communicate(timeout=patience.SECONDS)
    assert (running.process.returncode == 0) == (code == 0), output


@pytest.mark.parametrize(("kind", "code"), [("hydra", 3), ("srun", 0)])
def test_a_disk_that_fills_up(kind: str, code: int, bench: Benches, tmp_path: Path) -> None:
    """Output may be lost, so a program that ended well has failed all the same."""
    here = bench(kind)

    def test() -> None:
        (here.folder / DIRECTORY[kind]).mkdir()
        mount_small(here.folder / DIRECTORY[kind], "size=100k,mode=700")
        program = f'cat /dev/zero >"$CASTOFF_RUN_DIR/fill" 2>/dev/null; exit {code}'
        ended = here.run(ranks_per_node=1, command=["sh", "-c", program])
        assert ended.ending == ("failed", ended.code), ended.output
        assert (ended.code == 74) == (code == 0)  # EX_IOERR

    with_mounts(tmp_path, test)


@pytest.mark.parametrize("kind", ["srun", "local"])
def test_a_script_submitted_without_castoff_is_not_resubmitted(kind: str, bench: Benches) -> None:
    ended = bench(kind).run(env={"PROBE": "fail 0 3"})
    with pytest.raises(CastoffError, match="castoff did not submit it"):
        resubmit(RunDirectory(ended.run_dir))
