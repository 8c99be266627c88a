"""The example of a model of one's own: the same program however its ranks are started."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from castoff.trainers.reporting.metrics_file import MetricsFile
from tests import patience
from tests.ports import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"

INSTALLED = {"castoff", "submitit", "torch", "yaml"}
"""By the README's `pip install '.[torch]'`: castoff, what it depends on, and torch."""

OF_OTHERS = {
    "with_accelerate.py": {"accelerate"},
    "with_fabric.py": {"lightning_fabric"},
    "with_lightning.py": {"pytorch_lightning"},
    "resume_lightning.py": {"pytorch_lightning"},
    "resume_trainer.py": {"transformers"},
}
"""What examples for those who have another library import of it."""

PROGRAM = ["python", "examples/own_model.py"]

WAYS = {
    "alone": PROGRAM,
    "torchrun": [
        *["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
        *PROGRAM[1:],
    ],
    "castoff": ["castoff", "launch", "-n", "2", "--", *PROGRAM],
    "spawn": ["python", "spawning.py"],
}

SPAWNING = """
import sys
import torch.multiprocessing as mp
import yaml

sys.path.append("examples")
from own_model import Spirals
from castoff.trainers.configuration.yaml_text import get_loader
from castoff.trainers.ddp import TrainerDDP, cleanup_ddp, initialize_ddp


def train_ddp(rank, world_size, config, master_addr, master_port):
    try:
        initialize_ddp(
            rank=rank, worldsize=world_size, master_addr=master_addr, master_port=master_port, backend="gloo"
        )
        trainer = TrainerDDP(rank=rank, config=config, task=Spirals())
        train_loader, val_loader, test_loader = trainer.prepare_dataloaders()
        trainer.run_training(train_loader, val_loader)
        if rank == 0:
            print(f"test accuracy {trainer.run_test(test_loader)['accuracy']:.4f}")
    finally:
        cleanup_ddp()


if __name__ == "__main__":
    with open("examples/own_model.yaml") as file:
        config = yaml.load(file, get_loader())
    config["parallel"] = {"world_size": 2}
    mp.spawn(train_ddp, args=(2, config, "localhost", sys.argv[1]), nprocs=2, join=True)
"""


@pytest.mark.usefixtures("for_real")
@pytest.mark.long  # README.md's command starts two ranks of it each day
@pytest.mark.parametrize("way", WAYS)
def test_it_learns_however_it_is_started(way: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    (tmp_path / "spawning.py").write_text(SPAWNING)
    words = [sys.executable if word == "python" else word for word in WAYS[way]]
    if way == "spawn":
        words.append(str(free_port()))
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # two ranks with a thread a core wait for each other
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (accuracy,) = re.findall(r"test accuracy ([\d.]+)", done.stdout)
    assert float(accuracy) > 0.93
    (folder,) = (tmp_path / "trained").iterdir()
    metrics = MetricsFile(folder / "metrics.jsonl").read()
    steps = max(line["step"] for line in metrics)
    # 1,260 points in batches of 32, of each rank
    assert steps == 10 * (40 if way == "alone" else 20)
    assert (folder / "config.yaml").is_file()


@pytest.mark.parametrize("program", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_examples_need_nothing_more(program: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    beside = {path.stem for path in program.parent.glob("*.py")}
    assert imported - INSTALLED - beside - sys.stdlib_module_names == OF_OTHERS.get(program.name, set())
