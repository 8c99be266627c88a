"""What a submit command's answer means, and what is done where it is none: the queue has the last word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from castoff import JobSpec, Site
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.status.watch import status
from castoff.launcher.submission import send
from castoff.launcher.submission.send import NotSent, Unclear
from castoff.launcher.submission.submit import submit
from tests.patience import until

from ..fake_pbs import FakePbs
from ..fake_slurm import FakeSlurm

QUEUES = 'for script; do :; done; echo "{job}|N/A|PENDING|Priority|900|N/A|N/A|$script" >>{queue}; '
REFUSES = "echo 'sbatch: error: Batch job submission failed: Invalid partition name' >&2; exit 1"

Submit = Callable[..., RunDirectory]


@pytest.fixture
def submitted(tmp_path: Path) -> Submit:
    def made(site: str, **fields: object) -> RunDirectory:
        changed = msgspec.structs.replace(Site.load(site), **fields)
        return submit(JobSpec.of({"name": "made", "command": ["true"]}), changed, runs_dir=tmp_path / "runs")

    return made


@pytest.fixture
def only(tmp_path: Path) -> Callable[[], RunDirectory]:
    """The run whose submission raised."""
    return lambda: RunDirectory(next((tmp_path / "runs").iterdir()))


class TestSlurm:
    @pytest.fixture
    def slurm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
        monkeypatch.setattr("castoff.launcher.status.settle.APART", 0.0)
        monkeypatch.setattr("castoff.launcher.status.settle._POLL", 0.01)
        return FakeSlurm(tmp_path, monkeypatch)

    def sends(self, slurm: FakeSlurm, then: str) -> None:
        """An sbatch that queues the script."""
        slurm.program("sbatch", QUEUES.format(job=4711, queue=slurm.queue) + then)

    @pytest.mark.parametrize(
        "then",
        [
            "echo 4711; exit 1",
            "echo 4711; kill -KILL $$",
            "echo 42; echo 4711",
            "echo 4711; echo 42; exit 3",
            "echo 42; kill -KILL $$",
            "echo 42; echo 43; echo 44 >&2",
            "echo 42 >&2; exit 1",
            "echo 'the epilogue of our own sbatch failed' >&2; exit 1",
            "",
        ],
    )
    def test_the_queue_knows(self, slurm: FakeSlurm, submitted: Submit, then: str) -> None:
        """An id is an id whatever the exit code, but a stray number is none."""
        self.sends(slurm, then)
        assert submitted("slurm").job == "4711"

    @pytest.mark.parametrize(
        "then",
        [
            "echo 4711",
            "echo Submitted batch job 4711",
            "echo '42 h left'; echo 4711",
            "echo 4711 >&2",
            "echo '4711;big' >&2",
            "echo 'Welcome, 42 users'; echo 'sbatch: Submitted batch job 4711 on cluster big' >&2",
            "echo 4711; echo 42 >&2",
        ],
    )
    def test_a_clear_answer_asks_nobody(self, slurm: FakeSlurm, submitted: Submit, then: str) -> None:
        slurm.program("sbatch", then)
        assert submitted("slurm").job == "4711"
        assert slurm.questions() == ["sbatch"]

    @pytest.mark.parametrize("before", ["", "echo 42; "])
    def test_a_refusal_is_confirmed(
        self, slurm: FakeSlurm, submitted: Submit, only: Callable[[], RunDirectory], before: str
    ) -> None:
        slurm.program("sbatch", before + REFUSES)
        with pytest.raises(NotSent, match="Invalid partition name\nnothing was started; the script is"):
            submitted("slurm")
        assert slurm.questions().count("squeue") == 1
        assert only().job is None and status(only()).ending == "failed"

    def test_a_refusal_that_nobody_confirms(
        self,
        slurm: FakeSlurm,
        submitted: Submit,
        only: Callable[[], RunDirectory],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(send, "_UNCLEAR_PATIENCE", 0.0)
        slurm.program("sbatch", REFUSES)
        slurm.program("squeue", "exit 1")
        with pytest.raises(Unclear) as error:
            submitted("slurm")
        assert "nothing was started" not in str(error.value)
        assert status(only()).unsettled

    def test_a_scheduler_that_was_not_reached(self, slurm: FakeSlurm, submitted: Submit) -> None:
        """Nor does it answer otherwise."""
        slurm.program("sbatch", "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
        slurm.program("squeue", "exit 1")
        with pytest.raises(
            NotSent, match=r"it did not reach Slurm; `castoff resubmit made-.*` submits it again"
        ):
            submitted("slurm")
        assert slurm.questions().count("squeue") == 1

    def test_one_that_hangs(
        self,
        slurm: FakeSlurm,
        submitted: Submit,
        only: Callable[[], RunDirectory],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """It is reported, and ended when the site's patience is over; the job may be queued all the same."""
        pid, wait = slurm.folder / "pid", send._await

        def wait_once_it_hangs(*words: Any) -> None:
            until(lambda: pid.exists() and pid.read_text())
            wait(*words)

        monkeypatch.setattr(send, "_await", wait_once_it_hangs)
        monkeypatch.setattr(send, "_SLOW", 0.1)
        monkeypatch.setattr(send, "_UNCLEAR_PATIENCE", 0.0)
        self.sends(slurm, f"echo $$ >{pid}; sleep 600 & wait")
        slurm.program("squeue", "exit 1")
        with pytest.raises(Unclear, match="no answer within 1 s"):
            submitted("slurm", submit_timeout="1s")
        waits = "still waiting for sbatch, which has not answered for 0.1 s; castoff gives up after 1 s"
        assert capsys.readouterr().err == f"castoff: {waits}\n"
        assert not psutil.pid_exists(int(pid.read_text()))
        assert (status(only()).state, only().job) == ("unknown", None)
        slurm.program("squeue", f"cat {slurm.queue}")
        assert (status(only()).state, only().job) == ("pending", "4711")


def test_pbs_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, submitted: Submit) -> None:
    """No stray number looks like an id of PBS."""
    pbs = FakePbs(tmp_path, monkeypatch)
    pbs.program("qsub", "echo 42; echo 126.head; exit 1")
    assert submitted("pbs").job == "126.head"
    assert [line.split()[0] for line in pbs.questions()] == ["qsub"]
