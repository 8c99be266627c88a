"""Structs that are checked like a file when a program builds them, with a `help()` that fits on a screen."""

# No `from __future__ import annotations`: msgspec would compile each annotation at every start.

import inspect
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from castoff.launcher.errors import InvalidInput, Problem
from castoff.launcher.text.python_words import speaks_python
from castoff.launcher.typed.document import Document, FieldPath
from castoff.launcher.typed.structure import convert, fields_of, is_meant

T = TypeVar("T", bound="Checked")

if TYPE_CHECKING:  # type checkers know msgspec's constructor, with the types of the fields
    from msgspec import StructMeta as _CheckedMeta
else:

    class _CheckedMeta(type(msgspec.Struct)):
        # Checks structs that a program builds. `structure` builds structs from files without this class.

        def __call__(cls, **fields: Any) -> Any:
            if not fields:
                return super().__call__()
            with speaks_python():
                return verified(Document(_plain(fields), cls.__name__), cls, [], cls._contradictions)

        @property
        def __signature__(cls) -> inspect.Signature:
            """Only names and defaults: msgspec's own signature shows every constraint, 11,000 characters."""
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
            """Only methods, since `help()` would list each field twice more."""
            names = set(super().__dir__()) - {*cls.__struct_fields__}
            return [name for name in sorted(names) if not name.startswith("_")]


class Checked(
    msgspec.Struct,
    metaclass=_CheckedMeta,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    repr_omit_defaults=True,
):
    """A struct that is checked once, with the same messages whether it comes from a file or a program.

    `msgspec.structs.replace` checks nothing; `changed` does.
    """

    def changed(self: T, **fields: Any) -> T:
        """A copy with other values in some fields.

        Raises:
            InvalidInput: with every problem of the copy.
        """
        return type(self)(**{**{name: getattr(self, name) for name in self.__struct_fields__}, **fields})

    __replace__ = changed

    def _contradictions(self) -> Iterator[tuple[FieldPath, str]]:
        """Yield the problems of fields that are valid alone but contradict each other."""
        yield from ()


def verified(
    document: Document,
    kind: type[T],
    problems: list[Problem],
    check: Callable[[T], Iterator[tuple[FieldPath, str]]],
) -> T:
    """Return the struct that a document describes. `check` yields the problems of fields that are valid alone
    but contradict each other.

    Raises:
        InvalidInput: with every problem, including those already in `problems`.
    """
    struct = convert(document, kind, problems, hint=word_of_others)
    wrong = {problem.path.partition(".")[0] for problem in problems}
    if struct is not None:
        problems += [
            document.problem(path, message)
            for path, message in check(struct)
            # An invalid field is not reported again for contradicting the others.
            if path[0] not in wrong and not is_meant(path, problems)
        ]
    if struct is None or problems:
        raise InvalidInput(problems)
    return struct


def word_of_others(kind: str, path: FieldPath, known: list[str]) -> str:
    """The end of the error about an unknown field: castoff's name, if the field is another launcher's."""
    from castoff.launcher.config.synonyms import of_others  # late: only a mistake needs it

    return of_others(kind, str(path[-1]), known)


def _plain(value: Any) -> Any:
    """A copy of a value as a file would contain it; later changes of the original do not affect it."""
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
