"""Read YAML text into plain data, with the position and the spelling of each value.

YAML 1.2's core rules apply, not PyYAML's 1.1 ones: `no`, `on` and `1:30:00` are text, and `010` is the number
ten. A field of type text takes a value as it is spelled, so `1e-3` or `007` reach a program unchanged. A
subclass may read texts by other rules: see `Document.construct`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import yaml

from castoff.launcher.errors import CastoffError, InvalidInput, Problem, printable, shown
from castoff.launcher.typed.composing import (
    BOOL,
    FLOAT,
    INT,
    NULL,
    PATTERNS,
    TAG,
    CoreLoader,
    at_line,
    compose,
    compose_all,
)
from castoff.launcher.typed.suggestion import nearest

FieldPath: TypeAlias = tuple[str | int, ...]

D = TypeVar("D", bound="Document")
T = TypeVar("T")

_LARGEST = 1_000_000
"""Limit of a file's size, in bytes: a device such as /dev/zero would otherwise fill the memory."""

_MAX_VALUES = 100_000
"""Limit of a document's values: nested aliases would multiply without end in a few lines."""

_LONGEST_SHOWN = 100
"""Limit of the characters of a --set that a message repeats."""


class _Mark(NamedTuple):
    """The position of a value, the spelling of a scalar, and whether the value came from elsewhere: it
    replaced a value of the text, or was added.
    """

    place: str
    text: str | None = None
    over: bool = False


class Document:
    """Data from one source, with the line and the spelling of every value."""

    EXAMPLE: ClassVar = "nodes=4"
    """An example of an argument of --set."""

    LOADER: ClassVar[type[Any]] = CoreLoader
    """The class of PyYAML that composes the text."""

    UTF8_ONLY: ClassVar = True
    """Whether texts must be UTF-8, as in a script; file names may be other bytes."""

    def __init__(self, data: Any, origin: str):
        self.data = data
        self.origin = origin
        self._marks: dict[FieldPath, _Mark] = {}

    @classmethod
    def read(cls: type[D], path: Path) -> D:
        """Read a file or a pipe.

        Raises:
            CastoffError: the file cannot be read, or is larger than 1 MB.
            InvalidInput: there is no such file, or it is not YAML.
        """
        return _read(path, cls.parse)

    @classmethod
    def read_all(cls: type[D], path: Path) -> list[D]:
        """Read a file or a pipe with several documents, which `---` separates; empty ones are left out.

        Raises:
            CastoffError: the file cannot be read, or is larger than 1 MB.
            InvalidInput: there is no such file, or it is not YAML.
        """
        return _read(path, cls.parse_all)

    @classmethod
    def parse(cls: type[D], text: str, origin: str) -> D:
        """Parse YAML text from `origin`; empty text is null.

        Raises:
            InvalidInput: the text is not YAML, or a key appears twice.
        """
        document = cls(None, origin)
        node = compose(text, origin, cls.LOADER)
        if node is not None:
            document.data = document.construct(node)
        return document

    @classmethod
    def parse_all(cls: type[D], text: str, origin: str) -> list[D]:
        """Parse a YAML text with several documents; empty ones are left out.

        Raises:
            InvalidInput: the text is not YAML, or a key appears twice.
        """
        documents = []
        nodes = compose_all(text, origin, cls.LOADER)
        for node in nodes:
            document = cls(None, origin)
            document.data = document.construct(node)
            if len(nodes) > 1:  # a missing field gets the line of its document
                document.record((), at_line(origin, node.start_mark.line))
            if document.data is not None:
                documents.append(document)
        return documents

    def construct(self, node: yaml.Node) -> Any:
        """Turn the root node of a YAML text into data, and record the positions of its values.

        Raises:
            InvalidInput: with every problem of the text.
        """
        reader = Reader(self)
        data = reader.value(node, ())
        if reader.problems:
            raise InvalidInput(reader.problems)
        return data

    def where(self, path: FieldPath) -> str:
        """The position of a value for messages; if it has none, that of the nearest value around it."""
        for length in range(len(path), -1, -1):
            if mark := self._marks.get(path[:length]):
                return mark.place
        return self.origin

    def text(self, path: FieldPath, value: object) -> str:
        """The spelling of a scalar."""
        mark = self._marks.get(path)
        return str(value) if mark is None or mark.text is None else mark.text

    def record(self, path: FieldPath, place: str, text: str | None = None) -> None:
        """Record the position of a value and the spelling of a scalar; None keeps the known spelling."""
        before = self._marks.get(path)
        self._marks[path] = _Mark(place, before.text if text is None and before else text)

    def problem(self, path: FieldPath, message: str) -> Problem:
        """A problem of a field, with the field's position."""
        return Problem(self.where(path), dotted(path), message)

    def holding(self: D, data: Any) -> D:
        """A document that holds `data`, with this document's positions for error messages."""
        other = type(self)(data, self.origin)
        other._marks = dict(self._marks)
        return other

    def copied(self: D) -> D:
        """A copy, which can be changed without changing this document."""
        return self.holding(copy.deepcopy(self.data))

    def parts(self: D) -> dict[str, D]:
        """A document for each value of a mapping, with its positions."""
        parts = {key: type(self)(copy.deepcopy(value), self.origin) for key, value in self.data.items()}
        for path, mark in self._marks.items():
            if path:
                parts[str(path[0])]._marks[path[1:]] = mark
        return parts

    def given(self, path: FieldPath) -> bool:
        """Whether a value comes from outside of the text: from the command line, or from a document put into
        this one.
        """
        mark = self._marks.get(path)
        return mark is not None and mark.over

    def override(self, assignment: str, of: str = "") -> None:
        """Set one field as `--set a.b=c` does; the value is YAML, a list index is a number.

        `of`: what the user wrote before the field, such as `train.`, for error messages. A value on a
        command line has no comments, so `x # c` is a text of five characters.

        Raises:
            InvalidInput: there is no `=`, the path leads through a value without fields, or the value is not
                YAML.
        """
        written = f"{of}{assignment}"
        short = written if len(written) <= _LONGEST_SHOWN else f"{written[:_LONGEST_SHOWN]}..."
        origin = f"--set {printable(short)}"
        field, equals, text = assignment.partition("=")
        keys = field.strip().split(".")
        if not equals or not all(keys):
            raise invalid(origin, f"write it as --set FIELD=VALUE, as in --set {self.EXAMPLE}")
        value = self.parse(text, origin)
        if _ends_in_comment(text.strip(), value.text((), "")):
            value = type(self)(text.strip(), origin)
        self.put(keys, value, origin)

    def put(self, keys: list[str], value: Document, origin: str) -> None:
        """Put another document's data at a path of this one; the mappings and lists on the path are copied.

        Raises:
            InvalidInput: the path leads through a value without fields.
        """
        path: FieldPath = ()
        holder: Any = _copied(self.data)
        self.data = holder
        for key in keys[:-1]:
            path = (*path, index := _index(holder, key, path, origin))
            if isinstance(holder, dict):
                holder.setdefault(index, None)
            if holder[index] is None:
                self._marks[path] = _Mark(origin)
            holder[index] = _copied(holder[index])
            holder = holder[index]
        path = (*path, _index(holder, keys[-1], path, origin))
        holder[path[-1]] = value.data
        marks = {(): _Mark(origin), **value._marks}
        self._mark_anew(path, {(*path, *of): _Mark(origin, mark.text, True) for of, mark in marks.items()})

    def merge(self, other: Document) -> None:
        """Lay another document's fields over this one's: mappings merge, everything else is replaced."""
        self._merge(other, self.data, other.data, ())

    def _merge(self, other: Document, mine: dict[str, Any], theirs: dict[str, Any], path: FieldPath) -> None:
        for key, value in theirs.items():
            inner_path = (*path, key)
            if isinstance(value, dict) and isinstance(mine.get(key), dict):
                self._merge(other, mine[key], value, inner_path)
                continue
            mine[key] = value
            self._mark_anew(
                inner_path,
                {
                    inner: mark
                    for inner, mark in other._marks.items()
                    if inner[: len(inner_path)] == inner_path
                },
            )

    def _mark_anew(self, path: FieldPath, marks: dict[FieldPath, _Mark]) -> None:
        """Replace the recorded positions of a value and of all values inside it."""
        self._marks = {
            other: mark for other, mark in self._marks.items() if other[: len(path)] != path
        } | marks


def _ends_in_comment(text: str, scalar: str) -> bool:
    """Whether YAML read only the beginning of `text`, a plain scalar, and took the rest for a comment."""
    return text.startswith(scalar) and text[len(scalar) :].lstrip().startswith("#")


def _read(path: Path, parse: Callable[[str, str], T]) -> T:
    """Read a file or a pipe, and parse its text.

    Raises:
        CastoffError: the file cannot be read, or is larger than 1 MB.
        InvalidInput: there is no such file, or it is not YAML.
    """
    shown = printable(str(path))
    try:
        return parse(_bytes_of(path, shown).decode().replace("\r\n", "\n"), shown)
    except FileNotFoundError:
        raise InvalidInput([Problem(shown, "", f"no such file{_meant(path)}")]) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise CastoffError(f"{shown}: is not UTF-8 text (line {line}); save it as UTF-8") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CastoffError(f"{shown}: cannot be read: {reason}") from None


def _meant(path: Path) -> str:
    """A suggestion for a missing file: a YAML file in its folder, as `job.yaml` for `job.yml`."""
    try:  # names only, without a stat of each: a folder may hold a hundred thousand files
        files = {file.stem: file.name for file in path.parent.iterdir() if file.suffix in (".yaml", ".yml")}
    except OSError:
        return ""
    meant = nearest(path.stem, files)
    return "" if meant is None else f"; did you mean {printable(files[meant])}?"


def _bytes_of(path: Path, shown: str) -> bytes:
    """The content of a file or a pipe.

    Raises:
        CastoffError: the file is larger than 1 MB.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise CastoffError(
            f"{shown}: is larger than {_LARGEST // 1_000_000} MB, and castoff reads no larger "
            "configuration; is it the right file? Put large data into a file that the program reads"
        )
    return content


def _copied(holder: Any) -> Any:
    """A copy of a mapping or a list, so that fields can be put into it; `_index` refuses other values."""
    if holder is None:
        return {}
    if isinstance(holder, Mapping):
        return dict(holder)
    return list(holder) if isinstance(holder, list) else holder


def _index(holder: Any, key: str, path: FieldPath, origin: str) -> str | int:
    if isinstance(holder, dict):
        return key
    if not isinstance(holder, list):
        raise invalid(origin, f"is {shown(holder)}, which has no field {key!r}; set it as a whole", path)
    if key.isdecimal() and int(key) < len(holder):
        return int(key)
    message = f"{key} is not an index of this list; it has {len(holder)} entries, counted from 0"
    raise invalid(origin, message, path)


def invalid(where: str, message: str, path: FieldPath = ()) -> InvalidInput:
    """An error with one problem of an input."""
    return InvalidInput([Problem(where, dotted(path), message)])


class Reader:
    """Turns YAML nodes into plain data; records their positions, and collects problems."""

    def __init__(self, document: Document):
        self.document = document
        self.problems: list[Problem] = []
        self._open: list[yaml.Node] = []
        self._values = 0

    def value(self, node: yaml.Node, path: FieldPath) -> Any:
        """The data of a node, with all nodes below it, at `path`."""
        self._values += 1
        # The position of the root is used for a missing field, which has no line.
        place = self._place(node) if path else self.document.origin
        if node in self._open:
            raise invalid(place, "contains itself through an alias", path)
        if self._values > _MAX_VALUES:
            message = f"exceeds the limit of {_MAX_VALUES:,} values; each alias counts with all its values"
            raise invalid(place, message, path)
        if isinstance(node, yaml.ScalarNode):
            self.document.record(path, place, node.value)
            return self._scalar(node, path)
        self.document.record(path, place)
        self._open.append(node)
        if isinstance(node, yaml.MappingNode):
            data: Any = self._mapping(node, path)
        else:
            self._check_tag(node, ["seq"], path)
            data = [self.value(item, (*path, number)) for number, item in enumerate(node.value)]
        self._open.pop()
        return data

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        self._check_tag(node, ["map"], path)
        data: dict[str, Any] = {}
        seen: set[object] = set()
        for key_node, value_node in node.value:
            key = str(key_node.value)
            key_path = (*path, key)
            if not isinstance(key_node, yaml.ScalarNode):
                self._complain(key_node, path, "a field's name must be a word")
            elif self._same(key_node) in seen:
                first = self.document.where(key_path)
                self._complain(key_node, key_path, f"appears twice (first at {first}); keep one")
            else:
                self._check_tag(key_node, _SCALARS, key_path)
                seen.add(self._same(key_node))
                data[key] = self.value(value_node, key_path)
                # The key's line: an alias has the line of its anchor, and a block begins a line later.
                self.document.record(key_path, self._place(key_node))
        return data

    def _same(self, key: yaml.ScalarNode) -> object:
        """A value that is equal for two keys that name the same field."""
        return str(key.value)

    def _scalar(self, node: yaml.ScalarNode, path: FieldPath) -> Any:
        text = node.value
        self._check_tag(node, _SCALARS, path)
        pattern = PATTERNS.get(node.tag)
        if pattern is not None and not pattern.match(text):
            kind = node.tag.removeprefix(TAG)
            self._complain(node, path, f"{shown(text)} is not of type {kind}, as its tag requires")
            return None
        if node.tag == NULL:
            return None
        if node.tag == BOOL:
            return text.lower() == "true"
        if node.tag == INT and len(text.lstrip("+-")) <= 18:
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if node.tag == FLOAT:
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        return text

    def _check_tag(self, node: yaml.Node, allowed: Iterable[str], path: FieldPath) -> None:
        if node.tag.removeprefix(TAG) not in allowed:
            tag = printable(node.tag.replace(TAG, "!!"))
            self._complain(node, path, f"the YAML tag {tag} is not allowed here; leave it out")

    def _complain(self, node: yaml.Node, path: FieldPath, message: str) -> None:
        self.problems.append(Problem(self._place(node), dotted(path), message))

    def _place(self, node: yaml.Node) -> str:
        return at_line(self.document.origin, node.start_mark.line)


_SCALARS = ("str", "null", "bool", "int", "float")


def dotted(path: Iterable[str | int]) -> str:
    """A field's path as `--set` spells it."""
    return printable(".".join(str(part) for part in path))
