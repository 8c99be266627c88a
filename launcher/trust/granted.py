"""Folders whose other writers the user trusts: one line each, in a file of the user's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.process import files
from castoff.launcher.process.files import make_folders
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.trust.paths import weaknesses


def granted_file(environ: Mapping[str, str]) -> Path:
    """The file that lists the trusted folders."""
    home = environ.get("HOME", "/nonexistent")
    return Path(environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "castoff", "trusted")


def granted(environ: Mapping[str, str]) -> list[Path]:
    """All trusted folders.

    Raises:
        CastoffError: their list cannot be read, or others could have written it.
    """
    path = granted_file(environ)
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CastoffError(f"{path}: cannot be read: {error.strerror}") from error
    _check(path)
    return [Path(os.fsdecode(line)) for line in text.split(b"\n") if line.startswith(b"/")]


def grant(folder: Path, environ: Mapping[str, str]) -> Path:
    """Add a folder, and say what it is called there.

    Raises:
        CastoffError: it is not there, or the list cannot be written.
    """
    real = _real(folder)
    path = granted_file(environ)
    _check(path)
    if real not in granted(environ):
        try:
            make_folders(path.parent)
            with path.open("ab") as file:
                file.write(os.fsencode(real) + b"\n")
        except OSError as error:
            raise CastoffError(f"{path}: cannot be written: {error.strerror}") from error
    return real


def withdraw(folder: Path, environ: Mapping[str, str]) -> Path:
    """Take a folder from the list, and say what it was called there.

    Raises:
        CastoffError: it is not in it, or the list cannot be written.
    """
    path = granted_file(environ)
    known = granted(environ)
    names = {folder, Path(os.path.realpath(folder))} & {*known}
    if not names:
        raise CastoffError(f"{folder}: is not trusted, so nothing changes; `castoff trust` lists what is")
    lines = b"".join(os.fsencode(one) + b"\n" for one in known if one not in names)
    try:
        files.replace(path, lines)
    except OSError as error:
        raise CastoffError(f"{path}: cannot be written: {error.strerror}") from error
    return names.pop()


def _real(folder: Path) -> Path:
    try:
        real = folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise CastoffError(f"{folder}: cannot be trusted, as it is not there: {error}") from error
    if "\n" in str(real):
        raise CastoffError(f"{printable(str(real))}: holds a line break, and the list has a line for each")
    return real


def _check(path: Path) -> None:
    """Make sure that nobody else can have written the list itself."""
    for weakness in weaknesses(path):
        fix = (
            f"{weakness.shut_by} {visible_word(str(weakness.path))}"
            if weakness.ours
            else "set XDG_CONFIG_HOME to another"
        )
        raise CastoffError(
            f"{path}: its contents may be another user's, since {weakness.path} {weakness.why}; {fix}"
        )
