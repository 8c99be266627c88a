"""Run castoff on another machine, explain why it does not start, and exchange messages with it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.remote import messages
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.login_shell import (
    NO_CASTOFF,
    NO_FOLDER,
    NO_PYTHON,
    OPEN,
    SETUP,
    Marks,
    castoff_script,
    login_command,
)
from castoff.launcher.remote.messages import (
    PROTOCOL,
    ConnectionLost,
    Failed,
    Hello,
    Message,
    Order,
    UnexpectedMessage,
)
from castoff.launcher.remote.ssh import FAILED, Output, Ssh, broken, ended, not_connected, reporting_silence
from castoff.launcher.remote.wheel import own_version
from castoff.launcher.text.quoting import visible_word


class NotInstalled(CastoffError):
    """The machine has no castoff yet, or no folder for it."""


class RefusedByMachine(CastoffError):
    """An error that the machine's castoff sent as its answer."""

    def __init__(self, machine: str, failed: Failed):
        super().__init__(f"{machine}: {failed.message}")
        self.exit_code = failed.exit_code if 0 < failed.exit_code < 256 else 1  # a shell would see 256 as 0
        self.is_final = failed.is_final


class Machine:
    """The machine of an entry."""

    def __init__(self, entry: Entry, environ: Mapping[str, str], *, as_named: bool):
        """`as_named`: commands for the machine need `--on NAME`, since no variable or project names it."""
        self.entry = entry
        self.ssh = Ssh(entry, environ)
        self.as_named = as_named
        self.greeted: str | None = None
        """The version of the machine's castoff, known after its greeting."""

    def command(self, *words: str) -> list[str]:
        """A castoff command for this machine, as the user types it."""
        return ["castoff", *(["--on", self.entry.name] if self.as_named else []), *words]

    def script(
        self,
        words: Sequence[str],
        *,
        marks: Marks | None,
        variables: Sequence[tuple[str, str]] = (),
        replaced: bool = False,
    ) -> str:
        """The script for the machine's /bin/sh that runs `castoff WORDS`."""
        entry = self.entry
        return castoff_script(
            folder=entry.dir,
            home=entry.home,
            setup=entry.setup,
            own=entry.castoff,
            build=own_version(),
            words=words,
            variables=variables,
            marks=marks,
            replaced=replaced,
        )

    def about_caller(self) -> list[str]:
        """Options that identify the caller to the machine's castoff, with the caller's name for the
        machine.
        """
        # After the greeting, pass the machine's own version: a difference is reported only once per command.
        caller = self.greeted or own_version()
        words = [f"--protocol={PROTOCOL}", f"--caller={caller}", f"--machine={self.entry.name}"]
        if self.as_named:
            words.append("--named")
        return words if self.entry.castoff is None else [*words, f"--installed={self.entry.castoff}"]

    @contextlib.contextmanager
    def begun(
        self, script: str, marks: Marks, stdin: int | None = subprocess.PIPE
    ) -> Iterator[tuple[subprocess.Popen[bytes], Output]]:
        """Run a script on the machine, and wait for its first mark.

        Raises:
            ConnectionBroken: the connection cannot be made.
            CastoffError: the script does not start; the message has the reason.
        """
        process = self.ssh.start(login_command(script), stdin=stdin, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            output = Output(process.stdout, marks)
            with reporting_silence(self.entry.name, f"the ssh connection to {self.entry.host}"):
                begins = output.begins()
            if not begins:
                raise self._not_begun(output, process)
            yield process, output
        except KeyboardInterrupt:  # ssh gets Ctrl-C of a terminal itself, but no other signal
            process.terminate()
            raise
        finally:
            ended(process)

    def _not_begun(self, output: Output, process: subprocess.Popen[bytes]) -> CastoffError:
        """The error that explains why a command did not start on the machine."""
        code = ended(process)
        entry, name, obstacle = self.entry, self.entry.name, output.obstacle
        if obstacle is None:
            return not_connected(entry, code)
        install = f"`castoff on install {name}`"
        if obstacle == NO_FOLDER and entry.castoff is None:
            return NotInstalled(f"{name}: there is no folder {printable(entry.dir)}; {install} makes it")
        if obstacle == NO_FOLDER:
            host, folder = visible_word(entry.host), printable(entry.dir)
            return NotInstalled(
                f"{name}: there is no folder {folder}; `ssh {host} mkdir -p {folder}` makes it"
            )
        if obstacle == NO_PYTHON:
            wanted = entry.python or "python3.10 to python3.14, python3"
            return CastoffError(
                f"{name}: there is no Python 3.10 or newer among {wanted}: name one with "
                "--python of `castoff on add`, or load a module with its --setup"
            )
        if obstacle == NO_CASTOFF and entry.castoff is None:
            return NotInstalled(f"{name}: castoff is not installed there yet; {install} installs it")
        if obstacle == NO_CASTOFF:
            return CastoffError(f"{name}: castoff: {printable(entry.castoff or '')} is not a program there")
        if obstacle.startswith(f"{OPEN} "):
            return _open_to_others(entry, obstacle.split(" ", 3)[1:])
        lines = {f"{SETUP} {number}": line for number, line in enumerate(entry.setup)}
        if (line := lines.get(obstacle)) is not None:
            return CastoffError(f"{name}: setup: this line failed there: {printable(line)}")
        return CastoffError(f"{name}: castoff could not start there: {printable(obstacle)}")

    @contextlib.contextmanager
    def session(self, again: Sequence[str], *, site: str | None = None) -> Iterator[Session]:
        """Open a session with the machine's castoff, for exchanging messages.

        `again`: the command to repeat if the connection breaks. `site`: the profile that the machine's
        castoff should report; None: the one that it chooses.

        Raises:
            ConnectionBroken: the connection cannot be made, or broke.
            NotInstalled: the machine has no castoff.
            RefusedByMachine: the machine's castoff answers with an error.
        """
        marks = Marks(os.urandom(8).hex())
        words = ["on", "serve", *self.about_caller(), *([] if site is None else [f"--site={site}"])]
        script = self.script(words, marks=marks, replaced=True)
        with self.begun(script, marks) as (process, _):
            session = Session(self, process, again)
            try:
                session.greet()
                yield session
            except (ConnectionLost, OSError) as error:
                raise session.broken(error) from error


def _open_to_others(entry: Entry, about: Sequence[str]) -> CastoffError:
    """The error that others could have replaced the machine's castoff; `about`: a folder's owner, mode and
    path.
    """
    owner, mode, path = [*about, "", "", ""][:3]
    host, path_word = visible_word(entry.host), visible_word(path)
    if entry.castoff is None:
        others, bits, other = "others", "go-w", "install castoff where only you can write, and name it"
    else:
        others, bits, other = "everybody", "o-w", "name another"
    return CastoffError(
        f"{entry.name}: castoff there is not run, because {others} can change {printable(path)} on the "
        f"path to it (mode {printable(mode)}, owner {printable(owner)})\n"
        f"if it is yours, shut them out: ssh {host} chmod {bits} {path_word}\n"
        f"or {other} with --castoff of `castoff on add`"
    )


class Session:
    """Messages to and from the castoff on a machine."""

    def __init__(self, machine: Machine, process: subprocess.Popen[bytes], again: Sequence[str]):
        self._machine, self._process, self._again = machine, process, again
        assert process.stdin is not None
        assert process.stdout is not None
        self._to: BinaryIO = process.stdin  # type: ignore[assignment]
        self._from: BinaryIO = process.stdout  # type: ignore[assignment]
        self.doing = "castoff was starting there"
        """The current action, for the error if the connection breaks."""
        self._awaited = "castoff there"
        self.hello: Hello
        """The greeting of the machine's castoff."""

    def greet(self) -> None:
        """Read the greeting of the machine's castoff, and check that the two versions can work together.

        Raises:
            ConnectionLost: no greeting arrives.
            CastoffError: the two versions cannot work together.
        """
        hello = self.answer()
        if not isinstance(hello, Hello):
            raise UnexpectedMessage("its first message was not a greeting")
        self.hello = hello
        self._check_protocol(hello)
        self._machine.greeted = hello.version

    def ask(self, message: Message, doing: str) -> Message:
        """Send a message, and return its answer.

        Raises:
            RefusedByMachine: the answer is an error.
            ConnectionLost: no answer arrives.
        """
        self.doing = doing
        self._awaited = "castoff there, or its scheduler" if isinstance(message, Order) else "castoff there"
        self.send(message)
        return self.answer()

    def send(self, message: Message | bytes) -> None:
        """Send a message or a part of a file. If the machine no longer reads, raise the error that it sent,
        if any.
        """
        try:
            if isinstance(message, bytes):
                self._to.write(message)
            else:
                messages.write(self._to, message)
        except OSError:
            self.answer()  # raises the machine's error, if it sent one
            raise

    def answer(self) -> Message:
        """Return the next message; raises as `ask` does."""
        with contextlib.suppress(OSError):  # the machine no longer reads, but may have sent an error
            self._to.flush()
        with reporting_silence(self._machine.entry.name, self._awaited):
            message = messages.read(self._from, messages.LONGEST_ANSWER)
        if message is None:
            raise ConnectionLost("")
        if isinstance(message, Failed):
            raise RefusedByMachine(self._machine.entry.name, message)
        return message

    def broken(self, error: Exception) -> CastoffError:
        """The error that the user gets after `ConnectionLost` or an OSError of the connection."""
        code, name = ended(self._process), self._machine.entry.name
        if isinstance(error, UnexpectedMessage):
            return CastoffError(
                f"{name}: castoff there gave no usable answer while {self.doing}: {printable(str(error))}"
            )
        if code != FAILED and isinstance(error, ConnectionLost):
            detail = f" ({error})" if str(error) else ""
            return CastoffError(f"{name}: castoff ended there with code {code} while {self.doing}{detail}")
        return broken(self._machine.entry, self.doing, self._again)

    def _check_protocol(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            entry = self._machine.entry
            raise CastoffError(
                f"{entry.name}: castoff {hello.version} there and castoff {own_version()} here cannot work "
                f"together: {remedy(entry)}"
            )


def remedy(entry: Entry) -> str:
    """The fix if the two castoff versions differ: how to update the machine's."""
    if entry.castoff is None:
        return f"`castoff on install {entry.name}` installs this one there"
    return f"update {printable(entry.castoff)} there, or remove `castoff:` and call `castoff on install`"
