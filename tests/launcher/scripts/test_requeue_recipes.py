"""Lightning and the Hugging Face Trainer, which know nothing of castoff: killed, requeued and resumed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .conftest import Benches
from .harness import Ended

LIGHTNING = """
import os
import sys
import time
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.environments import SLURMEnvironment

FIRST = os.environ["CASTOFF_ATTEMPT"] == "0"


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        if FIRST and self.global_step > 5:
            Path("ready").touch()
            time.sleep(0.1)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def on_train_start(self):
        print("begins at step", self.global_step, flush=True)


trainer = pl.Trainer(
    accelerator="cpu",
    max_epochs=-1,
    max_steps=1_000_000 if FIRST else 300,
    callbacks=[ModelCheckpoint(dirpath="kept", every_n_train_steps=2, save_last=True)],
    plugins=[SLURMEnvironment(auto_requeue=False)] if "SLURM_NTASKS" in os.environ else [],
    logger=False,
    enable_progress_bar=False,
)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=4), ckpt_path="last")
print("ends at step", trainer.global_step, flush=True)
"""

HUGGING_FACE = """
import os
import time
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

FIRST = os.environ["CASTOFF_ATTEMPT"] == "0"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return {"loss": self.layer(x).square().mean()}


class Slow(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        print("begins at step", state.global_step, flush=True)

    def on_step_end(self, args, state, control, **_):
        if FIRST and state.global_step > 5:
            Path("ready").touch()
            time.sleep(0.1)


arguments = TrainingArguments(
    output_dir="out",
    save_steps=2,
    max_steps=1_000_000 if FIRST else 300,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
)
data = [{"x": row} for row in torch.randn(64, 4)]
trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[Slow()])
last = get_last_checkpoint("out") if Path("out").is_dir() else None
trainer.train(resume_from_checkpoint=last)
print("ends at step", trainer.state.global_step, flush=True)
"""

SQUEUE = """#!/bin/sh
left=31
[ ! -e ready ] || left=25
date -d "now +$left seconds" +%Y-%m-%dT%H:%M:%S
"""
"""There is always some time left, until the program has come so far that it has saved something."""


@pytest.mark.costly
@pytest.mark.everyday("lightning")
@pytest.mark.parametrize("program", [LIGHTNING, HUGGING_FACE], ids=["lightning", "transformers"])
def test_a_training_is_killed_requeued_and_resumed(program: str, bench: Benches) -> None:
    here = bench("srun")
    (here.folder / "training.py").write_text(program)
    here.stub("squeue", SQUEUE)

    def job(start: str) -> Ended:
        command, env = [sys.executable, "training.py"], {"SLURM_RESTART_COUNT": start, "HF_HUB_OFFLINE": "1"}
        return here.run(ranks_per_node=1, command=command, walltime="1h", requeue={"max": 3}, env=env)

    first = job("0")
    reported = first.record("ending")
    assert reported["ending"] == "resume" and "castoff ended it; new checkpoint: " in reported["reason"], (
        first.output
    )
    (here.folder / "ready").unlink()
    second = job("1")
    assert second.record("ending", "0.1")["ending"] == "done", second.output
    log = Path(second.run_dir, "logs", "0.1", "rank-00000.log").read_text()
    begins = int(log.partition("begins at step ")[2].split()[0])
    assert begins >= 4 and "ends at step" in log, log
    assert here.calls("scontrol").count(["requeue", "12"]) == 1
