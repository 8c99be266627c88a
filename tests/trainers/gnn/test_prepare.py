"""Graphs that are written before a training begins."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from castoff.trainers.configuration.config import Config
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.gnn.graphs.splits import prepared
from castoff.trainers.gnn.prepare import main

CONFIG = """\
training: {path: trained, num_epochs: 1, batch_size: 8, optimizer_type: !pyobject torch.optim.AdamW, seed: 3}
data: {causets: {number: 20, size: [8, 12]}}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def test_a_training_finds_them(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(config)])
    assert capsys.readouterr().out == "graphs: 16 to train, 2 to validate, 2 to test\n"
    (written,) = Path("trained/graphs").glob("graphs-*")
    before = {each.name: each.stat().st_mtime_ns for each in written.iterdir()}
    alone = RankContext(0, 1, torch.device("cpu"), alone=True)
    found = prepared(Config.load(config).data, 3, alone, beside=Path("trained"))
    assert [len(part) for part in found] == [16, 2, 2]
    assert {each.name: each.stat().st_mtime_ns for each in written.iterdir()} == before
    assert [each.name for each in Path("trained/graphs").glob("graphs-*")] == [written.name]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.causets.number=0", "data.causets.number: is 0, but takes a whole number of at least 1"),
        ("data={dataset: mine}", "data: has neither files nor causets"),
    ],
)
def test_what_cannot_be_written(config: Path, override: str, words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(config), f"--set={override}"])
    assert str(ended.value).startswith("python -m castoff.trainers.gnn.prepare: ")
    assert words in str(ended.value)
    assert not Path("trained").exists()
