"""YAML text into plain data that still knows where each value is and how it was written.

YAML 1.2's core rules apply, not PyYAML's 1.1 ones: `no` and `on` are words, `1:30:00` is a word,
`010` is the number ten. A value that a field wants as text is taken as written, so `1e-3` or `007`
reach a program unchanged.
"""

from __future__ import annotations

import copy
import re
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
    """Where a value is and, for a scalar, how it is spelled."""

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
        """Read a file or a pipe.

        Raises:
            CastoffError: it cannot be read, or is larger than 1 MB.
            InvalidInput: it is not YAML.
        """
        shown = printable(str(path))
        try:
            return cls.parse(_bytes_of(path, shown).decode().replace("\r\n", "\n"), shown)
        except FileNotFoundError:
            raise CastoffError(f"{shown}: no such file") from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise CastoffError(f"{shown}: is not UTF-8 text (line {line}); save it as UTF-8") from None
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise CastoffError(f"{shown}: cannot be read: {reason}") from None

    @classmethod
    def parse(cls, text: str, origin: str) -> Document:
        """Parse YAML text from `origin`; empty text is null.

        Raises:
            InvalidInput: it is not YAML, or a key appears twice.
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
        """Remember where a value is and, for a scalar, how it is spelled; None keeps that."""
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
            raise invalid(origin, "write it as --set FIELD=VALUE, as in --set nodes=4")
        self.put(keys, Document.parse(text, origin), origin)

    def put(self, keys: list[str], value: Document, origin: str) -> None:
        """Place another document's data at a path of this one."""
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
        marks = {(): _Mark(origin), **value._marks}
        self._mark_anew(path, {(*path, *at): mark._replace(place=origin) for at, mark in marks.items()})

    def merge(self, other: Document) -> None:
        """Lay another document's fields over this one's: mappings merge, everything else is replaced."""
        self._merge(other, self.data, other.data, ())

    def _merge(self, other: Document, mine: dict[str, Any], theirs: dict[str, Any], path: FieldPath) -> None:
        for key, value in theirs.items():
            at = (*path, key)
            if isinstance(value, dict) and isinstance(mine.get(key), dict):
                self._merge(other, mine[key], value, at)
                continue
            mine[key] = value
            self._mark_anew(
                at, {inner: mark for inner, mark in other._marks.items() if inner[: len(at)] == at}
            )

    def _mark_anew(self, path: FieldPath, marks: dict[FieldPath, _Mark]) -> None:
        """Forget what was known of a value and of all in it, for these."""
        self._marks = {at: mark for at, mark in self._marks.items() if at[: len(path)] != path} | marks


def _bytes_of(path: Path, shown: str) -> bytes:
    """What a file or a pipe holds.

    Raises:
        CastoffError: it is larger than 1 MB.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        held = file.read(_LARGEST + 1)
    if len(held) > _LARGEST:
        raise CastoffError(
            f"{shown}: is larger than {_LARGEST // 1_000_000} MB, and castoff reads no larger job file or "
            "profile; is it the right file? Large data belong into one that the program reads"
        )
    return held


def _index(holder: Any, key: str, path: FieldPath, origin: str) -> str | int:
    if isinstance(holder, dict):
        return key
    if not isinstance(holder, list):
        raise invalid(origin, f"holds {holder!r}, which has no field {key!r}", path)
    if key.isdecimal() and int(key) < len(holder):
        return int(key)
    message = f"{key} is not an index of this list; it has {len(holder)} entries, counted from 0"
    raise invalid(origin, message, path)


def _compose(text: str, origin: str) -> yaml.Node | None:
    # YAML 1.1, and so libyaml, ends lines where editors do not: even a comment would end there.
    if found := _UNSEEN_BREAKS.search(text):
        code = ord(found.group())
        message = (
            f"holds a raw U+{code:04X}, which YAML readers take for a line break: "
            f'write it as \\u{code:04x} in double quotes, as in "a\\u{code:04x}b", or remove it'
        )
        raise invalid(_at_line(origin, text.count("\n", 0, found.start())), message)
    try:
        _refuse_depth(text, origin)
        return yaml.compose(text, Loader=_CoreLoader)
    except UnicodeEncodeError as error:  # a lone surrogate: how Python holds a byte that is not UTF-8
        line = text.count("\n", 0, error.start)
        message = f"is not UTF-8 text: {printable(text[error.start])} cannot be written"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line if mark else 0
        message = f"is not valid YAML: {_explain(error)}"
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n")
        message = f"is not valid YAML: {error.reason} (U+{error.character:04X})"
    raise invalid(_at_line(origin, line), message)


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
            raise invalid(_at_line(origin, line), f"is nested more than {_MAX_DEPTH} levels deep")


def _at_line(origin: str, line: int) -> str:
    """The place of a line, counted from 0; what stands on the command line has no lines to name."""
    return origin if origin.startswith("--") else f"{origin}:{line + 1}"


def invalid(where: str, message: str, path: FieldPath = ()) -> InvalidInput:
    """The error that one thing is wrong with an input."""
    return InvalidInput([Problem(where, dotted(path), message)])


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
            raise invalid(place, "holds itself through an alias", path)
        if self._values > _MAX_VALUES:
            message = f"is one value too many: {_MAX_VALUES:,} at the most, each alias counted in full"
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
        for key_node, value_node in node.value:
            key = str(key_node.value)
            at = (*path, key)
            if not isinstance(key_node, yaml.ScalarNode):
                self._complain(key_node, path, "a field's name must be a word")
            elif key in data:
                first = self.document.where(at)
                self._complain(key_node, at, f"appears twice (first at {first}); keep one")
            else:
                self._check_tag(key_node, _SCALARS, at)
                data[key] = self.value(value_node, at)
                # The key's line: an alias stands elsewhere, and a block begins one line later.
                self.document.record(at, self._place(key_node))
        return data

    def _scalar(self, node: yaml.ScalarNode, path: FieldPath) -> Any:
        text = node.value
        self._check_tag(node, _SCALARS, path)
        pattern = _PATTERNS.get(node.tag)
        if pattern is not None and not pattern.match(text):
            kind = node.tag.removeprefix(_TAG)
            self._complain(node, path, f"{shown(text)} is not of type {kind}, as its tag requires")
            return None
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL:
            return text.lower() == "true"
        if node.tag == _INT and len(text.lstrip("+-")) <= 18:
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if node.tag == _FLOAT:
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        return text

    def _check_tag(self, node: yaml.Node, allowed: Iterable[str], path: FieldPath) -> None:
        if node.tag.removeprefix(_TAG) not in allowed:
            tag = printable(node.tag.replace(_TAG, "!!"))
            self._complain(node, path, f"the YAML tag {tag} is not allowed here; leave it out")

    def _complain(self, node: yaml.Node, path: FieldPath, message: str) -> None:
        self.problems.append(Problem(self._place(node), dotted(path), message))

    def _place(self, node: yaml.Node) -> str:
        return _at_line(self.document.origin, node.start_mark.line)


_SCALARS = ("str", "null", "bool", "int", "float")


def dotted(path: Iterable[str | int]) -> str:
    """A field's path as `--set` spells it."""
    return printable(".".join(str(part) for part in path))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for a slip of the keyboard: `gpu` is none of `cpu`."""
    import difflib  # late: only a mistake needs it

    def folded(name: str) -> str:
        return re.sub("[-_ ]", "", name).casefold()

    names = {folded(name): name for name in known}
    near = difflib.get_close_matches(folded(word), names, n=1, cutoff=0.75)
    return f"; did you mean {names[near[0]]}?" if near else ""
