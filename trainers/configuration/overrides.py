"""Fields set from outside, over what a configuration's file says: by flags, and by `--set FIELD=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from launcher.typed import InvalidInput, Problem
from launcher.typed.document import FieldPath
from trainers.configuration.yaml_text import TrainingDocument


class Rate(NamedTuple):
    """Where a configuration has its learning rate, and the rule that scales it."""

    value: FieldPath
    rule: FieldPath


def document_of(fields: Any, origin: str) -> TrainingDocument:
    """What a file says, or plain data that stands at `origin`; what is laid over it changes neither."""
    if isinstance(fields, TrainingDocument):
        return fields.holding(fields.data)
    return TrainingDocument(fields, origin)


def lay_over(
    document: TrainingDocument,
    flags: Mapping[str, Any],
    overrides: Iterable[str],
    rate: Rate,
    problems: list[Problem],
) -> None:
    """Set fields from outside: `flags` by the fields' paths, and overrides, which win.

    A learning rate that is given so is meant as it stands: no rule scales it, unless one is given, too.
    What is wrong with any of them comes to `problems`.
    """
    for path, value in flags.items():
        _put(document, tuple(path.split(".")), value, problems)
    for assignment in overrides:
        try:
            document.override(assignment)
        except InvalidInput as error:
            problems += error.problems
    if document.given(rate.value) and not document.given(rate.rule):
        _put(document, rate.rule, "none", [])


def _put(document: TrainingDocument, path: FieldPath, value: Any, problems: list[Problem]) -> None:
    origin = "command line"
    try:
        document.put(list(map(str, path)), TrainingDocument(value, origin), origin)
    except InvalidInput as error:
        problems += error.problems
