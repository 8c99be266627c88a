"""Plain data into typed structs, reporting everything that is wrong at once.

msgspec converts a whole value and stops at its first error; here it converts one leaf at a time,
so that a person mends a file in one go.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import types
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from launcher.config.document import Document, FieldPath, did_you_mean, dotted
from launcher.errors import Problem, shown
from launcher.quoting import yaml_word

T = TypeVar("T", bound=msgspec.Struct)


def convert(document: Document, kind: type[T], problems: list[Problem]) -> T | None:
    """The struct of those fields that are right; what is wrong is added to `problems`.

    None if a field that is wrong has no default.
    """
    converted: T | None = _Converter(document, problems).convert(document.data, kind, ())
    return converted


@cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """A struct's fields by name; msgspec compiles every annotation anew each time it is asked."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


class _Converter:
    def __init__(self, document: Document, problems: list[Problem]):
        self.document = document
        self.problems = problems

    def convert(self, value: Any, kind: Any, path: FieldPath) -> Any:
        union = members(bare(kind))
        options = [option for option in union if option is not types.NoneType]
        if value is None and types.NoneType in union:
            return None
        if len(union) == 1:  # its constraints stand on the whole
            options = [kind]
        for option in map(bare, options):
            if is_struct(option) and (len(options) == 1 or isinstance(value, dict)):
                return self._struct(value, option, path)
            if get_origin(option) is dict and isinstance(value, dict):
                return self._dict(value, option, path)
            if get_origin(option) is list and isinstance(value, (list, tuple)):
                (item_kind,) = get_args(option)
                return [self.convert(item, item_kind, (*path, at)) for at, item in enumerate(value)]
        return self._leaf(value, options, path, kind)

    def _struct(self, value: Any, kind: type[msgspec.Struct], path: FieldPath) -> Any:
        if not isinstance(value, dict):
            self._report(path, f"is {_show(value)}, but holds fields: {_names(kind)}")
            return None
        fields = fields_of(kind)
        for key in value:
            if key not in fields:
                from launcher.config.synonyms import hint  # late: only a mistake needs it

                self._report((*path, key), f"is not a field{hint(kind.__name__, str(key), list(fields))}")
        arguments = {}
        for name, field in fields.items():
            if value.get(name) is None and not field.required:
                continue  # a field left empty says nothing: the default applies
            if name not in value:
                self._report((*path, name), f"is missing; it takes {_allowed(field.type)}")
                continue
            known = len(self.problems)
            converted = self.convert(value[name], field.type, (*path, name))
            if len(self.problems) == known:
                arguments[field.name] = converted
        try:
            return kind(**arguments)
        except TypeError:  # a required field is missing or wrong, which has been reported
            return None

    def _dict(self, value: Any, kind: Any, path: FieldPath) -> dict[str, Any]:
        key_kind, item_kind = get_args(kind)
        converted = {}
        for key, item in value.items():
            name = self._leaf(key, [key_kind], (*path, key), key_kind, as_name=True)
            converted[name] = self.convert(item, item_kind, (*path, key))
        return converted

    def _leaf(self, value: Any, options: list[Any], path: FieldPath, kind: Any, as_name: bool = False) -> Any:
        given = value
        if isinstance(value, (bool, int, float)) and not _fits(value, options):
            value = self.document.text(path, value)
        if isinstance(value, str) and re.search("[\ud800-\udfff]", value):  # a byte that is not UTF-8
            self._report(path, f"is {_show(value)}, which is not UTF-8 text: no script could hold it")
            return None
        for option in options:
            if get_origin(bare(option)) in (dict, list):
                continue  # no leaf fits; and msgspec 0.22 crashes as it frees some types of nested dicts
            try:
                return msgspec.convert(value, option)
            except msgspec.ValidationError:
                continue
        hint = ""
        if isinstance(value, str):
            choices = [choice for option in options for choice in get_args(bare(option))]
            hint = did_you_mean(value, [choice for choice in choices if isinstance(choice, str)])
            lists = [option for option in options if get_origin(bare(option)) is list]
            hint = hint or (_as_list(given, value, lists[0], path) if lists else "")
        allowed = f"as its name {_allowed(kind)}" if as_name else _allowed(kind)
        # A number is shown as it was written, without the quotes of text.
        shown = _show(given) if given is value else value
        self._report(path, f"is {shown}, but takes {allowed}{hint}")
        return None

    def _report(self, path: FieldPath, message: str) -> None:
        self.problems.append(Problem(self.document.where(path), dotted(path), message))


def bare(kind: Any) -> Any:
    """A type without its annotations."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def members(kind: Any) -> tuple[Any, ...]:
    """The types of a union; of any other, itself."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def is_struct(kind: Any) -> bool:
    """Whether a type has fields of its own."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _fits(value: bool | int | float, options: list[Any]) -> bool:
    kinds = set(map(bare, options))
    return type(value) in kinds or (type(value) is int and float in kinds)


def takes(words: str, *, many: str | None = None, **constraints: Any) -> msgspec.Meta:
    """Constrain a type and say in words what it takes, for error messages; `many` is the plural."""
    return msgspec.Meta(extra={"takes": words, "many": many or words}, **constraints)


def meaning(words: str) -> msgspec.Meta:
    """Say what a field means: for the JSON schema and the command line's help."""
    return msgspec.Meta(description=words)


def _as_list(given: Any, text: str, kind: Any, path: FieldPath) -> str:
    """How a value is written in the list that a field takes: of a command line, each word."""
    words = [text]
    if path[-1] in ("command", "args"):
        with contextlib.suppress(ValueError):  # a quote that does not end
            words = shlex.split(text)
    is_text = given is text
    try:
        msgspec.convert(words, kind, strict=is_text)
    except msgspec.ValidationError:  # it is no such item either
        return "; a list is written [a, b]"
    return f"; write {path[-1]}: [{', '.join(map(yaml_word, words) if is_text else words)}]"


def _names(kind: type[msgspec.Struct]) -> str:
    return ", ".join(fields_of(kind))


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def _allowed(kind: Any, form: Literal["takes", "many"] = "takes") -> str:
    """What a field takes, in words: from its own description where it has one."""
    for meta in getattr(kind, "__metadata__", ()):
        if meta.extra and form in meta.extra:
            return str(meta.extra[form])
    kind = bare(kind)
    options = [option for option in members(kind) if option is not types.NoneType]
    if options != [kind]:
        return " or ".join(dict.fromkeys(_allowed(option, form) for option in options))
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(kind))
    if get_origin(kind) is list:
        return f"a list of {_allowed(get_args(kind)[0], 'many')}".replace("a list of one of", "a list of")
    if get_origin(kind) is dict:
        return f"names, each with {_allowed(get_args(kind)[1])}"
    return f"the fields {_names(kind)}" if is_struct(kind) else _WORDS.get(kind, str(kind))


def _show(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return shown(value)
