"""A configuration's data as a YAML text, read and written.

`!pyobject a.b.C` names a Python object by its import path, and the tags of `tags` stand for several values;
reading imports and calls nothing.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from datetime import date
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import msgspec
import yaml

from launcher.ranks.trust import CastoffError, check_named
from trainers.configuration.fields import ConfigError, suggestion
from trainers.configuration.pyobject import PyObject, is_import_path
from trainers.configuration.tags import TAGS, FieldPath, made, text_of


def get_loader() -> type[yaml.SafeLoader]:
    """A YAML loader that knows `!pyobject` and sweeps: `yaml.load(file, get_loader())`."""
    return _Loader


def read_yaml(text: str, origin: str = "config") -> Any:
    """The data of a YAML text.

    Raises:
        ConfigError: it is not YAML, or uses a tag that this project does not have, or not as it is meant.
    """
    try:
        return yaml.load(text, _Loader)
    except ConfigError as error:
        raise ConfigError(error.problems, origin) from error
    except yaml.YAMLError as error:
        raise ConfigError([" ".join(str(error).split())], origin) from error
    except RecursionError as error:
        raise ConfigError(["its sections lie too deep in each other"], origin) from error


def read_yaml_file(path: str | Path) -> Any:
    """The data of a YAML file.

    Raises:
        ConfigError: it cannot be read, is not YAML, or uses a tag that this project does not have; or
            everybody on the machine could have written it, and what it names is imported and called.
    """
    try:
        check_named(Path(path))
    except CastoffError as error:
        raise ConfigError([str(error).removeprefix(f"{path}: ")], str(path)) from error
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"cannot be read: {error}"], str(path)) from None
    return read_yaml(text, str(path))


class _Loader(yaml.SafeLoader):
    def construct_document(self, node: yaml.Node) -> Any:
        """The data of a text; all mistakes below tags are told at once, with their fields and lines."""
        self._mistakes: list[tuple[yaml.Node, str]] = []
        data = super().construct_document(node)
        if self._mistakes:
            places: dict[int, FieldPath] = {}
            _note_places(node, (), places)
            raise ConfigError(
                [
                    f"{text_of(places[id(wrong)]) or 'it'} (line {wrong.start_mark.line + 1}): {mistake}"
                    for wrong, mistake in self._mistakes
                ]
            )
        return data

    def construct_tagged(self, node: yaml.Node, tag: str) -> Any:
        """What one of `tags` stands for."""
        if isinstance(node, yaml.MappingNode):
            fields: Any = self.construct_mapping(node, deep=True)
        elif isinstance(node, yaml.SequenceNode):
            fields = self.construct_sequence(node, deep=True)
        elif isinstance(node, yaml.ScalarNode):
            fields = self.construct_scalar(node)
        found, mistakes = made(tag, fields, node.start_mark.line + 1)
        self._mistakes += [(node, mistake) for mistake in mistakes]
        return found

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping; a name that stands twice in it is not a mistake to PyYAML, which takes the last."""
        seen: dict[tuple[str, str], yaml.Node] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            first = seen.setdefault((key.tag, key.value), key)
            if first is not key:
                raise yaml.constructor.ConstructorError(
                    f"{key.value} stands here first", first.start_mark, "and again", key.start_mark
                )
        return super().construct_mapping(node, deep)


def _pyobject(loader: yaml.SafeLoader, node: yaml.Node) -> PyObject:
    path = loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else ""
    if not isinstance(path, str) or not is_import_path(path):
        raise yaml.constructor.ConstructorError(
            None, None, f"!pyobject takes an import path, as torch.optim.AdamW, not {path!r}", node.start_mark
        )
    return PyObject(path)


def _note_places(node: yaml.Node, place: FieldPath, places: dict[int, FieldPath]) -> None:
    """Where each node of a text stands first."""
    if id(node) in places:  # another name of it
        return
    places[id(node)] = place
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _note_places(value, (*place, str(key.value)), places)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            _note_places(value, (*place, number), places)


def _unknown(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    known = suggestion(suffix, ("pyobject", *TAGS))
    raise yaml.constructor.ConstructorError(
        None, None, f"!{suffix} is not known here{known}", node.start_mark
    )


_Loader.add_constructor("!pyobject", _pyobject)
for _tag in TAGS:
    _Loader.add_constructor(f"!{_tag}", partial(_Loader.construct_tagged, tag=_tag))
_Loader.add_multi_constructor("!", _unknown)

_NUMBER = (
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+\Z|[-+]\.[0-9]+\Z"),
)
"""What YAML 1.2 takes for a number and PyYAML, which reads YAML 1.1, for a text: 1e-4, -.5."""
_Loader.add_implicit_resolver(*_NUMBER, list("-+.0123456789"))


def to_yaml(config: msgspec.Struct) -> str:
    """A configuration as a text that can be read back; objects by their import path."""
    return yaml.dump(plain(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def in_a_line(value: Any) -> str:
    """A value as YAML has it, in one line."""
    text: str = yaml.dump(
        [plain(value)],
        Dumper=_Dumper,
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=math.inf,
    )
    return text.strip()[1:-1]


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_implicit_resolver(*_NUMBER, list("-+.0123456789"))  # such a text is written in quotes

_Dumper.add_representer(
    PyObject,
    lambda dumper, value: dumper.represent_scalar("!pyobject", value.path),
)


def plain(value: Any) -> Any:
    """A value in what YAML has: containers, texts, numbers, dates; classes and functions as PyObjects."""
    if isinstance(value, msgspec.Struct) and not isinstance(value, PyObject):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {plain(item) for item in value}
    if isinstance(value, (bool, PyObject, date, bytes)) or value is None:
        return value
    if isinstance(value, Integral):  # numpy's, too
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)  # an enumeration's, too
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "__qualname__"):  # a class or function that Python code put here
        path = f"{value.__module__}.{value.__qualname__}"
        return PyObject(path) if is_import_path(path) else path  # that of a lambda leads nowhere
    return repr(value)
