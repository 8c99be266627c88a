"""Structs that are checked when a program builds them, like a file, and whose `help()` fits on a screen."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import inspect
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from castoff.launcher.errors import InvalidInput, Problem
from castoff.launcher.typed.document import Document, FieldPath
from castoff.launcher.typed.structure import convert, fields_of, is_meant

T = TypeVar("T", bound="Checked")

if TYPE_CHECKING:  # a type checker sees msgspec's own constructor, with the types of the fields
    from msgspec import StructMeta as _CheckedMeta
else:

    class _CheckedMeta(type(msgspec.Struct)):
        # Checks what a program builds; what was read from a file is built without it (`structure`).

        def __call__(cls, **fields: Any) -> Any:
            if not fields:
                return super().__call__()
            return verified(Document(_plain(fields), cls.__name__), cls, [], cls._contradictions)

        @property
        def __signature__(cls) -> inspect.Signature:
            """Names and defaults alone: msgspec's own spells out every constraint, 11,000 characters."""
            return inspect.Signature([_parameter(field) for field in msgspec.structs.fields(cls)])

        @property
        def __doc__(cls) -> str:
            """The class's docstring, and a line for each field."""
            from castoff.launcher.typed.descriptions import descriptions  # late: only help needs it

            described = {name: words for name, words in descriptions(cls).items() if words}
            width = max(map(len, described), default=0)
            lines = [
                f"{name:{width}}  {words.partition('. ')[0].rstrip('.')}" for name, words in described.items()
            ]
            return "\n".join([inspect.cleandoc(vars(cls)["__doc__"]), "", *lines])

        def __dir__(cls) -> list[str]:
            """Methods alone: `help()` would list each field twice more."""
            own = set(super().__dir__()) - {*cls.__struct_fields__}
            return [name for name in sorted(own) if not name.startswith("_")]


class Checked(
    msgspec.Struct,
    metaclass=_CheckedMeta,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    repr_omit_defaults=True,
):
    """Contents of a file, or built by a program; either way checked once, with the same messages.

    `msgspec.structs.replace` checks nothing; `changed` does.
    """

    def changed(self: T, **fields: Any) -> T:
        """The same with other values in some fields.

        Raises:
            InvalidInput: with every problem that it has.
        """
        return type(self)(**{**{name: getattr(self, name) for name in self.__struct_fields__}, **fields})

    __replace__ = changed

    def _contradictions(self) -> Iterator[tuple[FieldPath, str]]:
        """Fields that are right one by one, but not together."""
        yield from ()


def verified(
    document: Document,
    kind: type[T],
    problems: list[Problem],
    check: Callable[[T], Iterator[tuple[FieldPath, str]]],
) -> T:
    """The struct that a document describes; `check` yields what is wrong with combinations of fields.

    Raises:
        InvalidInput: with every problem, and those that are in `problems` already.
    """
    found = convert(document, kind, problems, hint=word_of_others)
    wrong = {problem.path.partition(".")[0] for problem in problems}
    if found is not None:  # what a wrong field makes of the others is not worth a word
        problems += [
            document.problem(path, message)
            for path, message in check(found)
            if path[0] not in wrong and not is_meant(path, problems)
        ]
    if found is None or problems:
        raise InvalidInput(problems)
    return found


def word_of_others(kind: str, path: FieldPath, known: list[str]) -> str:
    """castoff's term for a field of another launcher, for the error about it."""
    from castoff.launcher.config.synonyms import of_others  # late: only a mistake needs it

    return of_others(kind, str(path[-1]), known)


def _plain(value: Any) -> Any:
    """A value as a file would hold it, copied, so that nobody changes it afterwards."""
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, field.name)) for name, field in fields_of(type(value)).items()}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _parameter(field: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.required else field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default)
