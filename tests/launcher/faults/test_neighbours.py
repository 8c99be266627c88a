"""Another user of the machine, in a folder where both may write, who would have his code run as us."""

from __future__ import annotations

import os
import pickle
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError
from castoff.launcher.executors import environment as job_environment
from castoff.launcher.runs.directory import is_draft
from castoff.launcher.runs.drafts import new_run
from castoff.launcher.runs.owner import is_alive
from castoff.launcher.runs.records import Submission
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.submission.resubmit import resubmit
from castoff.launcher.submission.submit import submit
from castoff.launcher.trust.granted import grant
from tests import patience

from ..conftest import STRANGER, LocalJobs, give_away
from ..fake_slurm import FakeSlurm

pytestmark = pytest.mark.costly

HIS = "#!/bin/sh\necho his\n"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A group's folder: setgid, and everybody of it writes there. Its parents are open to all to pass."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="castoff-shared-"))
    folder.chmod(0o2777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def neighbour(shared: Path) -> Callable[[str], int]:
    """Runs a line of shell as somebody else, in the shared folder; its exit code."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")

    def run(line: str) -> int:
        return subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=shared,
            env={"PATH": os.defpath},
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode

    return run


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """One whose sbatch keeps what it has read by the path that it was given."""
    fake = FakeSlurm(tmp_path, monkeypatch)
    fake.program("sbatch", f'for word do :; done; cat "$word" >{tmp_path}/read; echo 4711')
    fake.program("scancel", "true")
    return fake


def submitted(runs_dir: Path) -> RunDirectory:
    return submit(JobSpec.of({"command": ["true"]}), Site.load("slurm"), runs_dir=runs_dir)


def before_sending(monkeypatch: pytest.MonkeyPatch, act: Callable[[RunDirectory], object]) -> None:
    """Do something once a run has its name, and before its script is sent."""

    real = RunDirectory.write_submission

    def write(run: RunDirectory, record: Submission) -> None:
        real(run, record)
        if not is_draft(run.path):
            act(run)

    monkeypatch.setattr(RunDirectory, "write_submission", write)


def swap(folder: Path, script: str) -> str:
    """Shell that puts a folder with runs of his own in place of one, with a script of the same path."""
    inner = shlex.quote(script)
    return (
        f"mv {folder} {folder}.gone && mkdir -p $(dirname {inner}) && "
        f"printf %s {shlex.quote(HIS)} >{inner} && chmod -R 755 {folder}"
    )


class TestTheFolderOfRuns:
    @pytest.mark.parametrize(("umask", "mode"), [(0, 0o755), (0o002, 0o755), (0o022, 0o755), (0o077, 0o700)])
    def test_only_we_write_there(self, shared: Path, umask: int, mode: int) -> None:
        grant(shared, os.environ)
        before = os.umask(umask)
        try:
            with new_run("x", shared / "a" / "castoff-runs"):
                found = {stat.S_IMODE(path.stat().st_mode) for path in (shared / "a").rglob("castoff-runs")}
                found |= {stat.S_IMODE((shared / "a").stat().st_mode)}
        finally:
            os.umask(before)
        assert {one & 0o777 for one in found} == {mode}

    @pytest.mark.parametrize("mode", [0o775, 0o2775, 0o757, 0o777, 0o2777])
    @pytest.mark.parametrize("runs", ["", "inner/runs"])
    def test_one_where_others_write_is_refused(
        self, tmp_path: Path, mode: int, runs: str, slurm: FakeSlurm, shared_group: None
    ) -> None:
        folder = tmp_path / "castoff-runs"
        folder.mkdir()
        folder.chmod(mode)
        (tmp_path / "link").symlink_to(folder)
        for path in (folder / runs, tmp_path / "link" / runs):
            with pytest.raises(CastoffError, match=rf"can be changed by .* mode {mode:04o}\)") as caught:
                submitted(path)
            *_, allow, shut, keep = str(caught.value).split("\n")
            assert allow.endswith(f": castoff trust {folder}")
            assert shut == f"or shut them out: chmod go-w {folder}"
            assert keep.startswith("or keep runs in another folder, with --runs-dir")
        assert list(folder.rglob("job.sh")) == []

    def test_but_not_with_a_sticky_bit(self, tmp_path: Path) -> None:
        folder = tmp_path / "runs"
        folder.mkdir()
        folder.chmod(0o1777)
        with new_run("x", folder) as draft:
            assert draft.publish().path.parent == folder

    @pytest.mark.parametrize("mode", [0o755, 0o1777])
    def test_somebody_else_s_is_refused(self, tmp_path: Path, mode: int, slurm: FakeSlurm) -> None:
        """Its owner can rename what lies in it, sticky or not."""
        folder = tmp_path / "runs"
        folder.mkdir()
        folder.chmod(mode)
        give_away(folder)
        with pytest.raises(CastoffError, match=f"belongs to user {STRANGER}\nif you trust them with what "):
            submitted(folder)

    def test_so_is_that_of_a_run_to_send_again(
        self, tmp_path: Path, slurm: FakeSlurm, shared_group: None
    ) -> None:
        run = submitted(tmp_path / "runs")
        slurm.tells(run=run)
        run.path.parent.chmod(0o775)
        with pytest.raises(CastoffError, match="chmod go-w"):
            resubmit(run)
        assert "sbatch" in slurm.questions()


class TestSending:
    def test_a_neighbour_cannot_rename_a_run(
        self,
        shared: Path,
        neighbour: Callable[[str], int],
        slurm: FakeSlurm,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        codes = []
        before_sending(monkeypatch, lambda run: codes.append(neighbour(swap(run.path, str(run.script)))))
        monkeypatch.chdir(shared)
        with pytest.raises(CastoffError, match=f"{shared} can be changed by everybody"):
            submitted(Path("castoff-runs"))
        grant(shared, os.environ)
        before = os.umask(0)
        try:
            run = submitted(Path("castoff-runs"))
        finally:
            os.umask(before)
        assert codes == [1, 1] and run.job == "4711"
        assert (tmp_path / "read").read_text() == run.script.read_text() != HIS


class TestARunningJob:
    def test_a_neighbour_puts_a_folder_of_runs_of_his_in_its_place(
        self, shared: Path, neighbour: Callable[[str], int], jobs: LocalJobs
    ) -> None:
        """Minutes after the script began: neither his secrets nor his programs are run."""
        grant(shared, os.environ)
        jobs.folder = shared
        job = jobs.job(
            "env_from: [TOKEN]\n"
            "setup: [touch begun, 'until [ -e swapped ]; do sleep 0.05; done']\n"
            "command: [sh, -c, 'echo $TOKEN >ran']\n"
        )
        before = os.umask(0)
        try:
            run = jobs.submit(job, env={"TOKEN": "ours"})
        finally:
            os.umask(before)
        patience.until((shared / "begun").exists, "its setup")
        his = shlex.quote(f"touch {shared}/stolen; export TOKEN=his")
        code = neighbour(
            f"mv castoff-runs gone && mkdir -p castoff-runs/{run.id} && "
            f"echo {his} >castoff-runs/{run.id}/secrets.sh && touch swapped"
        )
        assert code == 0
        moved = RunDirectory(shared / "gone" / run.id)
        patience.until(lambda: not is_alive(moved), "its end")
        assert not (shared / "stolen").exists() and not (shared / "ran").exists()
        assert "another user's, so nothing is written there" in moved.script_log().read_text()
        assert not (moved.path / "secrets.sh").exists()


class TestUnpickling:
    """What is unpickled runs: it comes from the directory that was looked at, whatever has its path since."""

    def test_in_a_rank(self, tmp_path: Path) -> None:
        run = tmp_path / "run"
        for folder, text in ((run, "ours"), (tmp_path / "his", "his")):
            (folder / "functions").mkdir(parents=True)
            folder.chmod(0o700)
            (folder / "functions" / "0.pkl").write_bytes(pickle.dumps(text))
        paths = job_environment.FunctionPaths(run, "1", member=0, attempt=0, rank=0)
        paths.within = job_environment.held(run)
        assert paths.submitted_pickle.exists()
        run.rename(tmp_path / "gone")
        (tmp_path / "his").rename(run)
        assert pickle.loads(paths.submitted_pickle.read_bytes()) == "ours"
