"""Floating-point operations, counted once, and what follows from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from castoff.trainers.configuration.config import Config
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.program.training import train
from castoff.trainers.reporting import flops
from castoff.trainers.reporting.device_peaks import peak_of
from castoff.trainers.reporting.flops import Counter, Flops, in_words
from castoff.trainers.reporting.progress import _noteworthy
from tests.trainers import toys
from tests.trainers.toys import Sensitive, Toy, config, run, with_checkpoints

ASKED = {"monitoring": {"log_flops": True}}

TOY = 2 * (8 * 16 + 16) + 2 * (8 * 16 + 2 * 16)
"""Those of a Toy's sample: two products forward, and three backward, since data need no gradient."""


def counted(compute: Callable[[], Tensor]) -> int:
    counter = Counter()
    with counter:
        compute().sum().backward()
    return counter.operations


def test_products_count_forward_and_backward() -> None:
    layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    numbers = torch.ones(5, 8)
    assert counted(lambda: layers(numbers)) == 5 * TOY


@pytest.mark.parametrize("causal", [False, True])
def test_attention_counts(causal: bool) -> None:
    query = torch.ones(2, 3, 5, 8, requires_grad=True)
    product = 2 * (2 * 3) * 5 * 5 * 8
    found = counted(lambda: scaled_dot_product_attention(query, query, query, is_causal=causal))
    assert found == 2 * product + 5 * product, (
        "two forward; backward four and one that flash attention repeats"
    )


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_operations_do_not_count(reentrant: bool) -> None:
    layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    numbers = torch.ones(5, 8, requires_grad=True)
    again = counted(lambda: checkpoint(layers, numbers, use_reentrant=reentrant))
    assert again == counted(lambda: layers(numbers)) > 0


def on_a_rank(path: str, strategy: str, asked: bool) -> tuple[Any, ...]:
    fields = with_checkpoints(Path(path), num_epochs=1, ema_decay=0.9) | (ASKED if asked else {})
    fields["parallel"] = {"strategy": strategy}
    return tuple(toys.train(Sensitive(), fields)._replace(lines=[], optimizer=[]))


@pytest.mark.parametrize(("strategy", "world_size"), [("ddp", 1), ("ddp", 3), ("fsdp", 2)])
def test_counting_changes_nothing(strategy: str, world_size: int, tmp_path: Path) -> None:
    answers = []
    for asked in (False, True):
        folder = tmp_path / f"ranks-{asked}"
        arguments = (str(tmp_path / str(asked)), strategy, asked)
        answers.append(run(on_a_rank, *arguments, folder=folder, world_size=world_size))
    assert answers[0] == answers[1]
    assert "train/flops" in (tmp_path / "True" / "toy" / "metrics.jsonl").read_text()


def test_each_line_has_the_speed(tmp_path: Path) -> None:
    trained = train(config(tmp_path, num_epochs=1) | ASKED, Toy(40))
    lines = map(json.loads, (trained.trainer.folder / "metrics.jsonl").read_text().splitlines())
    measured = [line for line in lines if "train/step_time" in line]
    assert measured
    for line in measured:
        assert line["train/flops"] == pytest.approx(TOY * line["train/samples_per_second"])
        assert "train/mfu" not in line, "a CPU's peak is not known"


def test_a_known_peak_gives_mfu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "device_name", lambda _: "NVIDIA H100 80GB HBM3")
    asked = Config.of(config(tmp_path, precision="bf16") | ASKED)
    of_ranks = Flops(asked, RankContext(0, 4, torch.device("cpu"), alone=True))
    of_ranks._of_sample = 1e12
    found = of_ranks.metrics({"train/samples_per_second": 1979.0})
    assert found == {"train/flops": 1979e12, "train/mfu": 0.5}
    assert of_ranks.metrics({}) == {}
    assert _noteworthy(found) == ["MFU 50.0%"]


def test_what_cannot_be_counted_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> int:
        raise NotImplementedError("no\n rule")

    monkeypatch.setattr(flops, "_operations", refuses)
    trained = train(config(tmp_path, num_epochs=1) | ASKED, Toy(40))
    assert "monitoring.log_flops: operations cannot be counted: no rule" in caplog.text
    assert "train/flops" not in (trained.trainer.folder / "metrics.jsonl").read_text()


@pytest.mark.parametrize(
    ("device", "precision", "tf32", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", False, 989.5),
        ("NVIDIA H100 80GB HBM3", "fp32", True, 494.5),
        ("NVIDIA H100 80GB HBM3", "fp32", False, 67),
        ("NVIDIA H100 PCIe", "fp16", False, 756),
        ("NVIDIA H200", "bf16", False, 989.5),
        ("NVIDIA H200 NVL", "bf16", False, 835.5),
        ("NVIDIA A100-SXM4-40GB", "bf16", False, 312),
        ("NVIDIA A100-PCIE-40GB", "fp32", True, 156),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", False, None),
        ("NVIDIA B200", "bf16", False, 2250),
        ("Tesla V100-SXM2-16GB", "bf16", False, None),
        ("Tesla V100-SXM2-16GB", "fp32", True, 15.7),
        ("AMD Instinct MI250X", "bf16", False, 191.5),
        ("AMD Instinct MI250X", "fp32", True, 47.9),
        ("AMD Instinct MI300X", "bf16", False, 1307.4),
        ("Intel(R) Data Center GPU Max 1550", "bf16", False, 419.4),
        ("cpu", "fp32", False, None),
    ],
)
def test_peaks(device: str, precision: str, tf32: bool, peak: float | None) -> None:
    assert peak_of(device, precision, tf32=tf32, environ={}) == (None if peak is None else peak * 1e12)


def test_a_whole_card_of_two_tiles_has_twice_the_peak() -> None:
    name, environ = "Intel(R) Data Center GPU Max 1550", {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}
    assert peak_of(name, "bf16", tf32=False, environ=environ) == pytest.approx(838.8e12)


def test_numbers_in_words() -> None:
    assert [in_words(number) for number in (608, 1.5e3, 2e12, 3.25e15)] == ["608 ", "1.5 k", "2 T", "3.25 P"]
