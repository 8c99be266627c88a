"""The machines that `--on` knows by name: `~/.config/castoff/on.yaml`, and which of them is meant."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from castoff.launcher.config.job_fields import ShellLine, Word
from castoff.launcher.errors import CastoffError, InvalidInput, Problem, printable
from castoff.launcher.process import files
from castoff.launcher.process.files import make_folders
from castoff.launcher.schedulers.registry import OWN
from castoff.launcher.text.quoting import visible_word, yaml_value, yaml_word
from castoff.launcher.trust.decision import check
from castoff.launcher.typed import editing
from castoff.launcher.typed.document import Document
from castoff.launcher.typed.structure import convert
from castoff.launcher.typed.suggestion import did_you_mean

HERE = ("", OWN)
"""What `--on` takes for this machine."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names are words of command lines that castoff prints, and of file names."""


class _Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry as on.yaml has it."""

    host: Word
    dir: Word
    site: Word | None = None
    python: Word | None = None
    setup: list[ShellLine] = []
    castoff: Word | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that `--on` reaches."""

    name: str
    host: Annotated[str, "user@host, or a host of ~/.ssh/config"]
    dir: str
    """The folder there that holds runs, code and castoff itself: absolute, `~/…`, or relative to the home."""
    site: str | None = None
    """The site profile to plan with; None: the one that castoff chooses there."""
    python: str | None = None
    """The Python that castoff is installed with; None: the newest that is found."""
    setup: list[str] = []
    """Shell lines for bash that run there before castoff."""
    castoff: str | None = None
    """A castoff that is there already; None: the one that `castoff on install` puts into `home`."""

    @property
    def home(self) -> str:
        """Where castoff is installed there: below the user's home, as others may be able to replace `dir`.

        One for each entry, since machines that share a home may differ in Python and processor.
        """
        return f".local/share/castoff/{self.name}"


def entries_file(environ: Mapping[str, str]) -> Path:
    """Where entries are kept."""
    home = environ.get("HOME", "/nonexistent")
    return Path(environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "castoff", "on.yaml")


def entries(environ: Mapping[str, str]) -> dict[str, Entry]:
    """All entries by name.

    Raises:
        InvalidInput: with every problem that the file has.
        CastoffError: it cannot be read, or others could have written it.
    """
    path = entries_file(environ)
    if not path.is_file():
        return {}
    check(path, environ=environ)
    document = Document.read(path)
    data: Any = document.data or {}
    if not isinstance(data, dict):
        problem = document.problem((), "holds no entries; each is NAME: {host: USER@HOST, dir: FOLDER}")
        raise InvalidInput([problem])
    problems: list[Problem] = []
    found: dict[str, Entry] = {}
    for name, value in data.items():
        given = convert(document.holding(value), _Given, problems, at=(name,))
        if why := _wrong_name(name):
            problems.append(document.problem((name,), why))
        elif given is not None:
            found[name] = Entry(name=name, **msgspec.structs.asdict(given))
            problems += [document.problem((name, field), why) for field, why in _wrong(found[name])]
    if problems:
        raise InvalidInput(problems)
    return found


def entry_named(name: str, environ: Mapping[str, str], why: str) -> Entry:
    """The entry of that name; `why` says who named it: `--on`, `CASTOFF_ON`, a file.

    Raises:
        CastoffError: there is none, with the line that adds one.
    """
    known = entries(environ)
    if name in known:
        return known[name]
    there = f"there are: {', '.join(known)} (`castoff on list`)\n" if known else ""
    add = f"castoff on add {name if _NAME.fullmatch(name) else 'NAME'} USER@HOST --dir FOLDER"
    raise CastoffError(
        f"{why}: {printable(name)!r} is not an entry of {entries_file(environ)}{did_you_mean(name, known)}\n"
        f"{there}`{add}` adds it, where FOLDER is a folder on that machine that its nodes share"
    )


def add(entry: Entry, environ: Mapping[str, str]) -> Path:
    """Write an entry into the file, in place of one of the same name.

    Raises:
        InvalidInput: it is not one.
        CastoffError: the file cannot be written, or not without changing more.
    """
    problems = [Problem("", field, why) for field, why in _wrong(entry)]
    if why := _wrong_name(entry.name):
        problems.insert(0, Problem("", "NAME", why))
    if problems:
        raise InvalidInput(problems)
    fields = {
        name: value for name, value in msgspec.structs.asdict(entry).items() if value and name != "name"
    }
    block = [f"{yaml_word(entry.name)}:"]
    block += [f"  {field}: {yaml_value(value)}" for field, value in fields.items()]
    return _edited(environ, lambda text: editing.put_block(text, (entry.name,), block))


def remove(name: str, environ: Mapping[str, str]) -> Path:
    """Take an entry out of the file.

    Raises:
        CastoffError: there is none, or the file cannot be written.
    """
    entry_named(name, environ, "castoff on remove")
    return _edited(environ, lambda text: editing.remove(text, (name,)))


def _edited(environ: Mapping[str, str], edit: Any) -> Path:
    path = entries_file(environ)
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        make_folders(path.parent)
        files.replace(Path(os.path.realpath(path)), edit(text), 0o600)
    except OSError as error:
        raise CastoffError(f"{path}: cannot be written: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CastoffError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    return path


def _wrong_name(name: str) -> str:
    if name in HERE:
        return f"is {name!r}, which is this machine; choose another name"
    if _NAME.fullmatch(name) is None or len(name) > 40:
        return f"is {name!r}, but takes letters, digits, `.`, `_` and `-`, at most 40, as in aurora"
    return ""


def _wrong(entry: Entry) -> list[tuple[str, str]]:
    """The fields of an entry that cannot be used, and why."""
    wrong = []
    for field, value in msgspec.structs.asdict(entry).items():
        if isinstance(value, str) and (not value or "\n" in value or "\0" in value):
            wrong.append((field, f"is {value!r}, but takes one line of text, not empty"))
    if entry.host.startswith("-") or not entry.host.isprintable() or re.search(r"\s", entry.host):
        wrong.append(("host", f"is {entry.host!r}, but takes USER@HOST, or a host of ~/.ssh/config"))
    for field, value in (("dir", entry.dir), ("castoff", entry.castoff or "")):
        if "$" in value:
            fix = f"`ssh {visible_word(entry.host)} 'echo {value}'` shows what it is there"
            wrong.append((field, f"is {value!r}, in which nothing expands variables: write the path; {fix}"))
        elif value.startswith("~") and not re.match(r"~(/|$)", value):
            wrong.append(
                (field, f"is {value!r}, but of ~ only your own home is known: write ~/… or the path")
            )
    return wrong
