"""A controller that is away or hung just as a job wants to be started again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.runs.run import RunDirectory
from tests.patience import until

from .desk import Desk
from .slurm import OTHER_DEBIAN, SlurmCluster

pytestmark = pytest.mark.costly

AGAIN = """\
[ $CASTOFF_ATTEMPT = 0 ] || exit 0
touch runs
until [ -e go ]; do sleep 0.1; done
echo resume >"$CASTOFF_OUTCOME_FILE"
"""


@pytest.fixture
def desk(slurm: SlurmCluster, tmp_path: Path) -> Desk:
    return Desk(slurm, tmp_path / "desk")


def submitted(desk: Desk, grace: str) -> RunDirectory:
    """A job that runs, and wants to start again once there is a file `go`; its scontrol waits for 2 s."""
    conf = desk.folder / "slurm.conf"
    conf.write_text(desk.slurm("cat", "/etc/slurm/slurm.conf") + "\nMessageTimeout=2\n")
    run = desk.submit(
        *("--walltime", "30m", "--set", f"grace={grace}", "--set", "requeue.max=1"),
        *("--set", f"env.SLURM_CONF={conf}"),
        sh=AGAIN,
    )
    until((desk.folder / "runs").exists, "its start")
    return run


def refused(run: RunDirectory) -> bool:
    return "castoff: scontrol requeue " in run.script_log().read_text()


def endings(desk: Desk, run: RunDirectory) -> list[str]:
    """How its attempts ended, once it is over."""
    reported: dict[str, Any] = json.loads(desk.castoff("wait", run.id, "--json").output)
    return [one["ending"] for one in reported["members"][0]["attempts"]]


@pytest.mark.parametrize("how", ["away", "hung"])
def test_it_is_asked_until_it_answers(desk: Desk, slurm: SlurmCluster, how: str) -> None:
    run = submitted(desk, "10m")
    go = desk.folder / "go"

    def waits() -> bool:
        """Whether the requeue waits; with the srun of 26.05, that does, once the rank has ended."""
        return (run.path / "attempts" / "0.0" / "ended" / "0").exists() if OTHER_DEBIAN else refused(run)

    if how == "away":
        with slurm.without_controller():
            go.touch()
            until(waits, "a requeue that fails")
    else:
        slurm.stop_controller()
        go.touch()
        until(waits, "a requeue without an answer")
        slurm.continue_controller()
    assert endings(desk, run) == ["resume", "done"]
    assert len(run.attempts()) == 2


@pytest.mark.skipif(bool(OTHER_DEBIAN), reason="until the controller answers, srun of 26.05 does not end")
def test_it_does_so_after_the_script_has_given_up(desk: Desk, slurm: SlurmCluster) -> None:
    """Slurm has the last word: what it has queued again is not over, whatever the script wrote."""
    run = submitted(desk, "1s")
    slurm.stop_controller()
    (desk.folder / "go").touch()
    ending = run.path / "attempts" / "0.0" / "ending.json"
    until(lambda: ending.exists() and json.loads(ending.read_text())["ending"] == "walltime", "its end")
    waiting = desk.start("castoff", "wait", run.id)
    slurm.continue_controller()
    answer = desk.end(waiting)
    assert (answer.code, answer.output) == (0, f"{run.id}: done\n"), answer.errors
    assert endings(desk, run) == ["resume", "done"]


def test_a_step_that_srun_cannot_start(desk: Desk) -> None:
    """status says why, in srun's words, for each attempt; castoff's, where srun tries again and again."""
    wide = ("--nodes", "2", "--walltime", "5m", "--set", "ranks_per_node=1")
    devices = desk.submit(
        *wide, "--set", "launcher.args=[--gpus-per-node=nonsense:4]", "--set", "restart.max=1"
    )
    nowhere = desk.submit(
        *wide, "--set", "launcher.args=[--constraint=nonsense]", "--set", "launcher.timeout=4s"
    )
    now = desk.until(devices, ending="failed")
    assert len(now["members"][0]["attempts"]) == 2
    for attempt in now["members"][0]["attempts"]:
        line = attempt["script_output"][-1]
        assert line.startswith("srun: error: Unable to create step for job ")
    assert f"\n             {line}\n" in desk.castoff("status", devices.path).output
    (attempt,) = desk.until(nowhere, ending="failed")["members"][0]["attempts"]
    said = "Invalid feature" if OTHER_DEBIAN else "these have not started: n"  # 26.05 does not try again
    assert said in attempt["script_output"][-1]
