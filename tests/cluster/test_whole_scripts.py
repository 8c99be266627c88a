"""What scripts do beside starting ranks: teardown, a driver of its own workers, arrays of any numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.runs.run import RunDirectory

from .desk import Desk
from .slurm import SlurmCluster

pytestmark = pytest.mark.costly

NOTE = "echo $CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT $CASTOFF_OUTCOME $CASTOFF_EXIT_CODE >>noted"
TORN = f'teardown=["sleep 0.5", "{NOTE}"]'


@pytest.fixture
def desk(slurm: SlurmCluster, tmp_path: Path) -> Desk:
    return Desk(slurm, tmp_path / "desk")


def noted(desk: Desk) -> list[str]:
    return (desk.folder / "noted").read_text().splitlines()


class TestTeardown:
    @pytest.mark.parametrize("code", [0, 3])
    def test_wait_returns_after_it(self, desk: Desk, code: int) -> None:
        (desk.folder / "words").write_text("text\n")
        both_wrote = 'until [ -s "$1/result-0" ] && [ -s "$1/result-1" ]; do sleep 0.01; done'
        copy = 'cp "$CASTOFF_STAGE_DIR"/result-* .'
        teardown = f"teardown=['{copy}', sleep 0.5, cpp_x]"
        run = desk.submit(
            *("--ranks-per-node", "2", "--set", "stage=[{from: words}]", "--set", teardown),
            sh=f'set "$CASTOFF_STAGE_DIR"; echo $RANK >"$1/result-$RANK"; {both_wrote}; exit {code}',
        )
        assert desk.castoff("wait", run.id).code == code
        assert (desk.folder / "result-0").read_text() == "0\n"
        (attempt,) = desk.status(run)["members"][0]["attempts"]
        assert (attempt["code"], attempt["reason"]) == (code, "teardown: this failed with code 127: cpp_x")

    def test_in_a_job_that_is_cancelled(self, desk: Desk) -> None:
        run = desk.submit("--set", TORN, sh="sleep 600")
        desk.until(run, state="running")
        desk.record(run, "start")
        assert desk.castoff("cancel", run.id).code == 0
        assert desk.castoff("wait", run.id).code != 0
        assert noted(desk) == ["0.0 cancelled 143"]

    @pytest.mark.long
    def test_of_each_attempt(self, desk: Desk) -> None:
        again = "[ $CASTOFF_ATTEMPT = 1 ] || echo resume >$CASTOFF_OUTCOME_FILE"
        run = desk.submit("--walltime", "5m", "--set", "requeue.max=1", "--set", TORN, sh=again)
        assert desk.castoff("wait", run.id).code == 0
        assert noted(desk) == ["0.0 resume 75", "0.1 done 0"]


class TestDriver:
    DRIVE = (
        "srun --ntasks-per-node=2 --ntasks=4 --overcommit sh -c 'echo worker $SLURM_PROCID on $(hostname)'"
    )

    def test_it_reaches_all_hosts(self, desk: Desk) -> None:
        script = desk.folder / "drive.sh"
        hosts = (
            'echo "$(hostname) of $CASTOFF_HOSTS: $(cat $CASTOFF_HOST_FILE | xargs), $CASTOFF_CORES_PER_NODE"'
        )
        script.write_text(f"{hosts}\n{self.DRIVE} | sort\necho ${{RANK-no}} rank\n")
        words = ["--nodes", "2", "--set", "launcher.driver=true", "--set", "cores_per_rank=2"]
        run = desk.submit(*words, command=["bash", str(script)])
        assert desk.castoff("wait", run.id).code == 0
        first, *workers, last = (run.log_folder / "0.0" / "rank-00000.log").read_text().splitlines()
        here, _, there = first.partition(" of ")
        hosts = there.partition(":")[0]
        assert there == f"{hosts}: {hosts.replace(',', ' ')}, 2" and hosts.startswith(f"{here},")
        names = hosts.split(",")
        assert workers == [f"worker {at} on {names[at // 2]}" for at in range(4)]
        assert last == "no rank"

    def test_its_end_is_the_jobs(self, desk: Desk) -> None:
        run = desk.submit("--set", "launcher.driver=true", sh="echo was here; exit 6")
        assert desk.castoff("wait", run.id).code == 6
        assert "was here" in desk.castoff("logs", run.id).output

    def test_it_is_asked_to_stop(self, desk: Desk) -> None:
        save = 'until [ -e "$CASTOFF_STOP_FILE" ]; do sleep 0.1; done; echo resume >"$CASTOFF_OUTCOME_FILE"'
        run = desk.submit("--set", "launcher.driver=true", sh=save)
        desk.until(run, state="running")
        desk.record(run, "start")
        assert desk.castoff("stop", run.id, "--wait").code == 0
        assert desk.until(run, state="ended")["ending"] == "resume"


class TestSparseArray:
    def endings(self, desk: Desk, run: RunDirectory) -> dict[int, str]:
        return {one["member"]: one["ending"] for one in desk.status(run)["members"]}

    def test_members_by_their_own_numbers(self, desk: Desk) -> None:
        """In parts, too, as the cluster takes no index above 7."""
        run = desk.submit("--set", 'array={indices: "1,3-4,9-13:2"}', sh="[ $CASTOFF_ARRAY_INDEX != 9 ]")
        assert desk.castoff("wait", run.id).code == 1
        expected = {1: "done", 3: "done", 4: "done", 9: "failed", 11: "done", 13: "done"}
        assert self.endings(desk, run) == expected
        assert (run.log_folder / "job-13.log").exists()
        again = desk.castoff("resubmit", run.id, "--member", "9")
        assert again.code == 0, again.errors
        assert desk.castoff("wait", run.id).code == 1
        assert self.endings(desk, run) == expected
        assert (run.path / "attempts" / "9.1").exists()
        refused = desk.castoff("resubmit", run.id, "--member", "2")
        assert "no member 2; members are 1,3-4,9-13:2" in refused.errors

    def test_it_is_cancelled(self, desk: Desk) -> None:
        run = desk.submit("--set", 'array={indices: "2,5,9"}', sh="sleep 600")
        desk.until(run, state="running")
        assert desk.castoff("cancel", run.id).code == 0
        desk.until(run, state="ended")
        assert self.endings(desk, run) == dict.fromkeys((2, 5, 9), "cancelled")
