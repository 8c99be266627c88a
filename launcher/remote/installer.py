"""The program that installs castoff on a machine. It is sent as text, so it imports only the standard
library.

`python -c TEXT probe FOLDER HOME` prints facts about FOLDER, for code and runs, and HOME, for castoff, as
JSON. `python -c TEXT install FOLDER HOME` reads a line of JSON from standard input, and then the files that
it lists. A virtual environment cannot be moved, so it is created in its final folder, and counts as installed
only when it contains the file `complete`.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

VERSION = re.compile(r"[0-9][^+]*\+g[0-9a-f]+")
"""Names of installed versions; folders with other names do not belong to castoff."""


def probe(folder: Path, home: Path) -> None:
    """Print the facts about this Python, system and folders as JSON, without changing anything."""
    installations = sorted(home.iterdir()) if home.is_dir() else []
    facts = {
        "folder": str(folder.resolve()),
        "folder_is_there": folder.is_dir(),
        "writable": _is_writable(folder),
        "home": str(home),
        "home_writable": _is_writable(home),
        "executable": sys.executable,
        "version": list(sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "machine": platform.machine(),
        "system": platform.system(),
        "libc": list(platform.libc_ver()),
        "has_venv": find_spec("venv") is not None,
        "has_pip": find_spec("ensurepip") is not None,
        "versions": [path.name for path in installations if _is_complete(path)],
    }
    print(json.dumps(facts), flush=True)


def _is_writable(folder: Path) -> bool:
    """Whether the user can write to the folder, or can create it."""
    above = next(path for path in (folder, *folder.parents) if path.exists())
    return above.is_dir() and os.access(above, os.W_OK | os.X_OK)


def install(folder: Path, home: Path) -> None:
    """Create the virtual environment for the version whose wheels arrive on standard input."""
    source = sys.stdin.buffer
    about = json.loads(source.readline())
    for folder_above in (*home.parents[::-1], home):
        if not folder_above.is_dir():  # for the user only, since the umask may let others write
            folder_above.mkdir(mode=0o700, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        target = home.resolve() / about["version"]
        if not _is_complete(target):
            _remove_incomplete(home)
            try:
                _fill(target, source, about)
            except BaseException:  # free the space, since the disk or the quota may be full
                shutil.rmtree(target, ignore_errors=True)
                raise
        _point_to(home, about["version"])
    print(json.dumps({"folder": str(target)}), flush=True)


def _remove_incomplete(home: Path) -> None:
    """Remove incomplete installations. None is in progress, because this process holds the lock."""
    for path in home.iterdir():
        if VERSION.fullmatch(path.name) and not path.is_symlink() and not _is_complete(path):
            shutil.rmtree(path, ignore_errors=True)


def _fill(target: Path, source: BinaryIO, about: dict[str, Any]) -> None:
    try:
        wheels = target / "wheels"
        wheels.mkdir(mode=0o700, parents=True)
        for name, size in about["files"]:
            _receive(source, wheels / Path(name).name, size)
        _make(target, wheels, about)
    except OSError as error:
        sys.exit(f"castoff: {error.filename or target}: {error.strerror}; nothing was installed")


def _is_complete(path: Path) -> bool:
    return not path.is_symlink() and (path / "complete").exists()


def _receive(source: BinaryIO, path: Path, size: int) -> None:
    with path.open("wb") as file:
        while size:
            data = source.read(min(size, 1 << 20))
            if not data:
                sys.exit(f"castoff: {path.name} did not arrive completely; nothing was installed")
            file.write(data)
            size -= len(data)


def _make(target: Path, wheels: Path, about: dict[str, Any]) -> None:
    names = [name for name, _ in about["files"]]
    castoff = next(name for name in names if name.startswith("castoff-"))
    pip_wheel = next((name for name in names if name.startswith("pip-")), None)
    _call(sys.executable, "-I", "-m", "venv", *(["--without-pip"] if pip_wheel else []), str(target))
    pip = ["-m", "pip"] if pip_wheel is None else [str(wheels / pip_wheel / "pip")]
    options = ["--quiet", "--no-input", "--disable-pip-version-check"]
    if about["offline"]:
        options += ["--no-index", "--find-links", str(wheels)]
    _call(str(target / "bin" / "python"), *pip, "install", *options, f"{wheels / castoff}[{about['extra']}]")
    _call(str(target / "bin" / "castoff"), "--version")
    shutil.rmtree(wheels)
    (target / "complete").write_text(f"{about['version']}\n")


def _call(*words: str) -> None:
    """Run a command; if it fails, show its output and exit."""
    # Remove variables that change which modules Python finds.
    removed = ("PYTHON", "VIRTUAL_ENV")
    process = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if not name.startswith(removed)},
        check=False,
    )
    if process.returncode:
        sys.stderr.write(process.stdout.decode(errors="replace"))
        command = " ".join(words[:4])
        sys.exit(f"castoff: {command} … failed with code {process.returncode}; nothing was installed")


def _point_to(home: Path, version: str) -> None:
    """Replace the link `current` by one to this version."""
    draft = home / ".current"
    draft.unlink(missing_ok=True)
    draft.symlink_to(version)
    draft.replace(home / "current")


if __name__ == "__main__":
    {"probe": probe, "install": install}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
