"""The examples of several optimizers, with one loss and in turns."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

from castoff.trainers.reporting.metrics_file import MetricsFile

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "learns"),
    [
        ("gan", {"val/discriminator", "val/generator", "val/radius"}),
        pytest.param(
            "muon",
            {"val/accuracy"},
            marks=pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has it from 2.9 on"),
        ),
    ],
)
def test_it_trains(name: str, learns: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(CHECKOUT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(CHECKOUT / "examples"))
    changes = ["training.num_epochs=1", "training.num_workers=0", "training.log_every=5"]
    monkeypatch.setattr(sys, "argv", [f"examples/{name}.py", *changes])
    runpy.run_path(f"examples/{name}.py", run_name="__main__")
    lines = MetricsFile(tmp_path / "trained" / name / "metrics.jsonl").read()
    assert learns <= {metric for line in lines for metric in line}
