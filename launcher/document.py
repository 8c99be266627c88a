"""YAML text into plain data that still knows where each value stands and how it was written.

YAML 1.2's core rules apply, not PyYAML's 1.1 ones: `no` and `on` are words, `1:30:00` is a word,
`010` is the number ten. A value that a field wants as text is taken as written, so `1e-3` or `007`
reach a program unchanged.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from launcher.errors import CastoffError, InvalidInput, Problem

FieldPath: TypeAlias = tuple[str | int, ...]

_MAX_VALUES = 100_000
"""Bound on the values of one document: aliases of aliases grow without end in a few lines."""

_NULL, _BOOL, _INT, _FLOAT = (f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float"))


class _CoreLoader(yaml.CSafeLoader):  # type: ignore[misc, name-defined, unused-ignore]
    """Resolves plain scalars by https://yaml.org/spec/1.2.2/#1032-tag-resolution."""


_CoreLoader.yaml_implicit_resolvers = {}


for _tag, _pattern, _first in (
    (_NULL, r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    (_BOOL, r"(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    (_INT, r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    (
        _FLOAT,
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        list("-+.0123456789"),
    ),
):
    _CoreLoader.add_implicit_resolver(_tag, re.compile(_pattern), _first)


class Document:
    """Data read from one place, with the line and the spelling of every value."""

    def __init__(self, data: Any, origin: str):
        self.data = data
        self.origin = origin
        self._places: dict[FieldPath, str] = {}
        self._texts: dict[FieldPath, str] = {}

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read a file.

        Raises:
            CastoffError: the file cannot be read.
            InvalidInput: it is not YAML.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise CastoffError(f"{path}: there is no such file") from None
        except UnicodeDecodeError as error:
            raise CastoffError(f"{path}: is not UTF-8 text (byte {error.start})") from None
        except OSError as error:
            raise CastoffError(f"{path}: cannot be read: {error.strerror}") from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, origin: str) -> Document:
        """Parse YAML text that stands at `origin`.

        Raises:
            InvalidInput: it is not YAML, or a key stands twice.
        """
        document = cls({}, origin)
        node = _compose(text, origin)
        if node is not None:
            reader = _Reader(document)
            document.data = reader.value(node, ())
            if reader.problems:
                raise InvalidInput(reader.problems)
        return document

    def where(self, path: FieldPath) -> str:
        """The place of a value, or of the nearest thing around it that has one."""
        for length in range(len(path), -1, -1):
            if path[:length] in self._places:
                return self._places[path[:length]]
        return self.origin

    def text(self, path: FieldPath, value: object) -> str:
        """A scalar as it was written."""
        return self._texts.get(path, str(value))

    def record(self, path: FieldPath, place: str, text: str | None) -> None:
        """Remember where a value stands and, for a scalar, how it is spelled."""
        self._places[path] = place
        if text is None:
            self._texts.pop(path, None)
        else:
            self._texts[path] = text

    def override(self, assignment: str) -> None:
        """Set one field as `--set a.b=c` does; the value is YAML, a list index is a number.

        Raises:
            InvalidInput: no `=`, a path through something that holds no fields, bad YAML.
        """
        origin = f"--set {assignment}"
        dotted, equals, text = assignment.partition("=")
        if not equals or not dotted.strip():
            raise InvalidInput([Problem(origin, "", "write it as --set FIELD=VALUE, as in --set nodes=4")])
        keys = dotted.strip().split(".")
        self.put(keys, Document.parse(text, origin), origin)

    def put(self, keys: list[str], value: Document, origin: str) -> None:
        """Place another document's data at a path of this one."""
        if self.data is None:
            self.data = {}
        holder: Any = self.data
        path: FieldPath = ()
        for position, key in enumerate(keys):
            last = position == len(keys) - 1
            index = _index(holder, key, path, origin)
            path = (*path, index)
            if last:
                holder[index] = value.data
            elif isinstance(holder, dict) and holder.get(index) is None:
                holder[index] = {}
            holder = holder[index]
        self._forget(path)
        self._places.update({(*path, *inner): origin for inner in value._places})
        self._texts.update({(*path, *inner): text for inner, text in value._texts.items()})
        self._places[path] = origin

    def merge(self, other: Document) -> None:
        """Lay another document over this one: fields merge, everything else is replaced."""
        self._merge(other, other.data, ())

    def _merge(self, other: Document, value: Any, path: FieldPath) -> None:
        mine = self._at(path)
        if isinstance(value, dict) and isinstance(mine, dict):
            for key, item in value.items():
                self._merge(other, item, (*path, key))
            return
        self._forget(path)
        for known, given in ((self._places, other._places), (self._texts, other._texts)):
            known.update({at: there for at, there in given.items() if at[: len(path)] == path})
        holder = self._at(path[:-1])
        if path:
            holder[path[-1]] = value
        else:
            self.data = value

    def _at(self, path: FieldPath) -> Any:
        value = self.data
        for part in path:
            if not isinstance(value, dict) or part not in value:
                return None
            value = value[part]
        return value

    def _forget(self, path: FieldPath) -> None:
        for known in (self._places, self._texts):
            for key in [key for key in known if key[: len(path)] == path]:
                del known[key]


def _index(holder: Any, key: str, path: FieldPath, origin: str) -> str | int:
    if isinstance(holder, dict):
        return key
    if isinstance(holder, list):
        if key.isdecimal() and int(key) < len(holder):
            return int(key)
        message = f"{key} is no index of this list; it has {len(holder)} entries, counted from 0"
        raise InvalidInput([Problem(origin, dotted(path), message)])
    raise InvalidInput([Problem(origin, dotted(path), f"holds {holder!r}, which has no field {key!r}")])


def _compose(text: str, origin: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{origin}:{mark.line + 1}" if mark else origin
        about = ", ".join(part for part in (error.context, error.problem) if part)
        raise InvalidInput([Problem(where, "", f"is not valid YAML: {about}")]) from None
    except yaml.YAMLError as error:
        raise InvalidInput([Problem(origin, "", f"is not valid YAML: {error}")]) from None


class _Reader:
    """Turns composed nodes into data, collecting what is wrong."""

    def __init__(self, document: Document):
        self.document = document
        self.problems: list[Problem] = []
        self._open: list[yaml.Node] = []
        self._values = 0

    def value(self, node: yaml.Node, path: FieldPath) -> Any:
        self._values += 1
        place = f"{self.document.origin}:{node.start_mark.line + 1}"
        if self.document.origin.startswith("--"):
            place = self.document.origin
        if self._values > _MAX_VALUES or node in self._open:
            raise InvalidInput([Problem(place, dotted(path), "an alias repeats this without end")])
        if isinstance(node, yaml.ScalarNode):
            self.document.record(path, place, node.value)
            return self._scalar(node, path, place)
        self.document.record(path, place, None)
        self._open.append(node)
        data = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._sequence(node, path)
        self._open.pop()
        return data

    def _sequence(self, node: yaml.Node, path: FieldPath) -> list[Any]:
        return [self.value(item, (*path, number)) for number, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = f"{self.document.origin}:{key_node.start_mark.line + 1}"
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(place, dotted(path), "a field's name must be a word"))
                continue
            key = str(key_node.value)
            if key in data:
                message = f"stands twice (first at {self.document.where((*path, key))}); keep one"
                self.problems.append(Problem(place, dotted((*path, key)), message))
                continue
            data[key] = self.value(value_node, (*path, key))
            if (
                isinstance(value_node, yaml.ScalarNode)
                or value_node.start_mark.line != key_node.start_mark.line
            ):
                self.document._places[(*path, key)] = place
        return data

    def _scalar(self, node: yaml.ScalarNode, path: FieldPath, place: str) -> Any:
        text = node.value
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL:
            return text.lower() == "true"
        if node.tag == _INT:
            if len(text) > 18:
                return text
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if node.tag == _FLOAT:
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if node.tag != "tag:yaml.org,2002:str":
            self.problems.append(Problem(place, dotted(path), f"the YAML tag {node.tag} is not allowed here"))
        return text


def dotted(path: Iterable[str | int]) -> str:
    """A field's path as `--set` spells it."""
    return ".".join(str(part) for part in path)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for a near miss, else nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def plain(data: Mapping[str, Any], origin: str) -> Document:
    """A document over data that came from Python rather than from a file."""
    return Document(dict(data), origin)
