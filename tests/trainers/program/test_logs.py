"""Log lines in a system's own words."""

from __future__ import annotations

import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.program.logs import in_own_words, setup_logging


def test_lines_of_some_loggers_are_reworded_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    mine, others = logging.getLogger("tests.mine"), logging.getLogger("tests.others")
    with in_own_words(str.upper, "tests.mine"):
        mine.info("%s of %d", "field", 3)
        others.info("%s", "as it is")
    mine.info("%s", "again as it is")
    assert caplog.messages == ["FIELD OF 3", "as it is", "again as it is"]


def test_afterwards_they_do_not_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError), in_own_words(str.upper, "tests.mine"):
        raise ValueError
    logging.getLogger("tests.mine").warning("as it is")
    assert caplog.messages == ["as it is"]


def logged(*messages: str, level: int = logging.INFO, name: str = "trainers.mine") -> list[str]:
    """Lines as `setup_logging` shows them."""
    root = logging.getLogger()
    before, at = root.handlers[:], root.level
    root.handlers.clear()
    try:
        setup_logging(0)
        (handler,) = root.handlers
        records = [logging.LogRecord(name, level, "", 0, text, None, None) for text in messages]
        return "\n".join(map(handler.format, records)).split("\n")
    finally:
        root.handlers[:] = before
        root.setLevel(at)


STEP = (
    "step 12,500 (epoch 12 of 14): loss 0.9503, grad_norm 5.506, lr 2.96e-06, accuracy 0.8125, "
    "1,164 samples/s, waiting for data 20% of the time, rank 3 slower by 14%, 3 h 20 min left"
)


def test_lines_fit_a_terminal_and_break_between_values() -> None:
    lines = logged("short", STEP)
    assert re.fullmatch(r"\[RANK 0\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO: short", lines[0])
    assert re.match(
        r"\[RANK 0\] \d\d:\d\d:\d\d INFO: step 12,500 \(epoch 12 of 14\): loss 0\.9503,$", lines[1]
    )
    assert all(len(line) <= 80 - len("[0] ") for line in lines)
    assert all(line.startswith("    ") for line in lines[2:])
    assert " ".join(map(str.strip, lines[1:])).endswith(STEP)
    assert all(line.endswith(",") for line in lines[1:-1])


def test_a_sentence_without_values_breaks_between_words() -> None:
    (first, *rest) = logged(f"wrote {'and '.join(['words '] * 20)} to /a/{'b' * 99}")
    assert len(first) <= 76 and all(len(line) <= 76 for line in rest[:-1])
    assert rest[-1] == f"    /a/{'b' * 99}", "a path stays whole"


def test_a_warning_is_whole_and_loggers_of_others_are_named() -> None:
    (line,) = logged(STEP, level=logging.WARNING)
    assert line.endswith(f" WARNING: {STEP}")
    (line,) = logged("hello", name="torch.distributed")
    assert line.endswith(" INFO torch.distributed: hello")


@given(st.lists(st.text("ab ,:\n", max_size=60), max_size=6))
def test_no_word_is_lost(parts: list[str]) -> None:
    text = "x, ".join(parts)
    assert " ".join(logged(text)).split()[5:] == text.split()
