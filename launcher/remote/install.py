"""Install this castoff on a machine: send its wheel, and the wheels that it requires for the machine's
Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import msgspec

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.remote.entries import entries_file
from castoff.launcher.remote.login_shell import PYTHONS, Marks, python_script
from castoff.launcher.remote.machine import Machine
from castoff.launcher.remote.ssh import broken
from castoff.launcher.remote.wheel import EXTRA, build
from castoff.launcher.text.words import size_words

_OLDEST_GLIBC = 5
"""The oldest platform of wheels is manylinux_2_5 (PEP 600)."""

_LONGEST_ANSWER = 1 << 20
"""Limit of the answer's size, in bytes."""

_PROGRAM = Path(__file__).with_name("installer.py")


_Answer = TypeVar("_Answer")


class _Found(msgspec.Struct):
    """The Python and the folders of the machine, as `installer` reports them."""

    folder: str
    folder_is_there: bool
    writable: bool
    """Whether the user can write to the folder, or can create it."""
    home: str
    """The folder of castoff installations."""
    home_writable: bool
    executable: str
    version: list[int]
    implementation: str
    machine: str
    system: str
    libc: list[str]
    has_venv: bool
    has_pip: bool
    versions: list[str]


class _Installed(msgspec.Struct):
    """The folder of the castoff that was installed."""

    folder: str


def install_castoff(
    machine: Machine,
    environ: Mapping[str, str],
    say: Callable[[str], object],
    agrees: Callable[[str], bool] | None = None,
) -> bool:
    """Install this castoff on a machine; returns False if the user declines.

    `agrees` asks the user a question; None: do not ask.

    Raises:
        ConnectionBroken: the connection cannot be made, or broke.
        CastoffError: castoff cannot be installed there.
    """
    if machine.entry.castoff is not None:
        raise CastoffError(
            f"{machine.entry.name}: its entry names {machine.entry.castoff}, so castoff installs no other; "
            f"take `castoff:` out of {entries_file(environ)} first"
        )
    installation = Installation(machine, environ, say)
    if agrees is not None and not agrees(f"{installation.question()}?"):
        return False
    installation.run()
    return True


class Installation:
    """An installation on one machine. Making one changes nothing on the machine."""

    def __init__(self, machine: Machine, environ: Mapping[str, str], say: Callable[[str], object]):
        """Query which Python the machine has, and whether the user may write to the folders.

        Raises:
            ConnectionBroken: the connection cannot be made, or broke.
            CastoffError: there is no Python that castoff supports, or a folder cannot be written.
        """
        self._machine, self._environ, self._say = machine, environ, say
        self._wheel = build()
        self._found = self._probe()
        if not self._found.writable:
            folder, how = printable(self._found.folder), "written" if self._found.folder_is_there else "made"
            raise CastoffError(
                f"{machine.entry.name}: the folder {folder} cannot be {how} by you there; name another with "
                "--dir of `castoff on add`"
            )
        if not self._found.home_writable:
            raise CastoffError(
                f"{machine.entry.name}: you cannot write to {printable(self._found.home)} there, "
                "where castoff would be installed; install it elsewhere, and name it with --castoff of "
                "`castoff on add`"
            )
        if not self._found.has_venv:
            raise CastoffError(
                f"{machine.entry.name}: {self._found.executable} there has no module venv; name another with "
                "--python of `castoff on add`"
            )

    @property
    def is_there(self) -> bool:
        """Whether the machine already has exactly this version of castoff."""
        return self._wheel.version in self._found.versions

    def question(self) -> str:
        """The question whether to install castoff, with its version, the folder and the Python."""
        python = ".".join(map(str, self._found.version))
        place_words = f"{self._found.home} on {self._machine.entry.name}"
        if not self._found.folder_is_there:
            place_words += f", and make the folder {self._found.folder},"
        with_ = f"{self._found.executable} ({python})"
        return printable(f"Install castoff {self._wheel.version} in {place_words} with {with_}")

    def run(self) -> None:
        """Install castoff, unless this version is installed already.

        Raises:
            ConnectionBroken: the connection broke; an incomplete installation is never used.
            CastoffError: castoff cannot be installed; pip's message has been shown.
        """
        name = self._machine.entry.name
        with tempfile.TemporaryDirectory(prefix="castoff-") as folder:
            wheels = [] if self.is_there else self._download(Path(folder))
            files = [(self._wheel.name, self._wheel.content)]
            files += [(path.name, path.read_bytes()) for path in wheels]
            if self.is_there:
                files = []
            about = {
                "version": self._wheel.version,
                "offline": bool(wheels),
                "extra": EXTRA,
                "files": [(file, len(content)) for file, content in files],
            }
            if files:
                count = "1 wheel" if len(files) == 1 else f"{len(files)} wheels"
                total = size_words(sum(len(content) for _, content in files))
                self._say(f"{name}: sends {count}, {total}, and installs them there")
            sent = [json.dumps(about).encode() + b"\n", *(content for _, content in files)]
            answer = self._call(
                "install", sent, "castoff was installed; the next attempt starts from the beginning"
            )
        installed = printable(self._decoded(answer, _Installed).folder)
        already = "is there already" if self.is_there else "is installed"
        self._say(f"{name}: castoff {self._wheel.version} {already}, in {installed}")

    def _probe(self) -> _Found:
        return self._decoded(self._call("probe", [], "castoff looked for a Python on the machine"), _Found)

    def _decoded(self, answer: bytes, kind: type[_Answer]) -> _Answer:
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.MsgspecError as error:
            text = printable(answer.decode(errors="replace")[:200])
            raise CastoffError(
                f"{self._machine.entry.name}: the Python there printed {text!r} instead of JSON"
            ) from error

    def _call(self, what: str, sent: list[bytes], doing: str) -> bytes:
        """Run a task of `installer` on the machine, and return its output."""
        entry = self._machine.entry
        again = ["castoff", "on", "install", entry.name]
        marks = Marks(os.urandom(8).hex())
        script = python_script(
            folder=entry.dir,
            home=entry.home,
            setup=entry.setup,
            candidates=[entry.python] if entry.python else PYTHONS,
            program=_PROGRAM.read_text(encoding="utf-8"),
            task=what,
            marks=marks,
        )
        answer = bytearray()
        with self._machine.begun(script, marks) as (process, output):
            assert process.stdin is not None
            with contextlib.suppress(OSError):  # the exit code says more than a broken pipe
                for part in sent:
                    process.stdin.write(part)
                process.stdin.close()
            output.copy(lambda part: answer.extend(part[: _LONGEST_ANSWER - len(answer)]))
        if output.code is None:
            raise broken(entry, doing, again)
        if output.code:
            raise CastoffError(f"{entry.name}: castoff was not installed; the reason is above")
        return bytes(answer)

    # Wheels

    def _download(self, folder: Path) -> list[Path]:
        """Download the requirements for the machine's Python; empty if pip has to do so on the machine."""
        if self._found.implementation != "cpython" or self._found.system != "Linux":
            return self._leave_to_pip(f"{self._found.implementation} on {self._found.system}")
        if find_spec("pip") is None:
            return self._leave_to_pip("this castoff's Python has no pip")
        version = ".".join(map(str, self._found.version[:2]))
        words = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
        ]
        words += ["--dest", str(folder), "--only-binary=:all:", "--python-version", version]
        words += ["--implementation", "cp"]
        for platform in platforms(self._found.machine, self._found.libc):
            words += ["--platform", platform]
        self._say(f"{self._machine.entry.name}: downloads wheels for Python {version} there")
        download = subprocess.run(
            [*words, *self._wheel.requirements, "pip"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(self._environ),
            check=False,
        )
        if download.returncode:
            lines = download.stderr.decode(errors="replace").strip().splitlines()
            return self._leave_to_pip(lines[-1] if lines else f"pip ended with code {download.returncode}")
        return sorted(folder.glob("*.whl"))

    def _leave_to_pip(self, why: str) -> list[Path]:
        name = self._machine.entry.name
        if not self._found.has_pip:
            raise CastoffError(
                f"{name}: the wheels cannot be downloaded here ({printable(why)}), and "
                f"{self._found.executable} there has no module ensurepip, so pip cannot do it there either"
            )
        self._say(
            f"{name}: the wheels cannot be downloaded here ({printable(why)}); pip there downloads them"
        )
        return []


def platforms(machine: str, libc: list[str]) -> list[str]:
    """The platform tags of wheels that a Linux accepts (PEP 600, PEP 656), the best first."""
    name, version = [*libc, "", ""][:2]
    if name != "glibc":
        minor = 2
        return [*(f"musllinux_1_{number}_{machine}" for number in range(minor, -1, -1)), f"linux_{machine}"]
    parts = version.split(".")
    minor = int(parts[1]) if len(parts) > 1 and re.fullmatch("[0-9]{1,2}", parts[1]) else 17
    new = [f"manylinux_2_{number}_{machine}" for number in range(minor, _OLDEST_GLIBC - 1, -1)]
    old = [
        f"{name}_{machine}"
        for name, at_least in (("manylinux2014", 17), ("manylinux1", 5))
        if minor >= at_least
    ]
    return [*new, *old, f"linux_{machine}"]
