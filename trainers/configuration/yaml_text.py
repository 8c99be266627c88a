"""Reads and writes a configuration's data as YAML.

`!pyobject a.b.C` names a Python object by its import path; the module `tags` has the other tags. Reading
imports and calls nothing.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import msgspec
import yaml

from castoff.launcher.ranks.trust import CastoffError, check_named
from castoff.launcher.typed import InvalidInput
from castoff.launcher.typed.composing import not_yaml
from castoff.launcher.typed.document import Document, FieldPath, Reader, invalid
from castoff.launcher.typed.suggestion import suggestion
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject, is_import_path
from castoff.trainers.configuration.tags import TAGS, made


def get_loader() -> type[yaml.SafeLoader]:
    """A YAML loader that knows `!pyobject` and sweeps: `yaml.load(file, get_loader())`."""
    return _Loader


def read_yaml(text: str, origin: str = "config") -> Any:
    """The data of a YAML text.

    Raises:
        ConfigError: it is not YAML, or uses an unknown tag, or uses a tag wrongly.
    """
    with _refused():
        return TrainingDocument.parse(text, origin).data


def read_yaml_file(path: str | Path) -> TrainingDocument:
    """Read a YAML file, with the line of each value.

    Raises:
        ConfigError: it cannot be read, is not YAML or uses an unknown tag; or everybody on the machine may
            write to it, which is refused because the objects it names are imported and called.
    """
    with _refused(str(path)):
        check_named(Path(path))
        return TrainingDocument.read(Path(path))


@contextmanager
def _refused(origin: str = "config") -> Iterator[None]:
    """Turn the reader's errors in this context into a ConfigError."""
    try:
        yield
    except InvalidInput as error:
        raise ConfigError(error.problems, origin) from error
    except CastoffError as error:
        raise ConfigError([str(error).removeprefix(f"{origin}: ")], origin) from error


class _Loader(yaml.SafeLoader):
    def __init__(self, stream: Any):
        super().__init__(stream)
        self.mistakes: list[tuple[yaml.Node, str]] = []

    def get_single_data(self) -> Any:
        """The data of the text passed to `yaml.load`."""
        node = self.get_single_node()
        name = str(self.name)
        with _refused():
            document = TrainingDocument(None, "config" if name.startswith("<") else name)
            return None if node is None else document.construct(node)

    def construct_tagged(self, node: yaml.Node, tag: str) -> Any:
        """Make the node of one of the tags in `tags`."""
        if isinstance(node, yaml.MappingNode):
            fields: Any = self.construct_mapping(node, deep=True)
        elif isinstance(node, yaml.SequenceNode):
            fields = self.construct_sequence(node, deep=True)
        elif isinstance(node, yaml.ScalarNode):
            fields = self.construct_scalar(node)
        tagged, mistakes = made(tag, fields, node.start_mark.line + 1)
        self.mistakes += [(node, mistake) for mistake in mistakes]
        return tagged


class _Places(Reader):
    """Records places and finds duplicate keys; tags and scalars are left to PyYAML."""

    def __init__(self, document: Document):
        super().__init__(document)
        self.paths: dict[int, FieldPath] = {}
        """The path of each YAML node by the node's id: the first path, if aliases give it several."""

    def value(self, node: yaml.Node, path: FieldPath) -> Any:
        self.paths.setdefault(id(node), path)
        return super().value(node, path)

    def _same(self, key: yaml.ScalarNode) -> object:
        return key.tag, key.value

    def _scalar(self, node: yaml.ScalarNode, path: FieldPath) -> None:
        return None

    def _check_tag(self, node: yaml.Node, allowed: Iterable[str], path: FieldPath) -> None:
        return None


class TrainingDocument(Document):
    """A training's YAML, with our tags and otherwise PyYAML's rules, those of YAML 1.1."""

    EXAMPLE = "training.seed=3"
    LOADER = _Loader
    UTF8_ONLY = False

    def construct(self, node: yaml.Node) -> Any:
        """The data of a composed node; nothing is imported, called or drawn."""
        places = _Places(self)
        places.value(node, ())
        if places.problems:
            raise InvalidInput(places.problems)
        loader = _Loader("")
        try:
            data = loader.construct_document(node)
        except yaml.MarkedYAMLError as error:
            raise not_yaml(error, self.origin) from error
        except ValueError as error:  # such as the date 2024-02-30
            raise invalid(self.origin, f"is not valid YAML: {error}") from error
        if loader.mistakes:
            raise InvalidInput(
                [self.problem(places.paths.get(id(wrong), ()), mistake) for wrong, mistake in loader.mistakes]
            )
        return data


def _pyobject(loader: _Loader, node: yaml.Node) -> PyObject | None:
    path = loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else ""
    if isinstance(path, str) and is_import_path(path):
        return PyObject(path)
    loader.mistakes.append((node, f"!pyobject takes an import path, such as torch.optim.AdamW, not {path!r}"))
    return None


def _unknown(loader: _Loader, suffix: str, node: yaml.Node) -> None:
    known = suggestion(suffix, ("pyobject", *TAGS))
    loader.mistakes.append((node, f"!{suffix} is not known here{known}"))


_Loader.add_constructor("!pyobject", _pyobject)
for _tag in TAGS:
    _Loader.add_constructor(f"!{_tag}", partial(_Loader.construct_tagged, tag=_tag))
_Loader.add_multi_constructor("!", _unknown)

_NUMBER = (
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+\Z|[-+]\.[0-9]+\Z"),
)
"""Numbers in YAML 1.2 that PyYAML, which reads YAML 1.1, would take for text: 1e-4, -.5."""
_Loader.add_implicit_resolver(*_NUMBER, list("-+.0123456789"))


def to_yaml(config: msgspec.Struct) -> str:
    """A configuration as YAML that can be read back, with objects by their import paths."""
    return yaml.dump(plain(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def in_a_line(value: Any) -> str:
    """A value as YAML on one line."""
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


_Dumper.add_implicit_resolver(*_NUMBER, list("-+.0123456789"))  # text of this form is quoted

_Dumper.add_representer(
    PyObject,
    lambda dumper, value: dumper.represent_scalar("!pyobject", value.path),
)


def named_fields(section: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """The fields of a section by the names that they have in YAML, as `from`."""
    for name, attribute in zip(section.__struct_encode_fields__, section.__struct_fields__, strict=True):
        yield name, getattr(section, attribute)


def plain(value: Any) -> Any:
    """A value in YAML's types: containers, text, numbers, dates; classes and functions as PyObjects."""
    if isinstance(value, msgspec.Struct) and not isinstance(value, PyObject):
        return {name: plain(one) for name, one in named_fields(value)}
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
    if hasattr(value, "__qualname__"):  # a class or function set by Python code
        path = f"{value.__module__}.{value.__qualname__}"
        return PyObject(path) if is_import_path(path) else path  # a lambda cannot be imported again
    return repr(value)
