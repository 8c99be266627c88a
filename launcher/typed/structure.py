"""Convert plain data into typed structs, with an error that reports every problem.

msgspec converts a whole value and stops at its first error. This module lets it convert one leaf at a time,
so that the user can fix all problems of a file at once.
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec

from castoff.launcher.errors import Problem, shown
from castoff.launcher.text.quoting import is_shell_line, yaml_word
from castoff.launcher.typed.document import Document, FieldPath, dotted

T = TypeVar("T", bound=msgspec.Struct)

_built: Callable[..., Any] = type(msgspec.Struct).__call__
"""Builds a struct from checked values; calling its class might check them again."""

_NO_SUCH_FIELD = "there is no such field"

Hint: TypeAlias = "Callable[[str, FieldPath, list[str]], str]"
"""Makes the end of the message about an unknown field, from the struct's name, the field's path and the
known names. Empty: the usual suggestion follows."""


def convert(
    document: Document,
    kind: type[T],
    problems: list[Problem],
    *,
    at: FieldPath = (),
    hint: Hint = lambda *_: "",
) -> T | None:
    """Convert a document to a struct of its valid fields, and add every problem to `problems`.

    Returns None if an invalid field has no default. `at`: the path of the document's data in the document
    that it is part of.
    """
    converter = _Converter(document, problems, hint, (kind, at))
    converted: T | None = converter.convert(document.data, kind, at)
    return converted


def is_meant(path: FieldPath, problems: list[Problem]) -> bool:
    """Whether `problems` report a misspelt name for this field; then it is not reported as missing."""
    section, whole = dotted(path[:-1]), re.escape(dotted(path))
    for problem in problems:
        near = re.escape(str(path[-1])) if problem.path.rpartition(".")[0] == section else whole
        if re.match(rf"{_NO_SUCH_FIELD}; did you mean (?:{whole}|{near})\b", problem.message):
            return True
    return False


@cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """A struct's fields by name; cached, because msgspec compiles every annotation at each call."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


class _Converter:
    def __init__(
        self,
        document: Document,
        problems: list[Problem],
        hint: Hint,
        whole: tuple[type[msgspec.Struct], FieldPath],
    ):
        self.document = document
        self.problems = problems
        self.hint = hint
        self.whole = whole

    def convert(self, value: Any, kind: Any, path: FieldPath) -> Any:
        union = members(bare(kind))
        options = [option for option in union if option is not types.NoneType]
        if value is None and types.NoneType in union:
            return None
        if len(union) == 1:  # the constraints belong to the whole type
            options = [kind]
        for option in map(bare, options):
            if is_struct(option) and (len(options) == 1 or isinstance(value, Mapping)):
                return self._struct(value, option, path)
            if get_origin(option) is dict and isinstance(value, Mapping):
                return self._dict(value, option, path)
            is_list = isinstance(value, (list, tuple)) and len(value) >= _least(kind)
            if is_list and (kinds := _items(option, len(value))) is not None:
                items = [
                    self.convert(item, item_kind, (*path, number))
                    for number, (item, item_kind) in enumerate(zip(value, kinds, strict=True))
                ]
                return items if get_origin(option) is list else tuple(items)
        return self._leaf(value, options, path, kind)

    def _struct(self, value: Any, kind: type[msgspec.Struct], path: FieldPath) -> Any:
        if not isinstance(value, Mapping):
            meant = _in_the_first(value, kind, path)
            self._report(path, f"is {_show(value)}, but takes fields: {_names(kind)}{meant}")
            return None
        fields = fields_of(kind)
        for key in value:
            if key not in fields:
                self._unknown((*path, str(key)), kind)
        arguments = {}
        for name, field in fields.items():
            if name not in value and field.required and not is_meant((*path, name), self.problems):
                self._report((*path, name), f"is missing; it takes {allowed(field.type)}")
            item = value.get(name)
            if name not in value or (item is None and not field.required and not _takes_null(field.type)):
                continue  # the default applies to an empty field
            before = len(self.problems)
            converted = self.convert(item, field.type, (*path, name))
            if len(self.problems) == before:
                arguments[field.name] = converted
            elif field.default is None and item is not None:
                # The default is null, so messages do not list null among the values that the field takes.
                del self.problems[before:]
                self.convert(item, without_null(field.type), (*path, name))
        try:
            return _built(kind, **arguments)
        except TypeError:  # a required field is missing or wrong, which has been reported
            return None

    def _unknown(self, path: FieldPath, kind: type[msgspec.Struct]) -> None:
        from castoff.launcher.typed.suggestion import suggestion  # late: only a mistake needs it

        names, name = list(fields_of(kind)), str(path[-1])
        meant = self.hint(kind.__name__, path, names) or self._elsewhere(path) or suggestion(name, names)
        self._report(path, f"{_NO_SUCH_FIELD}{meant}")

    def _elsewhere(self, path: FieldPath) -> str:
        """A suggestion of a field with this name in another section: in the same section, else nearest to the
        top.
        """
        paths = [field for field in _field_paths(*self.whole) if field[-1] == path[-1]]
        near = [field for field in paths if field[: len(path) - 1] == path[:-1]] or paths
        highest = min(map(len, near), default=0)
        meant = " or ".join(dotted(field) for field in near if len(field) == highest)
        return f"; did you mean {meant}?" if meant else ""

    def _dict(self, value: Mapping[Any, Any], kind: Any, path: FieldPath) -> dict[str, Any]:
        key_kind, item_kind = get_args(kind)
        converted = {}
        for key, item in value.items():
            if bare(key_kind) is str and not isinstance(key, str):  # YAML 1.1 reads on, off, yes, no as bool
                self._report(path, f"has a field {key!r}, whose name is not text; put it in quotes")
                continue
            name = self._leaf(key, [key_kind], (*path, key), key_kind, as_name=True)
            converted[name] = self.convert(item, item_kind, (*path, key))
        return converted

    def _leaf(self, value: Any, options: list[Any], path: FieldPath, kind: Any, as_name: bool = False) -> Any:
        original = value
        if isinstance(value, (bool, int, float)) and not _fits(value, options):
            value = self.document.text(path, value)
        is_text = self.document.UTF8_ONLY and isinstance(value, str)
        if is_text and re.search("[\ud800-\udfff]", value):  # a byte that is not UTF-8
            self._report(path, f"is {_show(value)}, which is not UTF-8 text: a script cannot contain it")
            return None
        for option in options:
            if get_origin(bare(option)) in (dict, list):
                # No leaf converts to these, and msgspec 0.22 crashes when it frees some nested dict types.
                continue
            if isinstance(value, float) and not math.isfinite(value) and bare(option) is float:
                continue
            try:
                return msgspec.convert(value, option)
            except msgspec.ValidationError:
                continue
        wanted = f"as its name {allowed(kind)}" if as_name else allowed(kind)
        if isinstance(original, (list, tuple)) and any(
            get_origin(bare(option)) in (list, tuple) for option in options
        ):
            is_now = shown(original)  # the list's length is wrong, not an item
        else:  # show a number as it was written, without the quotes of text
            is_now = _show(original) if original is value else value
        self._report(path, f"is {is_now}, but takes {wanted}{_meant(original, value, options, path)}")
        return None

    def _report(self, path: FieldPath, message: str) -> None:
        self.problems.append(self.document.problem(path, message))


# --- Types --------------------------------------------------------------------------------------------


def bare(kind: Any) -> Any:
    """A type without its annotations."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def members(kind: Any) -> tuple[Any, ...]:
    """The types of a union; another type is the only one."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def is_struct(kind: Any) -> bool:
    """Whether a type has fields of its own."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _takes_null(kind: Any) -> bool:
    return bare(kind) is Any or types.NoneType in members(bare(kind))


def without_null(kind: Any) -> Any:
    """A type without null."""
    options = [option for option in members(bare(kind)) if option is not types.NoneType]
    if len(options) == len(members(bare(kind))):
        return kind
    left = reduce(or_, options)
    return Annotated[(left, *kind.__metadata__)] if get_origin(kind) is Annotated else left


def _items(kind: Any, count: int) -> list[Any] | None:
    """The types of the items of a list; None if the type is not a list, or not one of `count` items."""
    kinds = get_args(kind)
    if get_origin(kind) is list or (get_origin(kind) is tuple and kinds[-1] is Ellipsis):
        return [kinds[0]] * count
    return list(kinds) if get_origin(kind) is tuple and len(kinds) == count else None


def _fits(value: bool | int | float, options: list[Any]) -> bool:
    kinds = set(map(bare, options))
    return Any in kinds or type(value) in kinds or (type(value) is int and float in kinds)


def _field_paths(kind: type[msgspec.Struct], path: FieldPath) -> Iterator[FieldPath]:
    """The paths of all fields of a struct, and of example fields of a mapping that takes any name."""
    for name, field in fields_of(kind).items():
        yield (*path, name)
        for option in map(bare, members(bare(field.type))):
            if is_struct(option):
                yield from _field_paths(option, (*path, name))
        for meta in getattr(field.type, "__metadata__", ()):
            yield from ((*path, name, inner) for example in meta.examples or () for inner in example)


# --- Words --------------------------------------------------------------------------------------------


def takes(words: str, *, many: str | None = None, **constraints: Any) -> msgspec.Meta:
    """Constrain a type, and describe its values for error messages; `many` is the plural."""
    return msgspec.Meta(extra={"takes": words, "many": many or words}, **constraints)


def meaning(words: str) -> msgspec.Meta:
    """Describe a field for the JSON schema and the command line's help."""
    return msgspec.Meta(description=words)


_AS_BOOL = {"yes": "true", "on": "true", "no": "false", "off": "false"}
"""Words that YAML 1.1 read as true and false, and that are text in a job file."""


def _meant(original: Any, value: Any, options: list[Any], path: FieldPath) -> str:
    """A suggestion for a value that a field does not take; empty if there is none."""
    from castoff.launcher.typed.suggestion import did_you_mean, setting  # late: only a mistake needs it

    if value is None and any(_is_scalar(option) and converts("", option) for option in options):
        if path and isinstance(path[-1], int):  # an item of a list is not set alone
            return '; for an empty text write ""'
        return "; use " + setting(dotted(path), '""')
    kinds = {get_origin(bare(option)) for option in options}
    if kinds == {dict} and isinstance(value, list) and value:
        pairs = [item.partition("=") for item in value if isinstance(item, str)]
        if len(pairs) == len(value) and all(equals and name.isidentifier() for name, equals, _ in pairs):
            fields = ", ".join(f"{name}: {yaml_word(text)}" for name, _, text in pairs)
            return f"; use {setting(dotted(path), f'{{{fields}}}')}"
    if not isinstance(value, str):
        return ""

    choices = [choice for option in options for choice in get_args(bare(option))]
    near = did_you_mean(value, [choice for choice in choices if isinstance(choice, str)])
    if bool in map(bare, options) and (meant := _AS_BOOL.get(value.lower())):
        return f"; use {setting(dotted(path), meant)}"
    name, equals, text = value.partition("=")
    if kinds == {dict} and equals and name.isidentifier():  # a shell's way to set a variable
        return f"; use {setting(dotted((*path, name)), yaml_word(text))}"
    lists = [option for option in options if get_origin(bare(option)) is list and dict not in kinds]
    return near or (_as_list(original, value, lists[0], path) if lists else "")


def _in_the_first(value: Any, kind: type[msgspec.Struct], path: FieldPath) -> str:
    """A suggestion to set a section's first field, if no other is required: `restart: 3` means its `max`."""
    from castoff.launcher.typed.suggestion import setting  # late: only a mistake needs it

    fields = list(fields_of(kind).items())
    if not path or not fields or any(other.required for _, other in fields[1:]):
        return ""
    name, first = fields[0]
    union = members(bare(first.type))
    single = filter(_is_scalar, union if len(union) > 1 else [first.type])  # a list may be the other choice
    if type(value) not in (int, str) or not any(converts(value, option) for option in single):
        return ""
    words = yaml_word(value) if isinstance(value, str) else str(value)
    if isinstance(path[-1], int):  # an item of a list is not set alone
        return f"; write {{{name}: {words}}}"
    return f"; use {setting(dotted((*path, name)), words)}"


def _is_scalar(kind: Any) -> bool:
    """Whether a field takes only single values; msgspec 0.22 may crash when it converts to other types."""
    options = map(bare, members(bare(kind)))
    return not any(is_struct(option) or get_origin(option) in (dict, list, tuple) for option in options)


def converts(value: Any, kind: Any, *, strict: bool = True) -> bool:
    """Whether msgspec converts a value to a type; `strict`: without reading a text as a number."""
    try:
        msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError:
        return False
    return True


def _as_list(original: Any, text: str, kind: Any, path: FieldPath) -> str:
    """A suggestion to write a value as a list; a command line becomes one item per word."""
    from castoff.launcher.typed.suggestion import setting  # late: only a mistake needs it

    words = [line for line in text.splitlines() if line.strip()] or [text]  # a block such as `setup: |`
    if path[-1] == "command" and is_shell_line(text):
        words = ["bash", "-c", text]
    elif path[-1] in ("command", "args"):
        with contextlib.suppress(ValueError):  # an unclosed quote
            words = shlex.split(text)
    is_text = original is text
    if not converts(words, kind, strict=is_text):  # the items are not valid either
        return "; a list is written [a, b]"
    items = ", ".join(map(yaml_word, words) if is_text else words)
    if any(isinstance(step, int) for step in path):  # a list cannot be set by its items' numbers
        return f"; write {'' if isinstance(path[-1], int) else f'{path[-1]}: '}[{items}]"
    return f"; use {setting(dotted(path), f'[{items}]')}"


def _names(kind: type[msgspec.Struct]) -> str:
    return ", ".join(fields_of(kind))


_Form: TypeAlias = Literal["takes", "many"]

_WORDS: dict[Any, dict[_Form, str]] = {
    str: {"takes": "text", "many": "texts"},
    int: {"takes": "a whole number", "many": "whole numbers"},
    float: {"takes": "a number", "many": "numbers"},
    bool: {"takes": "true or false", "many": "true or false"},
    types.NoneType: {"takes": "null", "many": "null"},
    Any: {"takes": "a value", "many": "values"},
}


def allowed(kind: Any, form: _Form = "takes") -> str:
    """The values that a type takes, in words; from the type's `takes`, if it has one."""
    metadata = getattr(kind, "__metadata__", ())
    for meta in metadata:
        if meta.extra and form in meta.extra:
            return str(meta.extra[form])
    kind = bare(kind)
    if members(kind) != (kind,):
        return " or ".join(dict.fromkeys(allowed(option, form) for option in members(kind)))
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(kind))
    if get_origin(kind) in (list, tuple):
        return f"{_list_of(kind)}{_bounds(metadata)}"
    if get_origin(kind) is dict:
        return f"names, each with {allowed(get_args(kind)[1])}"
    words = _WORDS.get(kind, {}).get(form, str(kind))
    return f"the fields {_names(kind)}" if is_struct(kind) else f"{words}{_bounds(metadata)}"


def _list_of(kind: Any) -> str:
    kinds = list(dict.fromkeys(item for item in get_args(kind) if item is not Ellipsis))
    fixed = get_origin(kind) is tuple and Ellipsis not in get_args(kind)
    count = f"{len(get_args(kind))} " if fixed else ""
    if len(kinds) > 1:
        return f"a list of {' and '.join(map(allowed, kinds))}"
    return f"a list of {count}{allowed(kinds[0], 'many')}".replace("a list of one of", "a list of")


def _bounds(metadata: tuple[Any, ...]) -> str:
    """The bounds of a number or a length, in words."""
    words = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
    limits = {
        name: limit for meta in metadata for name in words if (limit := getattr(meta, name)) is not None
    }
    if limits.keys() == {"ge", "le"}:
        return f" from {_number(limits['ge'])} to {_number(limits['le'])}"
    bounds = [f"{word} {_number(limits[name])}" for name, word in words.items() if name in limits]
    if any(meta.min_length for meta in metadata):
        return ", not empty"
    return f" {' and '.join(bounds)}" if bounds else ""


def _least(kind: Any) -> int:
    """The least number of a list's entries."""
    return max((meta.min_length or 0 for meta in getattr(kind, "__metadata__", ())), default=0)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _show(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return shown(value)
