"""A diffusion learns what stands in proteins together, and its bound is none that cannot be."""

from __future__ import annotations

import math
from pathlib import Path

import numpy
import torch

from bench.proteins.baselines import trigrams, unigram
from bench.proteins.comparison import compared, parts_of
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.sedd.alphabet import Tokens, decode
from castoff.trainers.sedd.task import SeddTask

LENGTH = 32


def two_families(number: int, seed: int) -> list[Tokens]:
    """Each protein has one half of the residues, or the other: in all, each residue is as frequent."""
    generator = numpy.random.default_rng(seed)
    return [
        (generator.integers(10, size=LENGTH) + 10 * generator.integers(2)).astype(numpy.uint8)
        for _ in range(number)
    ]


def test_after_fifty_steps_the_bound_on_unseen_proteins_lies_between_the_truth_and_single_residues(
    tmp_path: Path,
) -> None:
    learned, unseen = two_families(256, seed=0), two_families(60, seed=1)
    file = tmp_path / "proteins.fasta"
    file.write_text("".join(f">{number}\n{decode(tokens)}\n" for number, tokens in enumerate(learned)))
    task = SeddTask(
        data={"datafile": str(file), "split": [1.0, 0.0, 0.0]},
        model={"hidden_size": 16, "n_blocks": 1, "n_heads": 2, "cond_dim": 16},
    )
    training = {
        "path": str(tmp_path),
        "num_steps": 50,
        "batch_size": 16,
        "device": "cpu",
        "optimizer_type": torch.optim.AdamW,
        "optimizer_kwargs": {"lr": 0.01},
        "ema_decay": 0.9,
    }
    trainer = TrainerDDP(0, {"name": "learns", "training": training}, task)
    train, _, _ = trainer.prepare_dataloaders()
    trainer.run_training(train, None)

    parts = parts_of(unseen, range(len(unseen)), unigram(learned), trigrams(learned), LENGTH)
    found = compared(trainer.engine.judged, unigram(learned), task.graph, task.noise, parts, draws=2)
    gained, bound = found.over_unigram(), found.mean(found.model)
    assert gained.value < -0.5 and gained.value < -4 * gained.error  # of ln 2 = 0.69
    least = (1 - task.settings.noise.eps) * (math.log(10) + math.log(2) / LENGTH)
    assert bound.value > least - 4 * bound.error
