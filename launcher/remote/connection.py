"""ssh as the user has set it up, and one connection for all that castoff asks of a machine.

The user's own ssh_config decides about hosts, keys, agents and jump hosts; passwords and host keys are
asked for on the terminal by ssh itself. Only the connection is shared: by the user's own ControlPath, else by
one of castoff's, which ssh keeps for ten minutes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.remote.entries import Entry
from castoff.launcher.text.quoting import visible_word

FAILED = 255
"""ssh's own exit code if the connection fails (ssh(1), EXIT STATUS)."""

_KEPT = "10m"

_ALIVE = 15
"""Seconds between ssh's questions whether the other side is still there; three without an answer end it."""

_CONNECT = 60
"""Seconds in which the other side has to take the connection."""

_PATIENCE = 5.0
"""Seconds for ssh to end once nothing is left to do."""

_LONGEST_PATH = 107
"""Bytes of a socket's path (unix(7): sun_path has 108)."""

_DRAFT = 17
"""Characters that ssh adds to it while it makes the socket."""


class ConnectionBroken(CastoffError):
    """ssh ended before the other side had said all."""

    def __init__(self, entry: Entry, message: str, *, begun: bool):
        self.begun = begun
        """Whether the other side had begun."""
        super().__init__(f"{entry.name}: {message}")


class Ssh:
    """ssh to one machine."""

    def __init__(self, entry: Entry, environ: Mapping[str, str]):
        self.entry = entry
        self._environ = environ
        self._own: list[str] | None = None

    def start(
        self, command: str, *, terminal: bool = False, stdin: int | IO[bytes] | None, stdout: int | None
    ) -> subprocess.Popen[bytes]:
        """Run a command line there.

        Its standard error is ours, since ssh and whatever runs there speak to the user by it.

        Raises:
            CastoffError: there is no ssh, or the host is not one.
        """
        # Of a terminal ssh would say that the shared connection is closed, which it is not.
        how = ["-tt", *_o("LogLevel=ERROR")] if terminal else ["-T"]
        words = [*self._words(), *how, "--", self.entry.host, command]
        try:
            return subprocess.Popen(words, stdin=stdin, stdout=stdout, env=dict(self._environ))
        except OSError as error:
            raise _no_ssh(error) from error

    def close(self) -> None:
        """End the shared connection, if it is castoff's own; the next command makes a new one."""
        words = self._words()
        if any(word.startswith("ControlPath=") for word in words):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
            subprocess.run([*words, "-O", "exit", "--", self.entry.host], **quiet, check=False)  # type: ignore[call-overload]

    def _words(self) -> list[str]:
        if self._own is None:
            self._own = self._options()
        return ["ssh", *self._own]

    def _options(self) -> list[str]:
        settings, text = self._settings()
        # What is for people's own sessions: forwarded ports could be taken, and a command is ours.
        options = ["-x", *_o("ClearAllForwardings=yes"), *_o("RemoteCommand=none")]
        if settings.get("serveraliveinterval", "0") == "0":
            options += _o(f"ServerAliveInterval={_ALIVE}")
        if settings.get("connecttimeout", "none") in ("none", "0"):
            options += _o(f"ConnectTimeout={_CONNECT}")
        if settings.get("controlpath", "none") == "none" and (folder := _sockets(self._environ)):
            name = hashlib.sha256(text).hexdigest()[:12]
            path = f"{folder}/{name}".replace("%", "%%")
            options += [
                *_o("ControlMaster=auto"),
                *_o(f"ControlPersist={_KEPT}"),
                *_o(f'ControlPath="{path}"'),
            ]
        return options

    def _settings(self) -> tuple[dict[str, str], bytes]:
        """What ssh makes of the user's configuration for this host; the last of each setting."""
        try:
            answer = subprocess.run(
                ["ssh", "-G", "--", self.entry.host],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=dict(self._environ),
                check=False,
            )
        except OSError as error:
            raise _no_ssh(error) from error
        if answer.returncode:
            words = printable(answer.stderr.decode(errors="replace").strip())
            raise CastoffError(f"{self.entry.name}: ssh cannot use the host {self.entry.host!r}: {words}")
        lines = (line.partition(" ") for line in answer.stdout.decode(errors="replace").splitlines())
        return {name: value for name, _, value in lines}, answer.stdout


def _o(setting: str) -> list[str]:
    return ["-o", setting]


def _no_ssh(error: OSError) -> CastoffError:
    why = (
        "is not on PATH; install OpenSSH's client" if error.errno == 2 else f"cannot start: {error.strerror}"
    )
    return CastoffError(f"ssh: {why}")


def _sockets(environ: Mapping[str, str]) -> str | None:
    """A folder of this user's alone for the connection's socket; None: each command connects by itself."""
    home = environ.get("HOME", "")
    candidates = [f"{environ[name]}/castoff" for name in ("XDG_RUNTIME_DIR",) if environ.get(name)]
    candidates += [f"/tmp/castoff-ssh-{os.geteuid()}", *([f"{home}/.ssh/castoff"] if home else [])]
    for folder in candidates:
        if (
            len(os.fsencode(folder)) + 1 + 12 + _DRAFT <= _LONGEST_PATH
            and '"' not in folder
            and _is_ours(folder)
        ):
            return folder
    return None


def _is_ours(folder: str) -> bool:
    """Whether a folder is there, or could be made, that nobody else can look into."""
    try:
        Path(folder).mkdir(mode=0o700, exist_ok=True)
        about = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077


def ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code of an ssh after its streams are closed; one that does not end by itself is ended.

    What is left in a pipe that nobody reads any more would keep it waiting for ever.
    """
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # what was not sent any more
            if stream is not None:
                stream.close()
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.wait()


def broken(entry: Entry, doing: str, next_: Sequence[str], then: str = "continues") -> ConnectionBroken:
    """The error that the connection broke: what was being done, and what to call next, which does `then`."""
    command = " ".join(map(visible_word, next_))
    what = f"the connection to {entry.host} broke while {doing}\nnothing is lost: `{command}` {then}"
    return ConnectionBroken(entry, what, begun=True)


def not_connected(entry: Entry, code: int) -> ConnectionBroken:
    """The error that castoff did not begin there; `code` is ssh's."""
    if code == FAILED:
        what = f"{entry.host} was not reached, so nothing was done there; ssh's message is above"
    else:
        what = (
            f"the login shell of {entry.host} ended with code {code} before castoff began: perhaps a "
            "startup file there exits or starts another shell, also where nobody types; "
            f"`ssh {visible_word(entry.host)} true` shows what it prints"
        )
    return ConnectionBroken(entry, what, begun=False)
