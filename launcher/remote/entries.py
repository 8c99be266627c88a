"""The machines that `--on` can name, and their file `~/.config/castoff/on.yaml`."""

# No `from __future__ import annotations`: msgspec would compile each annotation at every start.

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
"""Names that mean this machine."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names of machines: they appear unquoted in command lines that castoff prints, and in file names."""


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry as it is written in on.yaml."""

    host: Word
    dir: Word
    site: Word | None = None
    python: Word | None = None
    setup: list[ShellLine] = []
    castoff: Word | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that `--on` can name."""

    name: str
    host: Annotated[str, "user@host, or a host of ~/.ssh/config"]
    dir: str
    """The machine's folder for runs and code: absolute, `~/…`, or relative to the home."""
    site: str | None = None
    """The site profile to plan with; None: the one that the machine's castoff chooses."""
    python: str | None = None
    """The Python to install castoff with; None: the newest on the machine."""
    setup: list[str] = []
    """Shell lines for bash that run on the machine before castoff."""
    castoff: str | None = None
    """An existing castoff on the machine; None: the one that `castoff on install` puts into `home`."""

    @property
    def home(self) -> str:
        """The folder of castoff installations on the machine, relative to the user's home."""
        # Not in `dir`, which others may be able to replace. One folder for each entry, since machines that
        # share a home may differ in Python and processor.
        return f".local/share/castoff/{self.name}"


def entries_file(environ: Mapping[str, str]) -> Path:
    """The path of on.yaml."""
    home = environ.get("HOME", "/nonexistent")
    return Path(environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "castoff", "on.yaml")


def entries(environ: Mapping[str, str]) -> dict[str, Entry]:
    """All entries by name.

    Raises:
        InvalidInput: with every problem of the file.
        CastoffError: the file cannot be read, or others could have written it.
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
    valid: dict[str, Entry] = {}
    for name, value in data.items():
        written = convert(document.holding(value), _Written, problems, at=(name,))
        if why := _wrong_name(name):
            problems.append(document.problem((name,), why))
        elif written is not None:
            valid[name] = Entry(name=name, **msgspec.structs.asdict(written))
            problems += [document.problem((name, field), why) for field, why in _wrong(valid[name])]
    if problems:
        raise InvalidInput(problems)
    return valid


def entry_named(name: str, environ: Mapping[str, str], why: str) -> Entry:
    """The entry with this name. `why`: where the name comes from, for the error: `--on`, `CASTOFF_ON` or a
    file.

    Raises:
        CastoffError: there is no such entry; the message has the command that adds one.
    """
    existing = entries(environ)
    if name in existing:
        return existing[name]
    others = f"known machines: {', '.join(existing)} (`castoff on list`)\n" if existing else ""
    guess = did_you_mean(name, existing)
    add = f"castoff on add {name if _NAME.fullmatch(name) else 'NAME'} USER@HOST --dir FOLDER"
    raise CastoffError(
        f"{why}: {printable(name)!r} is not an entry of {entries_file(environ)}{guess}\n"
        f"{others}`{add}` adds it, where FOLDER is a folder on that machine that its nodes share"
    )


def add(entry: Entry, environ: Mapping[str, str]) -> Path:
    """Write an entry into the file; it replaces one with the same name.

    Raises:
        InvalidInput: the entry is invalid.
        CastoffError: the file cannot be written, or castoff cannot edit it without changing other entries.
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
    """Remove an entry from the file.

    Raises:
        CastoffError: there is no such entry, or the file cannot be written.
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
        return f"is {name!r}, which means this machine; choose another name"
    if _NAME.fullmatch(name) is None or len(name) > 40:
        return f"is {name!r}, but takes letters, digits, `.`, `_` and `-`, at most 40, as in aurora"
    return ""


def _wrong(entry: Entry) -> list[tuple[str, str]]:
    """The invalid fields of an entry, each with the reason."""
    wrong = []
    for field, value in msgspec.structs.asdict(entry).items():
        if isinstance(value, str) and (not value or "\n" in value or "\0" in value):
            wrong.append((field, f"is {value!r}, but takes one line of text, not empty"))
    if entry.host.startswith("-") or not entry.host.isprintable() or re.search(r"\s", entry.host):
        wrong.append(("host", f"is {entry.host!r}, but takes USER@HOST, or a host of ~/.ssh/config"))
    for field, value in (("dir", entry.dir), ("castoff", entry.castoff or "")):
        if "$" in value:
            fix = f"`ssh {visible_word(entry.host)} 'echo {value}'` shows its value there"
            wrong.append(
                (field, f"is {value!r}, but variables are not expanded in it: write the path; {fix}")
            )
        elif value.startswith("~") and not re.match(r"~(/|$)", value):
            wrong.append((field, f"is {value!r}, but ~ works only for your own home: write ~/… or the path"))
    if entry.dir and entry.dir[0] not in "/~$":
        below = visible_word(f"~/{entry.dir.removeprefix('./')}")
        wrong.append(("dir", f"is {entry.dir!r}, but takes a whole path; in your home there: {below}"))
    return wrong
