"""What a command on the other side writes, without what its login shell writes before, and its exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from castoff.launcher.errors import CastoffError
from castoff.launcher.remote.login_shell import MARK, Marks
from castoff.launcher.text.words import size_words

_READ = 1 << 16

_CODE = 8
"""Bytes of an exit code and the end of its line, at the most."""


class Output:
    """The output of one command there, from a pipe."""

    def __init__(self, stream: IO[bytes], marks: Marks):
        self.stream = stream
        self.obstacle: str | None = None
        """Why it did not begin, if the other side said so: see `login_shell`."""
        self.code: int | None = None
        """Its exit code, once it was heard."""
        self._marks = marks

    def begins(self) -> bool:
        """Whether the command begins; drops all that comes before."""
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
        """Write all of it as it comes; `code` stays None if the connection breaks before its end."""
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
    """Takes parts of an answer, as long as they are not too much for one."""

    def __init__(self, what: str, most: int):
        """`what`: for the message, with the machine's name."""
        self._what, self._left, self._most = what, most, most

    def take(self, data: bytes) -> bytes:
        """A part, which is counted.

        Raises:
            CastoffError: it is too much.
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
