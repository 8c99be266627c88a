"""Sequences from a file of torch.save, read without running its pickle.

A pickle is a program for a stack machine. Its instructions are read one by one (`pickletools`), and only
those that make text, numbers, lists and dicts are followed, so no file can do harm. A list's elements come a
thousand at a time and are yielded at once; a text that a later instruction uses again is read from the file
again, at an offset kept in a table on disk.
"""

from __future__ import annotations

import os
import pickletools
import struct
import tempfile
import zipfile
from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.sedd.store.fasta import BLOCK

LISTS = ("sequences", "data")
"""Keys under which a dict may hold the list of sequences."""
TEXT = "sequence"
"""The key under which a protein's dict holds its residues."""

_SUFFIXES = (".pt", ".pth")
_ZIP = b"PK\x03\x04"


def is_saved(path: Path) -> bool:
    """Whether torch.save has written a file, or its suffix says so; a pipe, which is read once, is FASTA."""
    if not path.is_file():
        return False
    if path.suffix.lower() in _SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            if file.read(len(_ZIP)) != _ZIP:
                return False
        with zipfile.ZipFile(path) as archive:
            return _pickle_in(archive) is not None
    except (OSError, zipfile.BadZipFile):
        return False


class SavedSequences:
    """The sequences in a file of torch.save: a list, or a dict with the list as `sequences` or `data`.

    Each sequence is text, or a dict with its text as `sequence`. `scratch`: a folder for the table, which
    takes 8 bytes per object.

    Raises:
        ConfigError: the file cannot be read, or torch.save did not write it.
    """

    def __init__(self, path: Path, scratch: Path):
        self._path = path
        try:
            begin = _where_the_pickle_begins(path)
            self._file = path.open("rb")
        except zipfile.BadZipFile as error:
            raise _refused(
                path,
                "is damaged, incomplete, or written by a torch before 1.6: get it again, or load it and "
                "save it again with torch.save",
            ) from error
        except OSError as error:
            raise _refused(path, f"cannot be read: {error.strerror or error}") from error
        self._file.seek(begin)
        self._again = path.open("rb")
        self._memo = _Memo(scratch)

    def __enter__(self) -> SavedSequences:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._again.close()
        self._memo.close()

    @property
    def consumed(self) -> int:
        """Bytes of the file that have been read."""
        return self._file.tell()

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """Yield the sequences as blocks of FASTA, in order.

        Raises:
            ConfigError: there is something else in the file.
        """
        records, length = [], 0
        for text in self.texts():
            records.append(b">\n%b\n" % b"".join(text.encode("ascii", "replace").split()))
            length += len(records[-1])
            if length >= size:
                yield b"".join(records)
                records, length = [], 0
        if records:
            yield b"".join(records)

    def texts(self) -> Iterator[str]:
        """Yield the sequences, in order.

        Raises:
            ConfigError: there is something else in the file.
        """
        machine = _Machine(self._memo, lru_cache(64)(self._text_at))
        try:
            for operation, argument, offset in pickletools.genops(self._file):
                assert offset is not None
                yield from machine.follow(operation.name, argument, offset)
            machine.check_end()
        except _Unfit as error:
            raise _refused(self._path, str(error)) from error
        except (ValueError, IndexError, KeyError, MemoryError) as error:
            raise _refused(self._path, f"is damaged ({error!r}): get it again") from error

    def _text_at(self, offset: int) -> str:
        """The text that an instruction makes, which is at an offset of the file."""
        self._again.seek(offset)
        _, text, _ = next(pickletools.genops(self._again))
        return _as_text(text)


def _where_the_pickle_begins(path: Path) -> int:
    """The offset of data.pkl in a file of torch.save, which stores it uncompressed."""
    with zipfile.ZipFile(path) as archive:
        entry = _pickle_in(archive)
    if entry is None or entry.compress_type != zipfile.ZIP_STORED:
        raise _refused(
            path, "is a zip file, but not one by torch.save: load it and save it again with torch.save"
        )
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        name, extra = struct.unpack("<26xHH", file.read(30))
    return entry.header_offset + 30 + int(name) + int(extra)


def _pickle_in(archive: zipfile.ZipFile) -> zipfile.ZipInfo | None:
    return next((each for each in archive.infolist() if each.filename.split("/")[1:] == ["data.pkl"]), None)


def _refused(path: Path, why: str) -> ConfigError:
    return ConfigError([why], str(path))


def _as_text(argument: Any) -> str:
    return argument.decode("latin-1") if isinstance(argument, bytes) else str(argument)


# --- The machine --------------------------------------------------------------------------------------


class _Unfit(Exception):
    """The file holds something other than sequences."""


class _List:
    def __init__(self, wanted: bool):
        self.wanted = wanted

    def __str__(self) -> str:
        return "a list"


class _Dict:
    def __init__(self) -> None:
        self.text: str | None = None
        self.fields: list[str] = []

    def set(self, items: list[Any]) -> None:
        for key, value in zip(items[::2], items[1::2], strict=True):
            if key == TEXT and isinstance(value, str):
                self.text = value
            if len(self.fields) < 6:
                self.fields.append(f"{str(key)[:30]} ({_kind(value)})")

    def __str__(self) -> str:
        return f"a dict of {', '.join(self.fields) or 'nothing'}"


class _Other:
    def __init__(self, what: str):
        self.what = what

    def __str__(self) -> str:
        return self.what


def _kind(value: Any) -> str:
    return "text" if isinstance(value, str) else "a dict" if isinstance(value, _Dict) else str(value)


_TEXTS = {
    *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
}
_VALUES = {
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), "a number"),
    **dict.fromkeys(("FLOAT", "BINFLOAT"), "a number"),
    **dict.fromkeys(("NEWTRUE", "NEWFALSE"), "true or false"),
    "NONE": "None",
    "EMPTY_TUPLE": "a tuple",
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Machine:
    """Follows a pickle's instructions as far as they make the list of sequences, and stores little else."""

    def __init__(self, memo: _Memo, text_at: Callable[[int], str]):
        self._memo = memo
        self._text_at = text_at
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        """The stacks below the marks, one for each mark."""
        self._text_offset = 0
        """Offset of the previous instruction if it made a text, else 0."""
        self._found = False

    def follow(self, name: str, argument: Any, offset: int) -> Iterator[str]:
        """Follow an instruction; yield the sequences that it adds to their list."""
        before, self._text_offset = self._text_offset, 0
        if name in _TEXTS:
            self._stack.append(_as_text(argument))
            self._text_offset = offset
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            self._memo.put(argument, before)
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            earlier = self._memo.get(int(argument))
            self._stack.append(
                self._text_at(earlier) if earlier else _Other("a reference to an earlier object")
            )
        elif name == "MARK":
            self._below.append(self._stack)
            self._stack = []
        elif name == "APPEND":
            item = self._stack.pop()
            yield from self._added(self._stack[-1], [item])
        elif name == "APPENDS":
            items = self._since_the_mark()
            yield from self._added(self._stack[-1], items)
        elif name == "SETITEM":
            items = self._stack[-2:]
            del self._stack[-2:]
            self._set(self._stack[-1], items)
        elif name == "SETITEMS":
            items = self._since_the_mark()
            self._set(self._stack[-1], items)
        else:
            self._make(name, argument)

    def check_end(self) -> None:
        """Check that a list of sequences was found.

        Raises:
            _Unfit: none was found.
        """
        if not self._found:
            raise _Unfit(
                f"holds {_described(self._stack[-1])}, but must hold a list of sequences, or a dict with "
                f"that list as {' or '.join(LISTS)}"
            )

    def _make(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self._stack.append(_Other(_VALUES[name]))
        elif name == "EMPTY_LIST":
            self._stack.append(_List(self._is_wanted()))
        elif name == "EMPTY_DICT":
            self._stack.append(_Dict())
        elif name in _TUPLES:
            del self._stack[-_TUPLES[name] :]
            self._stack.append(_Other("a tuple"))
        elif name == "TUPLE":
            self._since_the_mark()
            self._stack.append(_Other("a tuple"))
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise _Unfit(_foreign(name, argument, self._stack))

    def _is_wanted(self) -> bool:
        """Whether a list that begins now is the pickle's only object, or a field of the dict that is."""
        if not self._below and not self._stack:
            wanted = True
        elif not self._below:
            wanted = isinstance(self._stack[0], _Dict) and self._stack[1:] in [[key] for key in LISTS]
        else:
            whole = (
                len(self._below) == 1 and len(self._below[0]) == 1 and isinstance(self._below[0][0], _Dict)
            )
            wanted = whole and len(self._stack) % 2 == 1 and self._stack[-1] in LISTS
        if wanted and self._found:
            raise _Unfit(f"holds both {' and '.join(LISTS)}; save only one of them")
        self._found = self._found or wanted
        return wanted

    def _since_the_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def _added(self, target: Any, items: list[Any]) -> Iterator[str]:
        if not isinstance(target, _List):
            raise ValueError("an element without a list")
        for item in items if target.wanted else ():
            text = item.text if isinstance(item, _Dict) else item
            if not isinstance(text, str):
                raise _Unfit(
                    f"holds {_described(item)} in place of a sequence, which is text, or a dict with its "
                    f"text as {TEXT!r}"
                )
            yield text

    def _set(self, target: Any, items: list[Any]) -> None:
        if not isinstance(target, _Dict):
            raise ValueError("a field without a dict")
        target.set(items)


def _described(value: Any) -> str:
    return f"the text {value[:30]!r}" if isinstance(value, str) else str(value)


def _foreign(name: str, argument: Any, stack: list[Any]) -> str:
    """Why an instruction (opcode) of a pickle is refused, in words for the error."""
    if name in ("GLOBAL", "STACK_GLOBAL"):
        words = str(argument).split() if name == "GLOBAL" else [str(each) for each in stack[-2:]]
        what = ".".join(words)
        if words[0].partition(".")[0] in ("torch", "numpy"):
            return (
                f"holds tensors or arrays ({what}); nothing in it says which number is which amino acid: "
                "save the sequences as a list of text, or as FASTA"
            )
        return (
            f"holds an object of {what}, which castoff does not create: save the sequences as a list of text"
        )
    return (
        f"holds more than text, numbers, lists and dicts (instruction {name} of its pickle): save the "
        "sequences as a list of text"
    )


class _Memo:
    """The offsets of texts to which a pickle may refer again. They are in a temporary file, because there
    is one for every sequence and they would fill memory.
    """

    _AT_ONCE = 8192

    def __init__(self, scratch: Path):
        self._file = tempfile.TemporaryFile(dir=scratch, buffering=0)  # noqa: SIM115
        self._first = 0
        self._newest = array("Q")

    def put(self, number: int | None, offset: int) -> None:
        """Record an offset (0: not a text) under a number; None: under the next number."""
        following = self._first + len(self._newest)
        number = following if number is None else number
        if number != following or len(self._newest) >= self._AT_ONCE:
            os.pwrite(self._file.fileno(), self._newest.tobytes(), self._first * 8)
            self._first, self._newest = number, array("Q")
        self._newest.append(offset)

    def get(self, number: int) -> int:
        """The offset recorded under a number.

        Raises:
            KeyError: nothing was recorded.
        """
        if 0 <= number - self._first < len(self._newest):
            return self._newest[number - self._first]
        entry = os.pread(self._file.fileno(), 8, number * 8)
        if len(entry) < 8:
            raise KeyError(number)
        return int.from_bytes(entry, "little")

    def close(self) -> None:
        """Close the table's file, which deletes it."""
        self._file.close()
