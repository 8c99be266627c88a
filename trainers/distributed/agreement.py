"""Compares values between ranks; if a rank's differ from rank 0's, all ranks raise an error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.process_group import RankContext

_SHOWN = 8
"""The most differences that a rank reports."""


def agree(mine: Mapping[str, Any], context: RankContext, how: str) -> None:
    """Check that all ranks have the same values; all ranks must call it. `how`: the remedy, for the message.

    Raises:
        ConfigError: they do not; raised on all ranks.
    """
    if not context.distributed or context.world_size == 1:
        return
    main = context.from_main(mine)
    assert isinstance(main, Mapping)
    refuse(_differences(mine, main, context), context, how)


def refuse(found: list[str], context: RankContext, how: str) -> None:
    """Raise an error on all ranks if `found` lists problems on any rank; all ranks must call it.

    Raises:
        ConfigError: a rank has problems; raised on all ranks.
    """
    every = context.gather_on_main(found[:_SHOWN])
    context.on_main(lambda: _check(every, how))


def _differences(mine: Mapping[str, Any], main: Mapping[str, Any], context: RankContext) -> list[str]:
    return [
        f"{name}: is {_words(name, mine)} on rank {context.rank}, but {_words(name, main)} on rank 0"
        for name in dict.fromkeys([*main, *mine])
        if (name in mine, mine.get(name)) != (name in main, main.get(name))
    ]


def _check(every: Sequence[list[str]], how: str) -> None:
    others = [problems for problems in every if problems]
    if others:
        more = f"; {len(others)} ranks differ from rank 0" if len(others) > 1 else ""
        raise ConfigError([*others[0], how + more])


def _words(name: str, values: Mapping[str, Any]) -> str:
    return json.dumps(values[name]) if name in values else "not given"
