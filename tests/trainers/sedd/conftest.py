"""Leaves loggers as they were: a training in the test's own process has them speak of its YAML's fields."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from trainers.sedd.start.words import OwnWords


@pytest.fixture(autouse=True)
def loggers_that_forget() -> Iterator[None]:
    yield
    for logger in logging.getLogger().manager.loggerDict.values():
        for each in list(getattr(logger, "filters", ())):
            if isinstance(each, OwnWords):
                logger.removeFilter(each)  # type: ignore[union-attr]  # a placeholder has no filters
