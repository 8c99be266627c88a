"""The list of folders whose other writers the user trusts: a file with one folder a line."""

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
        CastoffError: the list cannot be read, or others could have written it.
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
    """Add a folder to the list, and return its path there.

    Raises:
        CastoffError: the folder does not exist or is a file, or the list cannot be written. A file that
            others can change is accepted, since no folder's trust would cover it.
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
    """Remove a folder from the list, and return its path there.

    Raises:
        CastoffError: the folder is not in the list, or the list cannot be written.
    """
    path = granted_file(environ)
    folders = granted(environ)
    names = {folder, Path(os.path.realpath(folder))} & {*folders}
    if not names:
        raise CastoffError(
            f"{folder}: is not trusted, so nothing changes; `castoff trust` lists the trusted folders"
        )
    lines = b"".join(os.fsencode(trusted) + b"\n" for trusted in folders if trusted not in names)
    try:
        files.replace(path, lines)
    except OSError as error:
        raise CastoffError(f"{path}: cannot be written: {error.strerror}") from error
    return names.pop()


def _real(folder: Path) -> Path:
    try:
        real = folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise CastoffError(f"{folder}: does not exist, so it cannot be trusted: {error}") from error
    if not real.is_dir() and all(weakness.path != real for weakness in weaknesses(real)):
        raise CastoffError(
            f"{folder}: is a file that others cannot change; trust is for a folder and all in it: "
            f"castoff trust {visible_word(str(folder.parent))}"
        )
    if "\n" in str(real):
        raise CastoffError(
            f"{printable(str(real))}: its name has a line break, but the list has one folder a line"
        )
    return real


def _check(path: Path) -> None:
    """Check that only the user can have written the list of trusted folders."""
    for weakness in weaknesses(path):
        fix = (
            f"{weakness.shut_by} {visible_word(str(weakness.path))}"
            if weakness.ours
            else "set XDG_CONFIG_HOME to another folder"
        )
        raise CastoffError(
            f"{path}: its contents may be another user's, since {weakness.path} {weakness.why}; {fix}"
        )
