"""ssh with the user's settings: one shared connection, the output of commands on the machine, and their
errors.

The user's ssh_config determines hosts, keys, agents and jump hosts; ssh itself asks for passwords and host
keys on the terminal. castoff adds only the sharing of the connection, by the user's ControlPath, else by one
of its own, which ssh keeps open for ten minutes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
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
from castoff.launcher.remote.transient import Transient
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.text.words import brief, size_words

FAILED = 255
"""ssh's own exit code if the connection fails (ssh(1), EXIT STATUS)."""

_KEPT = "10m"

_ALIVE = 15
"""Seconds between ssh's checks that the other side is alive; ssh ends after three checks without an answer.
"""

_CONNECT = 60
"""Limit for making the connection, in seconds."""

_PATIENCE = 5.0
"""Seconds in which ssh has to end after its streams are closed."""

_LONGEST_PATH = 103
"""Limit of a socket's path, in bytes: sun_path has 104 on a Mac, and 108 on Linux (unix(7))."""

_DRAFT = 17
"""Characters that ssh appends to the socket's path while it creates the socket."""


class ConnectionBroken(CastoffError):
    """ssh ended before the command on the machine did."""

    def __init__(self, entry: Entry, message: str, *, begun: bool):
        self.begun = begun
        """Whether the command on the machine had started."""
        super().__init__(f"{entry.name}: {message}")


class Ssh:
    """Connections to one machine."""

    def __init__(self, entry: Entry, environ: Mapping[str, str]):
        self.entry = entry
        self._environ = environ
        self._own: list[str] | None = None

    def start(
        self, command: str, *, terminal: bool = False, stdin: int | IO[bytes] | None, stdout: int | None
    ) -> subprocess.Popen[bytes]:
        """Start a command line on the machine; its standard error and ssh's own go to this process's.

        Raises:
            CastoffError: ssh is not installed, or cannot use the host.
        """
        # On a terminal, ssh would otherwise report that the shared connection is closed, although it stays
        # open.
        how = ["-tt", *_o("LogLevel=ERROR")] if terminal else ["-T"]
        words = [*self._words(), *how, "--", self.entry.host, command]
        try:
            return subprocess.Popen(words, stdin=stdin, stdout=stdout, env=dict(self._environ))
        except OSError as error:
            raise _no_ssh(error) from error

    def ask(self, command: str, seconds: float, most: int) -> bytes:
        """The output of a command over the connection that is shared already, at most so many bytes of it;
        empty if there is no connection. It ends after `seconds`. Nothing is asked on the terminal.
        """
        give_up = time.monotonic() + seconds
        program, *options = self._words()
        # ssh takes the first value of an option.
        ssh = [program, *_o("BatchMode=yes"), *_o("ControlMaster=no"), *options]
        quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": dict(self._environ)}
        output = b""
        with contextlib.suppress(subprocess.SubprocessError):
            check = [*ssh, "-O", "check", "--", self.entry.host]
            subprocess.run(check, stdout=subprocess.DEVNULL, timeout=seconds, check=True, **quiet)  # type: ignore[call-overload]
            words = [*ssh, "-T", "--", self.entry.host, command]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, **quiet)  # type: ignore[call-overload]
            while select.select([process.stdout], [], [], max(give_up - time.monotonic(), 0.0))[0]:
                part = os.read(process.stdout.fileno(), most - len(output))
                output += part
                if not part or len(output) == most:
                    break
            process.kill()
            ended(process)
        return output

    def close(self) -> None:
        """Close the shared connection, if it is castoff's own; the next command makes a new one."""
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
        # Override settings for interactive sessions: forwarded ports could be in use, RemoteCommand
        # conflicts.
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
        """ssh's settings for this host: the last value of each, and the whole text that ssh prints."""
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
    """A folder for sockets that only the user can read; None: every command makes its own connection."""
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
    """Whether only the user can read a folder, which is created if missing."""
    try:
        Path(folder).mkdir(mode=0o700, exist_ok=True)
        about = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077


def ended(process: subprocess.Popen[bytes]) -> int:
    """Close the streams of an ssh process, terminate it if it does not end by itself, and return its exit
    code.
    """
    # Without closing them, it could wait for ever to write into a pipe that nobody reads.
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # buffered bytes can no longer be sent
            if stream is not None:
                stream.close()
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.wait()


def broken(entry: Entry, doing: str, next_: Sequence[str], then: str = "continues") -> ConnectionBroken:
    """The error for the user if the connection broke while `doing`; `next_`: the command to call next."""
    command = " ".join(map(visible_word, next_))
    message = f"the connection to {entry.host} broke while {doing}\nnothing is lost: `{command}` {then}"
    return ConnectionBroken(entry, message, begun=True)


def not_connected(entry: Entry, code: int) -> ConnectionBroken:
    """The error for the user if castoff did not start on the machine; `code` is ssh's exit code."""
    if code == FAILED:
        message = f"{entry.host} was not reached, so nothing was done there; ssh's message is above"
    else:
        message = (
            f"the login shell of {entry.host} ended with code {code} before castoff began: perhaps a "
            "startup file there exits or starts another shell, also in non-interactive shells; "
            f"`ssh {visible_word(entry.host)} true` shows what it prints"
        )
    return ConnectionBroken(entry, message, begun=False)


# Output

_READ = 1 << 16

_CODE = 8
"""Limit of an exit code with its newline, in bytes."""


class Output:
    """The output of one command on the machine, without what its login shell prints before."""

    def __init__(self, stream: IO[bytes], marks: Marks):
        self.stream = stream
        self.obstacle: str | None = None
        """The reason why the command did not start, as the script reports it: see `login_shell`."""
        self.code: int | None = None
        """The command's exit code, known after its end mark."""
        self._marks = marks

    def begins(self) -> bool:
        """Discard everything before the first mark; return whether that mark says that the command has
        started.
        """
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
        return begin in line  # the connection may have broken right after the mark

    def copy(self, write: Callable[[bytes], object]) -> None:
        """Pass the output to `write` as it arrives. `code` stays None if the connection breaks before the end
        mark.
        """
        end = f"{MARK}{self._marks.end} ".encode()
        buffer = b""
        while part := self.stream.read1(_READ):  # type: ignore[attr-defined] # the stream of a pipe has it
            buffer += part
            position = buffer.find(end)
            if position >= 0:
                write(buffer[:position])
                rest = buffer[position + len(end) :]
                self._take_code(rest if b"\n" in rest else rest + self.stream.readline(_CODE))
                return
            keep = _overlap(buffer, end)
            write(buffer[: len(buffer) - keep])
            buffer = buffer[len(buffer) - keep :]
        write(buffer)

    def _take_code(self, rest: bytes) -> None:
        digits, newline, _ = rest.partition(b"\n")
        if newline and digits.isdigit() and len(digits) < _CODE and int(digits) < 256:
            self.code = int(digits)


class Bounded:
    """Counts the bytes of an answer that arrives in parts, and enforces a limit."""

    def __init__(self, what: str, most: int):
        """`what` names the answer and its machine in the error."""
        self._what, self._left, self._most = what, most, most

    def take(self, data: bytes) -> bytes:
        """Count a part, and return it.

        Raises:
            CastoffError: the answer has more than `most` bytes.
        """
        self._left -= len(data)
        if self._left < 0:
            raise CastoffError(
                f"{self._what} is larger than {size_words(self._most)}, the most that castoff accepts"
            )
        return data

    def anew(self) -> Bounded:
        """The same for the next answer."""
        return Bounded(self._what, self._most)


def _overlap(text: bytes, mark: bytes) -> int:
    """The number of bytes at the end of a text that may be the beginning of the mark."""
    start = text.rfind(mark[:1], max(0, len(text) - len(mark)))
    return len(text) - start if start >= 0 and mark.startswith(text[start:]) else 0


# Reports that a machine does not answer

_FIRST_REPORT, _LONGEST_PAUSE = 10.0, 300.0
"""Seconds until the first report that there is no answer, and the longest pause between two reports."""

_UPDATE = 1.0
"""Seconds between two updates of the report on a terminal."""


@contextlib.contextmanager
def reporting_silence(name: str, awaited: str) -> Iterator[Callable[[], object]]:
    """Report that a machine has not answered, and what is `awaited`, until this context ends or the yielded
    function is called.

    On a terminal the report is one line, which is erased then; elsewhere it is repeated.
    """
    answered, began, line, lock = threading.Event(), time.monotonic(), Transient(), threading.Lock()

    def watch() -> None:
        pause = _FIRST_REPORT
        while not answered.wait(pause):
            waited = brief(time.monotonic() - began)
            if not line.is_possible:
                report(f"{name}: no answer yet after {waited}; waiting for {awaited}; Ctrl-C ends the wait")
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _UPDATE
            with lock:
                if not answered.is_set():
                    line.show(f"{name}: waiting for {awaited}: {waited}")

    def stop() -> None:
        with lock:
            answered.set()
        line.erase()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield stop
    finally:
        stop()
        watcher.join()
