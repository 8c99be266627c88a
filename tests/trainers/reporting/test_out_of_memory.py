"""What a rank says that has no memory left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from castoff.trainers.configuration.config import Config
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.reporting import out_of_memory
from castoff.trainers.reporting.out_of_memory import Held, advice, in_words, is_out_of_memory, tensors_in
from castoff.trainers.task import Loss
from tests.trainers.toys import Toy, config

MIB = 1 << 20
HALVED = "Set training.batch_size: 4 (now 8) and training.gradient_accumulation_steps: 2 (now 1)"


class Greedy(Toy):
    """Wants more than there is in its fourth step."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if self.state.step == 3 and model.training:
            torch.empty(1 << 60)
        return super().loss(model, batch)


def test_a_rank_without_memory_says_what_fills_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = TrainerDDP(0, config(tmp_path, ema_decay=0.9), Greedy(40))
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
    # 161 numbers: weights, then two moments and a count for each of four parameters.
    words = "Out of memory on rank 0, after step 3: weights 644 B, optimizer 1.3 kB, averaged weights 644 B, "
    assert words in caplog.text
    assert "batch 288 B; at most the process had " in caplog.text
    assert (
        "Set training.batch_size: 4 (now 8) and training.gradient_accumulation_steps: 2 (now 1)"
        in caplog.text
    )
    table = trainer.folder / "memory" / "rank-0.txt"
    assert f"Details: {table}" in caplog.text
    text = table.read_text()
    assert text.startswith("RuntimeError: [enforce fail at ")
    assert "1.54 kB  0.weight  (16, 8) float32" in text
    assert [each.name for each in table.parent.iterdir()] == ["rank-0.txt"]


class Fails(Toy):
    def loss(self, model: nn.Module, batch: Any) -> Loss:
        raise RuntimeError("something else")


def test_other_errors_are_not_explained(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = TrainerDDP(0, config(tmp_path), Fails(40))
    with pytest.raises(RuntimeError, match="something else"):
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
    assert "Out of memory" not in caplog.text
    assert not (trainer.folder / "memory").exists()


def test_which_errors_mean_memory() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert not is_out_of_memory(RuntimeError("shapes differ"))


SMALL, LARGE = {"weights": 1}, {"weights": 3, "optimizer": 6}


@pytest.mark.parametrize(
    ("training", "kinds", "ranks", "words"),
    [
        (
            {"batch_size": 32},
            SMALL,
            1,
            "Set training.batch_size: 16 (now 32) and training.gradient_accumulation_steps: 2 (now 1), which "
            "keeps the global batch, or name modules in training.activation_checkpointing",
        ),
        (
            {"batch_size": 15, "gradient_accumulation_steps": 2, "activation_checkpointing": ["0"]},
            SMALL,
            1,
            "Set training.batch_size: 5 (now 15) and training.gradient_accumulation_steps: 6 (now 2), which "
            "keeps the global batch",
        ),
        (
            {"batch_size": 1},
            SMALL,
            1,
            "training.batch_size is 1 already: name modules in training.activation_checkpointing, or use "
            "smaller samples, or a smaller model",
        ),
        (
            {},
            LARGE,
            1,
            "Most of it does not depend on the batch: use an optimizer with less state, or a smaller model",
        ),
        (
            {},
            LARGE | {"averaged weights": 3},
            2,
            "Most of it does not depend on the batch: leave out training.ema_decay, shard it over the ranks "
            "with parallel.strategy: fsdp, use an optimizer with less state, or a smaller model",
        ),
        ({"activation_checkpointing": ["0"]}, {"batch": 9}, 1, f"{HALVED}, which keeps the global batch"),
    ],
)
def test_advice(
    training: dict[str, Any], kinds: dict[str, int], ranks: int, words: str, tmp_path: Path
) -> None:
    asked = Config.of(config(tmp_path, **training))
    held = Held({kind: size * MIB for kind, size in kinds.items()}, [])
    assert advice(held, 10 * MIB, asked, ranks) == words
    assert words in in_words(held, 10 * MIB, 3, asked, RankContext(0, ranks, torch.device("cpu"), alone=True))


class Graph:
    """Like a graph of torch_geometric."""

    def to_dict(self) -> dict[str, Any]:
        return {"x": torch.zeros(3), "edge_index": torch.zeros(2, 4), "name": "ring"}


def test_the_tensors_of_a_batch() -> None:
    batch = [{"ids": torch.zeros(2), "words": ["a"]}, (torch.zeros(1), None), Graph()]
    assert [each.numel() for each in tensors_in(batch)] == [2, 1, 3, 8]


class Accelerator:
    """A device of which torch has a summary, and a snapshot."""

    def memory_summary(self, _: object) -> str:
        return "| PyTorch CUDA memory summary |"


def test_an_accelerator_adds_its_summary_and_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_device_module", lambda _: Accelerator())
    monkeypatch.setattr(out_of_memory, "dump_memory", lambda _, path: Path(path).write_text("a snapshot"))
    context = RankContext(3, 4, torch.device("cuda", 0))
    error = torch.OutOfMemoryError("CUDA out of memory")
    held = Held({"weights": 7 * MIB}, [(f"part.{number}", "(2,) float32", 8) for number in range(50)])
    where = out_of_memory._written(tmp_path / "memory", held, 9 * MIB, error, context)
    assert where == tmp_path / "memory" / "rank-3.txt"
    text = where.read_text()
    assert "weights                  7.34 MB\n" in text
    assert "10 more are smaller" in text
    assert text.endswith("| PyTorch CUDA memory summary |")
    assert where.with_suffix(".pickle").read_text() == "a snapshot"
