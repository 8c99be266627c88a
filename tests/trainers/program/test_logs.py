"""Log lines in a system's own words."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.trainers.program.logs import in_own_words, setup_logging, show_trainers


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


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Afterwards it is as before."""
    before = [(each, each.handlers[:], each.level) for each in LOGGERS]
    yield
    for each, handlers, level in before:
        each.handlers[:] = handlers
        each.setLevel(level)


LOGGERS = (logging.getLogger(), logging.getLogger("castoff.trainers"))


def unconfigured() -> None:
    """As a new process has it; pytest's own handlers come with each test's call."""
    for each in LOGGERS:
        each.handlers.clear()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def logged(
    *messages: str,
    level: int = logging.INFO,
    name: str = "castoff.trainers.mine",
    to: io.StringIO | None = None,
) -> list[str]:
    """Lines as a terminal, or something else, gets them of `setup_logging`."""
    stream = Terminal() if to is None else to
    unconfigured()
    with redirect_stderr(stream):
        setup_logging(0)
        for text in messages:
            logging.getLogger(name).log(level, "%s", text)
    return stream.getvalue().removesuffix("\n").split("\n")


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
    assert all(len(line) <= 80 for line in lines)
    assert all(line.startswith("    ") for line in lines[2:])
    assert " ".join(map(str.strip, lines[1:])).endswith(STEP)
    assert all(line.endswith(",") for line in lines[1:-1])


def test_a_sentence_without_values_breaks_between_words() -> None:
    (first, *rest) = logged(f"wrote {'and '.join(['words '] * 20)} to /a/{'b' * 99}")
    assert len(first) <= 80 and all(len(line) <= 80 for line in rest[:-1])
    assert rest[-1] == f"    /a/{'b' * 99}", "a path stays whole"


def test_a_warning_is_whole_and_loggers_of_others_are_named() -> None:
    (line,) = logged(STEP, level=logging.WARNING)
    assert line.endswith(f" WARNING: {STEP}")
    (line,) = logged("hello", name="others.part")
    assert line.endswith(" INFO others.part: hello")


@given(st.lists(st.text("ab ,:\n", max_size=60), max_size=6))
def test_no_word_is_lost(parts: list[str]) -> None:
    text = "x, ".join(parts)
    assert " ".join(logged(text)).split()[5:] == text.split()


def test_what_is_no_terminal_gets_one_line_for_each_message() -> None:
    (line,) = logged(STEP, to=io.StringIO())
    assert line.endswith(f" INFO: {STEP}")


def test_the_logging_of_a_program_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its handlers, levels and lines; the trainers' lines are there once, in its form if it shows any."""
    unconfigured()
    root, file = logging.getLogger(), logging.FileHandler(tmp_path / "mine.log")
    root.addHandler(file)
    root.setLevel(logging.ERROR)
    for _ in range(2):  # a program may train twice
        show_trainers(0)
    logging.getLogger("castoff.trainers.mine").info("one")
    logging.getLogger("others").warning("two")
    assert (root.handlers, root.level) == ([file], logging.ERROR)
    assert capsys.readouterr().err.count("INFO: one\n") == 1
    assert (tmp_path / "mine.log").read_text() == "one\n"
    root.addHandler(logging.StreamHandler())
    show_trainers(0)
    logging.getLogger("castoff.trainers.mine").info("three")
    assert capsys.readouterr().err == "three\n"
    show_trainers(1)
    logging.getLogger("castoff.trainers.mine").info("four")
    assert capsys.readouterr().err == ""
    file.close()


def test_a_program_that_sets_up_nothing_shows_all(capsys: pytest.CaptureFixture[str]) -> None:
    unconfigured()
    setup_logging(0)
    show_trainers(0)
    logging.getLogger("mine").info("one")
    logging.getLogger("castoff.trainers.mine").info("two")
    assert [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()] == ["one", "two"]
