"""Stacks of a process as data, read from what faulthandler and py-spy write. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec


class Frame(msgspec.Struct, frozen=True):
    """A call in a stack."""

    function: str
    """Its name; py-spy adds its class."""
    file: str
    line: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What is the same in another process, whichever way its stack was read."""
        return self.function.rpartition(".")[2], self.file, self.line


class Thread(msgspec.Struct, frozen=True):
    """A thread of a process, and its stack."""

    name: str
    """Empty: not known."""
    main: bool
    frames: list[Frame]
    """The innermost call first."""


_HEADING = re.compile(
    r"^(Current thread|Thread) 0x[0-9a-f]+(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):"
)
_CALL = re.compile(r'^ +File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')


def of_faulthandler(lines: Sequence[str]) -> list[Thread]:
    """The threads that faulthandler wrote. The main thread, which handles signals, is the first."""
    threads: list[Thread] = []
    for line in lines:
        if heading := _HEADING.match(line):
            current = heading[1] == "Current thread"
            threads.append(Thread(heading["name"] or "", current, []))
        elif threads and (call := _CALL.match(line)):
            number = int(call["line"]) if call["line"].isdecimal() else 0
            threads[-1].frames.append(Frame(call["function"], call["file"], number))
    return sorted(threads, key=lambda thread: not thread.main)


def without_launcher(thread: Thread) -> Thread:
    """A thread without the outermost calls, by which castoff starts a program in a copy of a process."""
    frames = thread.frames
    while frames and "/launcher/launchers/preload/" in frames[-1].file:
        frames = frames[:-1]
    return msgspec.structs.replace(thread, frames=frames)


class _SpyFrame(msgspec.Struct):
    name: str
    filename: str
    line: int


class _SpyThread(msgspec.Struct):
    frames: list[_SpyFrame]
    os_thread_id: int | None = None
    thread_name: str | None = None


def of_py_spy(text: str, pid: int) -> list[Thread]:
    """The threads in the JSON of `py-spy dump`, the main thread first; none if it is damaged."""
    try:
        read = msgspec.json.decode(text, type=list[_SpyThread])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    threads = list(_threads(read, pid))
    return sorted(threads, key=lambda thread: not thread.main)


def _threads(read: list[_SpyThread], pid: int) -> Iterator[Thread]:
    # In a container, the ids of threads are not those of this host, but the main thread has its name.
    by_id = any(thread.os_thread_id == pid for thread in read)
    for thread in read:
        main = thread.os_thread_id == pid if by_id else thread.thread_name == "MainThread"
        frames = [Frame(frame.name, frame.filename, frame.line) for frame in thread.frames]
        yield Thread(thread.thread_name or "", main, frames)
