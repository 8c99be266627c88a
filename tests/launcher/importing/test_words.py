"""Words mean what bash makes of them."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.importing.lexing import words_of
from launcher.importing.words import array, value, variables

KNOWN = {"N": "2", "PER": "4", "NAME": "a b", "#LIST": "3"}

VALUES = {
    "'a b'\"c\"d": "a bcd",
    '"$N-${PER}"': "2-4",
    "$((N * PER + 1))": "9",
    "$(( $N*${PER} ))": "8",
    "${N:-7}": "2",
    "${X:-7}": None,
    "$X": None,
    "$NAME": None,  # two words
    '"$NAME"': "a b",
    "*.txt": None,
    "'*.txt'": "*.txt",
    "~/x": None,
    "a\\ b": "a b",
    '"\\$N \\a"': "$N \\a",
    "$(count)": "5",
    '"`count`"': "5",
    "$(other)": None,
    "${#LIST[@]}": "3",
    "{a,b}": None,
    "a=b": "a=b",
    "$": "$",
    "'open": None,
}


@pytest.mark.parametrize("word", VALUES)
def test_value(word: str) -> None:
    assert value(word, KNOWN, lambda text: "5" if text == "count" else None) == VALUES[word]


TEXT = st.text(st.sampled_from("ab $N{}'\"\\`()*~#-=\n\t;&|<>!é"), max_size=12)


@given(TEXT)
def test_what_is_known_is_what_bash_says(text: str) -> None:
    known = {"N": "2"}
    found = value(text, known)
    if found is None or words_of(text) != [text]:
        return
    script = f"N=2; printf '%s\\0' {text}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == f"{found}\0"


def test_variables() -> None:
    text = "a $B \"${C:-$D}\" '$E' $((F + $G)) `h $I` ${#J[@]} \\$K $1"
    assert variables(text) == {"B", "C", "D", "F", "G", "I", "J", "1"}


def test_arrays() -> None:
    assert array("(a 'b c' # d\n  \"$E\" \\\n f)") == ["a", "'b c'", '"$E"', "f"]
    assert array("()") == []
    assert array("a") is None
