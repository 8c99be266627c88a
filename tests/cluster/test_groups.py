"""Groups on a real Slurm: job ids, members in pairs, a job that is requeued, and a failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .desk import Desk
from .slurm import SlurmCluster

pytestmark = pytest.mark.costly

PIPELINE = """
defaults: {ranks_per_node: 1, walltime: 5m}
jobs:
  judge:
    command: [sh, -c, "cat {train.dir}/weights.* && test -e approved"]
    after: {afterok: [train]}
  publish:
    command: [sh, -c, "cat {prepare.dir}/data >published"]
    after: {afterok: [judge]}
  train:
    array: {count: 3}
    command: [sh, -c, "echo $CASTOFF_ARRAY_INDEX >$CASTOFF_RUN_DIR/weights.$CASTOFF_ARRAY_INDEX"]
    after: {aftercorr: [shard]}
  shard:
    array: {count: 3}
    command: ["true"]
    after: {afterok: [prepare]}
  told:
    command: [sh, -c, "cat {prepare.dir}/data >told"]
    after: {afterany: [prepare]}
  prepare:
    # It asks to be resumed once, so that Slurm requeues its job.
    command:
      - sh
      - -c
      - |
        echo "$CASTOFF_ATTEMPT" >>"$CASTOFF_RUN_DIR/data"
        [ "$CASTOFF_ATTEMPT" -gt 0 ] || echo resume >"$CASTOFF_OUTCOME_FILE"
    requeue: {max: 2}
"""


@pytest.fixture
def desk(slurm: SlurmCluster, tmp_path: Path) -> Desk:
    return Desk(slurm, tmp_path / "desk")


def endings(desk: Desk) -> dict[str, str]:
    """How the runs of the group ended, by the names of their jobs, once they have."""
    desk.castoff("wait", "pipeline")
    jobs = json.loads(desk.castoff("status", "pipeline", "--json").output)["jobs"]
    return {job["name"]: job["run"]["ending"] or job["run"]["state"] for job in jobs}


def test_a_group(desk: Desk) -> None:
    (desk.folder / "pipeline.yaml").write_text(PIPELINE)
    answer = desk.castoff("submit", "pipeline.yaml", "--site", "slurm")
    assert answer.code == 0, answer.errors
    order = [line.split(":")[0] for line in answer.output.splitlines()[:6]]
    assert order == ["prepare", "shard", "train", "judge", "publish", "told"]
    found = endings(desk)
    assert (found.pop("judge"), found.pop("publish"), {*found.values()}) == ("failed", "pending", {"done"})
    status = desk.castoff("status", "pipeline").output
    assert "4 of 6 jobs done, 1 failed, 1 never begins" in status, status
    assert (desk.folder / "told").read_text() == "0\n1\n"
    (prepare,) = desk.folder.glob("castoff-runs/prepare-*")
    assert (prepare / "data").read_text() == "0\n1\n", "the others waited for the end of its second attempt"
    (desk.folder / "approved").touch()
    again = desk.castoff("resubmit", "pipeline")
    assert again.code == 0, again.errors
    assert [line.split(":")[0] for line in again.output.splitlines()] == ["judge", "publish"]
    assert set(endings(desk).values()) == {"done"}
    assert (desk.folder / "published").read_text() == "0\n1\n"


def test_cancel(desk: Desk) -> None:
    """Those that wait end first, so that none of them begins."""
    text = "defaults: {ranks_per_node: 1, walltime: 5m, command: [sleep, '600']}\njobs:\n  j0: {}\n"
    for number in range(3):
        text += f"  j{number + 1}: {{after: {{afterany: [j{number}]}}}}\n"
    (desk.folder / "chain.yaml").write_text(text)
    assert desk.castoff("submit", "chain.yaml", "--site", "slurm").code == 0
    answer = desk.castoff("cancel", "chain")
    assert answer.code == 0, answer.errors
    assert answer.output.count("cancelled") == 4
    assert [*desk.folder.glob("castoff-runs/j[1-3]-*/attempts/*/start.json")] == []
