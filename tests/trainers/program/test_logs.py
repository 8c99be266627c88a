"""Log lines in a system's own words."""

from __future__ import annotations

import logging

import pytest

from trainers.program.logs import in_own_words


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
