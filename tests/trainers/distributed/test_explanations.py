"""How errors are explained: the place that a message names."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.trainers.distributed.explanations import missing_ranks


def hook() -> None:
    raise KeyError("accuracy")


def wrapped() -> None:
    try:
        hook()
    except KeyError as error:
        raise RuntimeError("on_step failed") from error


class Held(Exception):
    """Ends the explanation once the place is known."""


class Call:
    def hold(self, _what: str, doing: str) -> Any:
        raise Held(doing)


def test_the_place_is_that_of_the_hook() -> None:
    call: Any = Call()
    with pytest.raises(RuntimeError) as raised:
        wrapped()
    with pytest.raises(Held, match=r"^in hook \(test_explanations\.py:"):
        missing_ranks(raised.value, call)
