"""ssh with the user's own settings: one shared connection, the output of commands there, and the errors of
both.

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
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from castoff.launcher.errors import CastoffError, printable, report
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.login_shell import MARK, Marks
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.text.words import brief, size_words

FAILED = 255
"""ssh's own exit code if the connection fails (ssh(1), EXIT STATUS)."""

_KEPT = "10m"

_ALIVE = 15
"""Seconds between ssh's questions whether the other side is still there; three without an answer end it."""

_CONNECT = 60
"""Seconds in which the other side has to take the connection."""

_PATIENCE = 5.0
"""Seconds for ssh to end after its streams are closed."""

_LONGEST_PATH = 107
"""Bytes of a socket's path (unix(7): sun_path has 108)."""

_DRAFT = 17
"""Characters that ssh adds to the path while it makes the socket."""


class ConnectionBroken(CastoffError):
    """ssh ended before the command on the other side had."""

    def __init__(self, entry: Entry, message: str, *, begun: bool):
        self.begun = begun
        """Whether the command on the other side had begun."""
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
        """Start a command line there; its standard error, and ssh's own, go to ours.

        Raises:
            CastoffError: there is no ssh, or the host is not one.
        """
        # For a terminal, ssh would report that the shared connection is closed, which it is not.
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
        # Settings for the user's own sessions: forwarded ports could be taken, and the command is ours.
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
        """ssh's settings for this host, the last value of each, and the same as ssh prints them."""
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
    """A folder for the socket that only the user can look into; None: each command connects by itself."""
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
    """Whether nobody else can look into a folder, which is made if it is not there."""
    try:
        Path(folder).mkdir(mode=0o700, exist_ok=True)
        about = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077


def ended(process: subprocess.Popen[bytes]) -> int:
    """Close an ssh's streams, and return its exit code. If it does not end by itself, it is terminated.

    It could wait for ever to write into a pipe that nobody reads any more.
    """
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # bytes that could not be sent any more
            if stream is not None:
                stream.close()
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.wait()


def broken(entry: Entry, doing: str, next_: Sequence[str], then: str = "continues") -> ConnectionBroken:
    """The error that the connection broke while `doing`, and that the command `next_` then does the rest."""
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


# Output

_READ = 1 << 16

_CODE = 8
"""Bytes of an exit code and a newline, at the most."""


class Output:
    """The output of one command there, without what its login shell prints before."""

    def __init__(self, stream: IO[bytes], marks: Marks):
        self.stream = stream
        self.obstacle: str | None = None
        """Why the command did not begin, as the script there reports it: see `login_shell`."""
        self.code: int | None = None
        """The command's exit code, once it has arrived."""
        self._marks = marks

    def begins(self) -> bool:
        """Drop everything before the first mark, and return whether the command begins there."""
        begin, failed = (f"{MARK}{mark}".encode() for mark in (self._marks.begin, self._marks.failed))
        line = b""
        while part := self.stream.readline(_READ):
            line = line[-_READ:] + part
            if not line.endswith(b"\n"):
                continue
            if begin in line:
                return True
            if failed in line:
                self.obstacle = line.partition(failed)[2].decode(errors="replace").strip()
                return False
            line = b""
        return begin in line  # the connection broke right behind it

    def copy(self, write: Callable[[bytes], object]) -> None:
        """Write the output as it arrives; `code` stays None if the connection breaks before the end mark."""
        end = f"{MARK}{self._marks.end} ".encode()
        held = b""
        while part := self.stream.read1(_READ):  # type: ignore[attr-defined] # a pipe's, which has it
            held += part
            at = held.find(end)
            if at >= 0:
                write(held[:at])
                rest = held[at + len(end) :]
                self._take_code(rest if b"\n" in rest else rest + self.stream.readline(_CODE))
                return
            keep = _overlap(held, end)
            write(held[: len(held) - keep])
            held = held[len(held) - keep :]
        write(held)

    def _take_code(self, rest: bytes) -> None:
        digits, newline, _ = rest.partition(b"\n")
        if newline and digits.isdigit() and len(digits) < _CODE and int(digits) < 256:
            self.code = int(digits)


class Bounded:
    """Counts the parts of an answer, and refuses more than it may have."""

    def __init__(self, what: str, most: int):
        """`what` names the answer and its machine in the error."""
        self._what, self._left, self._most = what, most, most

    def take(self, data: bytes) -> bytes:
        """Count a part, and return it.

        Raises:
            CastoffError: there are more bytes than `most`.
        """
        self._left -= len(data)
        if self._left < 0:
            raise CastoffError(
                f"{self._what} is larger than {size_words(self._most)}, so castoff reads no more"
            )
        return data


def _overlap(text: bytes, mark: bytes) -> int:
    """How many bytes at the end of a text may be the beginning of the mark."""
    at = text.rfind(mark[:1], max(0, len(text) - len(mark)))
    return len(text) - at if at >= 0 and mark.startswith(text[at:]) else 0


# Silence

_FIRST_REPORT, _LONGEST_PAUSE = 15.0, 300.0
"""Seconds until the first report of silence, and at the most between two reports."""


@contextlib.contextmanager
def reporting_silence(name: str) -> Iterator[Callable[[], object]]:
    """Report that a machine has not answered yet, until this ends or the yielded function is called."""
    heard, began = threading.Event(), time.monotonic()

    def watch() -> None:
        pause = _FIRST_REPORT
        while not heard.wait(pause):
            report(f"{name}: no answer yet after {brief(time.monotonic() - began)}; Ctrl-C ends the wait")
            pause = min(2 * pause, _LONGEST_PAUSE)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield heard.set
    finally:
        heard.set()
        watcher.join()
