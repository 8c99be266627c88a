"""What somebody may have meant by a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.typed.suggestion import did_you_mean, suggestion


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("walltme", ["name", "walltime"], "walltime"),
        ("ranksPerNode", ["ranks", "ranks_per_node"], "ranks_per_node"),
        ("BF16", ["fp16", "bf16"], "bf16"),
        ("every", ["batch_size", "every_steps"], "every_steps"),
        ("mutable", ["mutable_positions", "mutable_ranges"], "mutable_ranges"),
        ("gcm", ["gat", "gcn"], "gcn"),
        ("wa", ["name", "walltime"], None),
        ("gpu", ["cpu", "cuda"], None),
        ("frobnicate", ["name", "walltime"], None),
        (3, ["3"], None),
    ],
)
def test_what_was_meant(word: object, known: list[str], meant: str | None) -> None:
    assert did_you_mean(word, known) == (f"; did you mean {meant}?" if meant else "")
    assert suggestion(word, known) == (did_you_mean(word, known) or f"; there are: {', '.join(known)}")


@given(st.text(), st.lists(st.text()))
def test_any_word_has_an_answer(word: str, known: list[str]) -> None:
    assert isinstance(suggestion(word, known), str)
    assert bool(suggestion(word, known)) is bool(known)
