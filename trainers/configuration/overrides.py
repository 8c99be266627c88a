"""Fields that replace those of a configuration's file: from flags, and from `--set FIELD=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from castoff.launcher.typed import InvalidInput, Problem
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.sweep import Choose
from castoff.trainers.configuration.yaml_text import TrainingDocument


class Rate(NamedTuple):
    """The paths of the learning rate, and of the rule that scales it, in a configuration."""

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
    """The data of the training that `choose` picks, with flags and overrides applied.

    `fields` is a parsed file, or plain data located at `origin`. `flags` are values by field path;
    `overrides` win over them. No rule scales a learning rate given in this way, unless a rule is given, too.
    Problems with flags and overrides are added to `problems`.

    Raises:
        ConfigError: there are no sections, or a sweep is wrong; it includes `problems`.
    """
    given = fields if isinstance(fields, TrainingDocument) else TrainingDocument(fields, origin)
    document = given.holding({} if given.data is None else given.data)  # None: the file is empty
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
