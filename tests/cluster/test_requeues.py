"""On a real Slurm: programs that are ended before the walltime, or have themselves requeued."""

from __future__ import annotations

import json
import sys

import pytest

from .desk import Desk
from .slurm import SlurmCluster

CHECKPOINTS = 'echo "$CASTOFF_ATTEMPT" >model.ckpt; [ "$CASTOFF_ATTEMPT" -gt 0 ] || exec sleep 1000'

LIGHTNING = """
import os
import time

import pytorch_lightning as pl
import torch


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        if os.environ["CASTOFF_ATTEMPT"] == "0" and self.global_step > 3:
            time.sleep(0.1)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

steps = 1_000_000 if os.environ["CASTOFF_ATTEMPT"] == "0" else 1
trainer = pl.Trainer(
    accelerator="cpu", max_epochs=-1, max_steps=steps, logger=False, enable_progress_bar=False
)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=4))
"""


@pytest.fixture(scope="module")
def desk(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(slurm, tmp_path_factory.mktemp("desk"))


def endings(desk: Desk, run: str) -> list[tuple[str, str | None]]:
    (member,) = json.loads(desk.castoff("wait", run, "--json").output)["members"]
    return [(attempt["ending"], attempt["reason"]) for attempt in member["attempts"]]


@pytest.mark.long
def test_a_program_that_only_writes_checkpoints_is_resumed(desk: Desk) -> None:
    """Also where Slurm is not to start the job again after a lost node."""
    short = ("--walltime", "1m", "--set", "grace=58s", "--ranks-per-node", "2")
    only = desk.submit("--name", "only", *short, "--set", "requeue={max: 3, on: [walltime]}", sh=CHECKPOINTS)
    default = desk.submit("--name", "every", *short, "--set", "requeue.max=3", sh=CHECKPOINTS)
    for run in (only, default):
        (first, why), last = endings(desk, run.id)
        assert (first, last) == ("resume", ("done", None)) and why and "; new checkpoint: " in why, why
        assert "may still run" not in desk.castoff("logs", run.id).output
        assert desk.over(run)[0].endswith(" COMPLETED")


@pytest.mark.long
def test_lightning_requeues_itself_once(desk: Desk) -> None:
    """It saves at the signal and calls scontrol requeue; castoff then asks for nothing."""
    (desk.folder / "boring.py").write_text(LIGHTNING)
    run = desk.submit(
        *("--name", "boring", "--walltime", "2m", "--set", "signal=USR1@70", "--set", "requeue.max=3"),
        *("--ranks-per-node", "1", "--set", "grace=10s"),
        command=[sys.executable, "boring.py"],
    )
    found = endings(desk, run.id)
    assert [ending for ending, _ in found] == ["preempted", "done"], found
    log = (run.log_folder / "0.1" / "rank-00000.log").read_text()
    assert "hpc_ckpt_1.ckpt" in log, log
    assert "not requeued" not in run.script_log().read_text()
