"""Fields set from outside, over what a configuration's file says: by flags, and by `--set FIELD=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from castoff.launcher.typed import InvalidInput, Problem
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.sweep import Choose
from castoff.trainers.configuration.yaml_text import TrainingDocument


class Rate(NamedTuple):
    """Where a configuration has its learning rate, and the rule that scales it."""

    value: tuple[str, ...]
    rule: tuple[str, ...]


def one_training(
    fields: Any,
    flags: Mapping[str, Any],
    overrides: Iterable[str],
    choose: Choose,
    rate: Rate,
    origin: str,
    problems: list[Problem],
) -> TrainingDocument:
    """What a file or plain data say, with what is set over it, of the training that `choose` takes.

    `flags` are by the fields' paths, and overrides win over them. A learning rate that is given so is meant
    as it stands: no rule scales it, unless one is given, too. Plain data stand at `origin`. What is wrong
    with flags and overrides comes to `problems`.

    Raises:
        ConfigError: there are no sections, or something is wrong with sweeps; `problems` are reported, too.
    """
    given = fields if isinstance(fields, TrainingDocument) else TrainingDocument(fields, origin)
    document = given.holding({} if given.data is None else given.data)  # an empty file, or comments alone
    if not isinstance(document.data, Mapping):
        raise ConfigError(["holds no sections (training, data …)"], document.origin)
    for path, value in flags.items():
        _put(document, path.split("."), value, problems)
    for assignment in overrides:
        try:
            document.override(assignment)
        except InvalidInput as error:
            problems += error.problems
    if document.given(rate.value) and not document.given(rate.rule):
        _put(document, list(rate.rule), "none", [])
    wrong: list[str] = []
    data = choose(document.data, wrong)
    if data is None:
        raise ConfigError([*problems, *wrong], document.origin)
    return document.holding(data)


def _put(document: TrainingDocument, path: list[str], value: Any, problems: list[Problem]) -> None:
    origin = "command line"
    try:
        document.put(path, TrainingDocument(value, origin), origin)
    except InvalidInput as error:
        problems += error.problems
