"""What is asked of castoff and of others, and the table of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from bench.peers import __main__ as peers
from bench.peers.programs import PEERS, Case, Network, Validated

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "comparison.md"


@pytest.mark.costly
def test_castoff_resumes_within_an_epoch_and_passes_over_what_is_damaged(tmp_path: Path) -> None:
    castoff = PEERS["castoff"]
    found = peers.resumes(castoff, tmp_path) | peers.damaged(castoff, tmp_path / "damaged")
    assert found == {
        "checkpoint's files": "flushed and renamed",
        "batches after a resume within an epoch": "the next ones",
        "weights after it": "the same bits",
        "newest checkpoint cut": "resumes from the one before",
    }


def test_a_mean_is_compared_with_that_over_all_samples() -> None:
    torch.manual_seed(0)
    network = Network(Case(Path()))
    assert Validated(0.0, network).error() == 1.0
    assert network.seen == [], "no step of a training"


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, _, *rows = re.findall(r"^\|.*\|$", text, re.MULTILINE)
    assert head == peers.table({name: {} for name in PEERS})[0]
    asked = {"checkpoint's files", "weights after it", "mean over 5 samples", "TERM to rank 1"}
    assert asked <= {row.split("|")[1].strip() for row in rows}
    assert peers.table({"a": {"x": "1"}, "b": {"y": "2"}})[2:] == ["| x | 1 | – |", "| y | – | 2 |"]
