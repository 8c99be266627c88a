from __future__ import annotations

import numpy
import pytest

from castoff.trainers.sedd.alphabet import KINDS, MASK, PADDING, RESIDUES, UNKNOWN, decode, encode


def test_letters_are_tokens_and_back() -> None:
    assert encode(RESIDUES.encode()).tolist() == list(range(20))
    assert decode(encode(RESIDUES.lower().encode())) == RESIDUES
    assert decode([0, MASK, UNKNOWN, PADDING]) == "A#X-"
    assert KINDS == PADDING + 1


@pytest.mark.parametrize("letter", "XBZJUO*-. 1")
def test_other_letters_are_unknown(letter: str) -> None:
    assert encode(letter.encode()).tolist() == [UNKNOWN]


def test_an_empty_one() -> None:
    assert encode(b"").dtype == numpy.uint8 and decode([]) == ""
