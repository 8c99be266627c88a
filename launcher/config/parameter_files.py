"""Parameters in files that a job file names: a table (`array.parameters: runs.csv`), or one command a line
(`array.commands: cmds.txt`). They are read once, and become part of the job.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from castoff.launcher.config.parameters import NAME, is_number
from castoff.launcher.errors import Problem, printable, shown
from castoff.launcher.text.words import counted
from castoff.launcher.trust.decision import check_named
from castoff.launcher.typed.composing import at_line
from castoff.launcher.typed.document import Document, FieldPath

_LARGEST = 64_000_000
"""Limit of a file's size, in bytes: a device such as /dev/zero would otherwise fill the memory."""

COMMAND = "command"
"""The name of the parameter that holds a line of a file of commands."""

BY_BASH = ["bash", "-c", f"{{{COMMAND}}}"]
"""The command of a job with a file of commands, unless it sets another."""

_PARAMETERS: FieldPath = ("array", "parameters")
_COMMANDS: FieldPath = ("array", "commands")


def read_files(document: Document, path: str | Path | None) -> list[Problem]:
    """Replace the files that a job's `array` names by what they hold, and return the problems.

    A path from the job file starts in the file's folder, one from the command line in the working directory.
    """
    array = document.data.get("array")
    if not isinstance(array, dict):
        return []
    try:
        if isinstance(named := array.get("parameters"), str) and named.endswith((".csv", ".tsv")):
            rows = _table(_file(document, _PARAMETERS, path))
            _put(document, rows, _PARAMETERS)
        if isinstance(named := array.get("commands"), str):
            _put_commands(document, _file(document, _COMMANDS, path))
    except _Wrong as wrong:
        return [Problem(wrong.where, ".".join(wrong.field), wrong.message)]
    if isinstance(document.data["array"].get("parameters"), (dict, list)):
        _keep_spelling(document)
        _read_references(document)
    return []


class _Wrong(Exception):
    """A file cannot be used."""

    def __init__(self, where: str, field: FieldPath, message: str):
        super().__init__(message)
        self.where, self.field, self.message = where, list(map(str, field)), message


class _File:
    """The text of a file, and the field that names it."""

    def __init__(self, where: str, field: FieldPath, path: Path):
        self.where, self.field, self.path, self.name = where, field, path, printable(str(path))
        self.text = self._read()

    def _read(self) -> str:
        try:
            check_named(self.path)
            with self.path.open("rb") as file:
                content = file.read(_LARGEST + 1)
        except FileNotFoundError:
            raise self.wrong(f"names {self.name}, and there is no such file") from None
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise self.wrong(f"names {self.name}, which cannot be read: {reason}") from None
        if len(content) > _LARGEST:
            raise self.wrong(f"names {self.name}, which is larger than {_LARGEST // 1_000_000} MB")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start)
            raise self.wrong("is not UTF-8 text; save it as UTF-8", line) from None

    def wrong(self, message: str, line: int | None = None) -> _Wrong:
        """An error about the file; `line`: counted from 0."""
        return _Wrong(self.where if line is None else at_line(self.name, line), self.field, message)


def _file(document: Document, field: FieldPath, path: str | Path | None) -> _File:
    """The file that a field names."""
    named: str = document.data[field[0]][field[1]]
    folder = Path() if path is None or document.given(field) else Path(path).parent
    return _File(document.where(field), field, folder / Path(named).expanduser())


# --- Tables -------------------------------------------------------------------------------------------


def _table(file: _File) -> list[dict[str, str]]:
    """The rows of a table by the names in its header."""
    delimiter = "\t" if file.path.suffix == ".tsv" else ","
    reader = csv.reader(io.StringIO(file.text, newline=""), delimiter=delimiter, strict=True)
    rows: list[dict[str, str]] = []
    names: list[str] | None = None
    lines = 0
    try:
        for cells in reader:
            first, lines = lines, reader.line_num
            if not any(cell.strip() for cell in cells):
                continue
            if names is None:
                names = _names(file, [cell.strip() for cell in cells], delimiter, first)
                continue
            if len(cells) != len(names):
                values, few = counted(len(cells), "value"), len(cells) < len(names)
                fix = "add the missing ones, empty or not" if few else "quote a value that holds a comma"
                counts = f"has {values} for {len(names)} columns ({', '.join(names)})"
                raise file.wrong(f"{counts}: {fix}", first)
            rows.append(
                {name: _cell(file, name, cell, first) for name, cell in zip(names, cells, strict=True)}
            )
    except csv.Error as error:
        raise file.wrong(f"is not a table: {error}", max(reader.line_num - 1, 0)) from None
    if not rows:
        raise file.wrong(f"names {file.name}, which has no rows below its header")
    return rows


def _names(file: _File, names: list[str], delimiter: str, line: int) -> list[str]:
    """The names of a header, if all are valid."""
    for number, name in enumerate(names):
        if not name:
            unnamed = f"has no name for column {number + 1}: name it"
            raise file.wrong(f"{unnamed} (pandas writes such a column unless index=False)", line)
        if not re.fullmatch(NAME, name, re.ASCII):
            other = next((mark for mark in ";\t|" if mark in name and mark != delimiter), None)
            fix = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "x"
            fix = f"p_{fix}" if fix[0].isdigit() else fix
            how = f"write it as {fix}"
            if other and len(names) == 1:
                apart = "tabs: give the file a name that ends in .tsv" if other == "\t" else shown(other)
                how = f"its columns seem to be separated by {apart}"
                how += "" if other == "\t" else ", not by commas"
            takes = "a parameter's name has letters, digits and _ only"
            raise file.wrong(f"has a column {shown(name)}, but {takes}: {how}", line)
        if name in names[:number]:
            raise file.wrong(f"has two columns {name}: rename one", line)
    return names


def _cell(file: _File, name: str, cell: str, line: int) -> str:
    """A value of a table, without the spaces around a number."""
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", cell):
        raise file.wrong(f"has {shown(cell)} as {name}, but a value is one line of text", line)
    return cell.strip() if is_number(cell.strip()) else cell


def _put(document: Document, rows: Any, field: FieldPath) -> None:
    """Put what a file holds in its place, with the position of the file's name."""
    document.data["array"] = {**document.data["array"], field[-1]: rows}


# --- Commands -----------------------------------------------------------------------------------------


def _put_commands(document: Document, file: _File) -> None:
    """Make each line of a file of commands a parameter, and bash the program that runs it."""
    array = document.data["array"]
    if array.get("parameters") is not None:
        raise file.wrong("excludes array.parameters, as its lines are the members: drop one of the two")
    commands = [*_commands(file)]
    if not commands:
        raise file.wrong(f"names {file.name}, which has no commands")
    others = {name: value for name, value in array.items() if name not in ("commands", "parameters")}
    document.data["array"] = {**others, "parameters": {COMMAND: commands}}
    document.record(_PARAMETERS, document.where(_COMMANDS))
    if document.data.get("script") is None and not document.data.get("command"):
        document.data["command"] = [*BY_BASH]
        if document.data.get("name") is None:
            stem = re.sub(r"[^A-Za-z0-9_.+-]", "_", file.path.stem).lstrip("._+-")[:60]
            document.data["name"] = stem if stem[:1].isalpha() else "commands"


def _commands(file: _File) -> Iterator[str]:
    """The commands of a file, without blank lines and comments."""
    for number, line in enumerate(file.text.split("\n")):
        command = line.rstrip("\r").strip()
        if not command or command.startswith("#"):
            continue
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", command):
            raise file.wrong("has control characters, which no command needs: remove them", number)
        if command.endswith("\\") and not command.endswith("\\\\"):
            raise file.wrong("ends in \\, but each command is one line: join it with the next", number)
        yield command


# --- Spelling -----------------------------------------------------------------------------------------


def _keep_spelling(document: Document) -> None:
    """Write decimal numbers that JSON would not take, such as `.5`, as it does; others stay as spelled."""
    array = document.data["array"]
    spelled = _spelled(document, array["parameters"], _PARAMETERS)
    document.data["array"] = {**array, "parameters": spelled}


def _read_references(document: Document) -> None:
    """Take `{lr}` without quotes, which is a mapping in YAML, as the text that it is meant to be."""
    data = document.data
    for name in ("workdir", "name"):
        if name in data:
            data[name] = _as_text(data[name])
    if isinstance(words := data.get("command"), list):
        data["command"] = [*map(_as_text, words)]
    if isinstance(env := data.get("env"), dict):
        data["env"] = {name: _as_text(value) for name, value in env.items()}


def _as_text(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1 and [*value.values()] == [None]:
        return f"{{{next(iter(value))}}}"
    return value


def _spelled(document: Document, data: Any, path: FieldPath) -> Any:
    if isinstance(data, dict):
        return {name: _spelled(document, value, (*path, name)) for name, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [_spelled(document, value, (*path, number)) for number, value in enumerate(data)]
    if isinstance(data, float) and math.isfinite(data):
        spelling = document.text(path, data)
        return spelling if is_number(spelling) else repr(data)
    return data
