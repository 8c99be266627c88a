"""YAML text into plain data that still knows where each value stands and how it was written.

YAML 1.2's core rules apply, not PyYAML's 1.1 ones: `no` and `on` are words, `1:30:00` is a word,
`010` is the number ten. A value that a field wants as text is taken as written, so `1e-3` or `007`
reach a program unchanged.
"""

from __future__ import annotations

import copy
import io
import os
import re
import select
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml

from launcher.errors import CastoffError, InvalidInput, Problem, printable, shown

FieldPath: TypeAlias = tuple[str | int, ...]

_LARGEST = 1_000_000
"""Bytes of a file at the most: a device would fill the memory, and no person writes so much."""

_MAX_VALUES = 100_000
"""Bound on the values of one document: aliases of aliases grow without end in a few lines."""

_MAX_DEPTH = 100
"""Bound on nesting: libyaml's binding recurses in C, where too deep is a crash, not an exception."""

_UNSEEN_BREAKS = re.compile("[\x85\u2028\u2029]")

_LONGEST_SHOWN = 100
"""Characters of a --set that a message repeats."""

_TAG = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT = (_TAG + kind for kind in ("null", "bool", "int", "float"))


class _CoreLoader(yaml.CSafeLoader):  # type: ignore[misc, name-defined, unused-ignore]
    """Resolves plain scalars by https://yaml.org/spec/1.2.2/#1032-tag-resolution."""


_CoreLoader.yaml_implicit_resolvers = {}

_PATTERNS = {
    _NULL: re.compile(r"(?:~|null|Null|NULL|)\Z"),
    _BOOL: re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    _INT: re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    _FLOAT: re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}

for _tag, _first in ((_NULL, "~nN"), (_BOOL, "tTfF"), (_INT, "-+0123456789"), (_FLOAT, "-+.0123456789")):
    _CoreLoader.add_implicit_resolver(_tag, _PATTERNS[_tag], [*_first, *([""] if _tag == _NULL else [])])


class _Mark(NamedTuple):
    """Where a value stands and, for a scalar, how it is spelled."""

    place: str
    text: str | None = None


class Document:
    """Data read from one place, with the line and the spelling of every value."""

    def __init__(self, data: Any, origin: str):
        self.data = data
        self.origin = origin
        self._marks: dict[FieldPath, _Mark] = {}

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read a file, or a pipe that somebody writes to.

        Raises:
            CastoffError: the file cannot be read, is larger than 1 MB, or is a pipe without a writer.
            InvalidInput: it is not YAML.
        """
        shown = printable(str(path))
        try:
            text = io.TextIOWrapper(io.BytesIO(_bytes_of(path, shown)), encoding="utf-8").read()
        except FileNotFoundError:
            raise CastoffError(f"{shown}: there is no such file") from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise CastoffError(f"{shown}: is not UTF-8 text (line {line}); save it as UTF-8") from None
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise CastoffError(f"{shown}: cannot be read: {reason}") from None
        return cls.parse(text, shown)

    @classmethod
    def parse(cls, text: str, origin: str) -> Document:
        """Parse YAML text that stands at `origin`; empty text is null.

        Raises:
            InvalidInput: it is not YAML, or a key stands twice.
        """
        document = cls(None, origin)
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
            if mark := self._marks.get(path[:length]):
                return mark.place
        return self.origin

    def text(self, path: FieldPath, value: object) -> str:
        """A scalar as it was written."""
        mark = self._marks.get(path)
        return str(value) if mark is None or mark.text is None else mark.text

    def record(self, path: FieldPath, place: str, text: str | None = None) -> None:
        """Remember where a value stands and, for a scalar, how it is spelled; None keeps that."""
        known = self._marks.get(path)
        self._marks[path] = _Mark(place, known.text if text is None and known else text)

    def override(self, assignment: str) -> None:
        """Set one field as `--set a.b=c` does; the value is YAML, a list index is a number.

        Raises:
            InvalidInput: no `=`, a path through something that holds no fields, bad YAML.
        """
        short = assignment if len(assignment) <= _LONGEST_SHOWN else f"{assignment[:_LONGEST_SHOWN]}..."
        origin = f"--set {printable(short)}"
        field, equals, text = assignment.partition("=")
        keys = field.strip().split(".")
        if not equals or not all(keys):
            raise InvalidInput([Problem(origin, "", "write it as --set FIELD=VALUE, as in --set nodes=4")])
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
                holder[index] = copy.deepcopy(value.data)
            elif isinstance(holder, dict) and holder.get(index) is None:
                holder[index] = {}
                self._marks[path] = _Mark(origin)
            holder = holder[index]
        self._forget(path)
        for inner, mark in {(): _Mark(origin), **value._marks}.items():
            self._marks[(*path, *inner)] = mark._replace(place=origin)

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
        self._marks.update({at: mark for at, mark in other._marks.items() if at[: len(path)] == path})
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
        self._marks = {at: mark for at, mark in self._marks.items() if at[: len(path)] != path}


def _bytes_of(path: Path, shown: str) -> bytes:
    """What a file holds.

    Raises:
        CastoffError: it is larger than 1 MB, or is a pipe that nobody writes to.
        OSError: it cannot be read.
    """
    # Not blocking: to open a pipe without a writer would wait for one.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        held = b""
        while len(held) <= _LARGEST and (chunk := _more(descriptor)):
            held += chunk
        if not held and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise CastoffError(f"{shown}: is a pipe that nobody writes to; start what writes to it first")
    finally:
        os.close(descriptor)
    if len(held) > _LARGEST:
        raise CastoffError(
            f"{shown}: is larger than {_LARGEST // 1_000_000} MB, and castoff reads no larger job file or "
            "profile; is it the right file? Large data belong into one that the program reads"
        )
    return held


def _more(descriptor: int) -> bytes:
    """What comes next of an open file, once it is there; empty at the end."""
    while True:
        try:
            return os.read(descriptor, 1 << 16)
        except BlockingIOError:  # a pipe: somebody may still write
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()


def _index(holder: Any, key: str, path: FieldPath, origin: str) -> str | int:
    if isinstance(holder, dict):
        return key
    if isinstance(holder, list):
        if key.isdecimal() and int(key) < len(holder):
            return int(key)
        message = f"{key} is no index of this list; it has {len(holder)} entries, counted from 0"
        raise InvalidInput([Problem(origin, dotted(path), message)])
    raise InvalidInput([Problem(origin, dotted(path), f"holds {holder!r}, which has no field {key!r}")])


def _refuse_unseen_breaks(text: str, origin: str) -> None:
    """YAML 1.1, and so libyaml, ends lines where editors do not: even a comment would end there."""
    for number, line in enumerate(text.split("\n")):
        if found := _UNSEEN_BREAKS.search(line):
            code = ord(found.group())
            message = (
                f"holds a raw U+{code:04X}, which YAML readers take for a line break: "
                f'write it as \\u{code:04x} in double quotes, as in "a\\u{code:04x}b", or remove it'
            )
            raise InvalidInput([Problem(_at_line(origin, number), "", message)])


def _compose(text: str, origin: str) -> yaml.Node | None:
    _refuse_unseen_breaks(text, origin)
    try:
        _refuse_depth(text, origin)
        return yaml.compose(text, Loader=_CoreLoader)
    except UnicodeEncodeError as error:  # a lone surrogate: how Python holds a byte that is not UTF-8
        line = text.count("\n", 0, error.start)
        message = f"is not UTF-8 text: {printable(text[error.start])} cannot be written"
        raise InvalidInput([Problem(_at_line(origin, line), "", message)]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = _at_line(origin, mark.line) if mark else origin
        raise InvalidInput([Problem(where, "", f"is not valid YAML: {_explain(error)}")]) from None
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n")
        message = f"is not valid YAML: {error.reason} (U+{error.character:04X})"
        raise InvalidInput([Problem(_at_line(origin, line), "", message)]) from None


def _explain(error: yaml.MarkedYAMLError) -> str:
    """PyYAML's words, with where the unfinished thing begins, and plainer ones for a tab."""
    about = ", ".join(part for part in (error.context, error.problem) if part)
    if error.context_mark and error.problem_mark and error.context_mark.line != error.problem_mark.line:
        about += f" (it begins in line {error.context_mark.line + 1})"
    if "cannot start any token" in about:
        about += "; indent with spaces, not tabs, and quote a value that begins with % @ or `"
    return about


def _refuse_depth(text: str, origin: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_CoreLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            line = event.start_mark.line if event.start_mark else 0
            raise InvalidInput(
                [Problem(_at_line(origin, line), "", f"is nested more than {_MAX_DEPTH} levels deep")]
            )


def _at_line(origin: str, line: int) -> str:
    """The place of a line, counted from 0; what stands on the command line has no lines to name."""
    return origin if origin.startswith("--") else f"{origin}:{line + 1}"


class _Reader:
    """Turns composed nodes into data, collecting what is wrong."""

    def __init__(self, document: Document):
        self.document = document
        self.problems: list[Problem] = []
        self._open: list[yaml.Node] = []
        self._values = 0

    def value(self, node: yaml.Node, path: FieldPath) -> Any:
        self._values += 1
        # A field that is missing is looked for here, and stands in no line.
        place = self._place(node) if path else self.document.origin
        if node in self._open:
            raise InvalidInput([Problem(place, dotted(path), "holds itself through an alias")])
        if self._values > _MAX_VALUES:
            message = f"is one value too many: {_MAX_VALUES:,} at the most, each alias counted in full"
            raise InvalidInput([Problem(place, dotted(path), message)])
        if isinstance(node, yaml.ScalarNode):
            self.document.record(path, place, node.value)
            return self._scalar(node, path, place)
        self.document.record(path, place)
        self._open.append(node)
        data = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._sequence(node, path)
        self._open.pop()
        return data

    def _place(self, node: yaml.Node) -> str:
        return _at_line(self.document.origin, node.start_mark.line)

    def _sequence(self, node: yaml.Node, path: FieldPath) -> list[Any]:
        self._check_tag(node, ["seq"], path)
        return [self.value(item, (*path, number)) for number, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        self._check_tag(node, ["map"], path)
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = self._place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(place, dotted(path), "a field's name must be a word"))
                continue
            key = str(key_node.value)
            if key in data:
                message = f"stands twice (first at {self.document.where((*path, key))}); keep one"
                self.problems.append(Problem(place, dotted((*path, key)), message))
                continue
            self._check_tag(key_node, _SCALARS, (*path, key))
            data[key] = self.value(value_node, (*path, key))
            # The key's line: an alias stands elsewhere, and a block begins one line later.
            self.document.record((*path, key), place)
        return data

    def _scalar(self, node: yaml.ScalarNode, path: FieldPath, place: str) -> Any:
        text = node.value
        self._check_tag(node, _SCALARS, path)
        pattern = _PATTERNS.get(node.tag)
        if pattern is not None and not pattern.match(text):
            message = f"{shown(text)} is no {node.tag.removeprefix(_TAG)}, which its tag says"
            self.problems.append(Problem(place, dotted(path), message))
            return None
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL:
            return text.lower() == "true"
        if node.tag == _INT:
            if len(text.lstrip("+-")) > 18:
                return text
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if node.tag == _FLOAT:
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        return text

    def _check_tag(self, node: yaml.Node, allowed: Iterable[str], path: FieldPath) -> None:
        if node.tag.removeprefix(_TAG) not in allowed:
            tag = printable(node.tag.replace(_TAG, "!!"))
            message = f"the YAML tag {tag} is not allowed here; leave it out"
            self.problems.append(Problem(self._place(node), dotted(path), message))


_SCALARS = ("str", "null", "bool", "int", "float")


def dotted(path: Iterable[str | int]) -> str:
    """A field's path as `--set` spells it."""
    return printable(".".join(str(part) for part in path))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for a near miss, else nothing."""
    near = near_miss(word, known)
    return f"; did you mean {near}?" if near else ""


def near_miss(word: str, known: Iterable[str]) -> str | None:
    """The word that was meant, if one is near.

    Near is a slip of the keyboard: `gpu` is no near miss of `cpu`, nor `partition` of `options`.
    """
    import difflib  # late: only a mistake needs it

    def folded(name: str) -> str:
        return re.sub("[-_ ]", "", name).casefold()

    names = {folded(name): name for name in known}
    near = difflib.get_close_matches(folded(word), names, n=1, cutoff=0.75)
    return names[near[0]] if near else None
