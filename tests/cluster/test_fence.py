"""Two attempts of a job of Slurm never run at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.patience import until

from . import healing
from .desk import Desk
from .jobs import Submitted
from .slurm import OTHER_DEBIAN, SlurmCluster

pytestmark = pytest.mark.costly


def test_a_first_host_whose_slurmd_is_gone_runs_no_two_attempts(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Slurm starts the job again once it gives the host up, and the ranks there are well."""

    def lose(host: str) -> None:
        slurm.kill_slurmd(host)
        slurm.set_down(host)

    try:
        healing.no_two_attempts_run_at_once(slurm, tmp_path / "fence", lose)
    finally:
        slurm.resume()


def test_a_resubmission_runs_no_two_attempts(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Slurm starts the job no second time once it gives its host up, but the user does."""
    desk, seen = Desk(slurm, tmp_path / "desk"), tmp_path / "seen"
    seen.mkdir()
    run = desk.submit("--walltime", "10m", "--set", f"env.PROBE_FOLDER={seen}", sh=healing.ALONE)
    until((seen / "ready-0-0").exists, "the rank")
    host = (run.path / "attempts" / "0.0" / "hosts").read_text().strip()
    try:
        slurm.kill_slurmd(host)
        slurm.set_down(host)
        ending = desk.until(run, state="ended")["ending"]
        # srun of 26.05 ends then, so the script, which nobody has ended, has the last word.
        assert ending == "node-failure" or (OTHER_DEBIAN and ending == "failed")
        answer = desk.castoff("resubmit", run.id)
        assert answer.code == 0, answer.errors
        assert "within 10 s they end themselves" in answer.errors
        assert desk.record(run, "ending", "0.1")["ending"] == "done"
        assert not (seen / "beside").exists(), (seen / "beside").read_text()
    finally:
        slurm.resume()


_OTHER = """\
: >"$PROBE_FOLDER/other"
until [ -e "$PROBE_FOLDER/ready-1-0" ]; do sleep 0.2; done
while pgrep -f "^bash -ps .*/attempts/0[.]0 " >/dev/null; do sleep 0.2; done
: >"$PROBE_FOLDER/spared"
"""

_SUBMITS = """\
[ "$CASTOFF_ATTEMPT" -eq 0 ] || { : >"$PROBE_FOLDER/ready-1-$RANK"; exit 0; }
[ "$RANK" -eq 0 ] || exec sleep 1000
sbatch --parsable --export=ALL --nodelist="$SLURMD_NODENAME" --output="$PROBE_FOLDER/other.out" \\
  "$1" >"$PROBE_FOLDER/other.id"
until [ -e "$PROBE_FOLDER/other" ]; do sleep 0.2; done
exit 9
"""


def test_a_job_that_a_rank_has_submitted_outlives_its_attempt(slurm: SlurmCluster, tmp_path: Path) -> None:
    """sbatch hands on the rank's environment, by which its fence and the next attempt find what is left."""
    script = tmp_path / "other.sh"
    script.write_text(f"#!/bin/sh\n{_OTHER}")
    restart = {"max": 1, "spare_nodes": 1, "progress": "none"}
    fields: dict[str, Any] = {"command": ["sh", "-c", _SUBMITS, "sh", str(script)], "restart": restart}
    job = Submitted(slurm, tmp_path / "submits", **fields, **healing.SHAPE)
    assert job.ending("0.1") == ("done", 0), job.output()
    assert job.accounted((job.seen / "other.id").read_text().strip()) == ("COMPLETED", "0:0")
    assert (job.seen / "spared").exists()
